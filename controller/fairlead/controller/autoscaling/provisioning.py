"""Mode ProvisioningRequest: one object of autoscaling.x-k8s.io/v1 for each gang, with a PodTemplate for each kind of its pods.

Names follow from the Gang object's UID, the pods' shapes and the attempt: so a new leader makes nothing twice. A request that failed, or
whose capacity was booked for too long or is revoked, stays as the record of its attempt until the next is due (60 s, doubled up to
1,800 s, `ATTEMPTS_MAX` in all). All belong to the Gang object, and go with it.
Source: autoscaling.x-k8s.io/v1 types.go: podSets at most 32, immutable; conditions Accepted, Provisioned, Failed, BookingExpired,
CapacityRevoked; Kueue KEP-1136 for the pace of retries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairlead.api import names
from fairlead.api.durations import duration_s
from fairlead.api.flavor import PROVISIONING_CLASS, FlavorAutoscaling
from fairlead.controller.autoscaling.shapes import NoShapeError, pod_spec, shapes
from fairlead.controller.gangs.conditions import holding
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.kube import timestamps

POD_SETS_MAX = 32
ATTEMPTS_MAX = 4
RETRY_S = 60.0
RETRY_MAX_S = 1800.0
IMAGE = "registry.k8s.io/pause:3.10"  # of templates, from which no pod is made
KIND = "ProvisioningRequest"

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The objects of one gang, apart from the attempt. `base`: of their names."""

    base: str
    gang: str  # namespace/name
    namespace: str
    owner: Mapping[str, Any]
    pod_sets: tuple[tuple[Mapping[str, Any], int], ...]  # pod spec, count
    provisioning_class: str
    parameters: Mapping[str, str]

    def request(self, attempt: int) -> dict[str, Any]:
        return {
            "apiVersion": "autoscaling.x-k8s.io/v1",
            "kind": KIND,
            "metadata": {**self._metadata(attempt), "name": self.name(attempt)},
            "spec": {
                "provisioningClassName": self.provisioning_class,
                **({"parameters": dict(self.parameters)} if self.parameters else {}),
                "podSets": [
                    {"podTemplateRef": {"name": f"{self.name(attempt)}-{number}"}, "count": count}
                    for number, (_, count) in enumerate(self.pod_sets)
                ],
            },
        }

    def templates(self, attempt: int) -> list[dict[str, Any]]:
        return [
            {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {**self._metadata(attempt), "name": f"{self.name(attempt)}-{number}"},
                "template": {"spec": dict(spec)},
            }
            for number, (spec, _) in enumerate(self.pod_sets)
        ]

    def name(self, attempt: int) -> str:
        return f"{self.base}-{attempt}"

    def _metadata(self, attempt: int) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE},
            "annotations": {names.AWAITING_NODES: self.gang, names.ATTEMPT: str(attempt)},
            "ownerReferences": [dict(self.owner)],
        }


def wanted(gang: Gang, gang_object: Raw, scaling: FlavorAutoscaling) -> Wanted:
    """Raises NoShapeError."""
    found = shapes(gang)
    if len(found) > POD_SETS_MAX:
        raise NoShapeError(
            f"the pods of gang {gang.namespace}/{gang.name} are of {len(found)} kinds, a ProvisioningRequest takes {POD_SETS_MAX}: "
            "make them more alike, or use spec.autoscaling.mode Visible"
        )
    pod_sets = tuple((_template(pod_spec(each, scaling, image=IMAGE)), each.count) for each in found)
    chosen = scaling.provisioning_class or PROVISIONING_CLASS
    parameters = {"ValidUntilSeconds": f"{duration_s(scaling.patience):.0f}"} if chosen == PROVISIONING_CLASS else {}
    uid = gang_object["metadata"]["uid"]
    content = json.dumps([uid, pod_sets, chosen, parameters], sort_keys=True)
    return Wanted(
        base=f"{gang.name[:40].rstrip('-.')}-{hashlib.sha256(content.encode()).hexdigest()[:10]}",
        gang=f"{gang.namespace}/{gang.name}",
        namespace=gang.namespace,
        owner={"apiVersion": names.API_VERSION, "kind": "Gang", "name": gang.name, "uid": uid},
        pod_sets=pod_sets,
        provisioning_class=chosen,
        parameters=parameters,
    )


def _template(spec: dict[str, Any]) -> dict[str, Any]:
    """With what a PodTemplate needs to be valid."""
    return {"restartPolicy": "Never", **spec}


# -- what became of it ------------------------------------------------------------------------------------------------

State = Literal["Pending", "Accepted", "Provisioned", "Failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request in the cluster. `at`: unix seconds, when it failed."""

    name: str
    uid: str
    gang: str
    attempt: int
    state: State
    message: str = ""
    at: float = 0.0


def seen(raw: Raw) -> Seen:
    """What its conditions say. A failure counts more than what came before it."""
    meta, status = raw["metadata"], raw.get("status")
    notes = meta.get("annotations") or {}
    attempt = notes.get(names.ATTEMPT, "")
    base = {
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "gang": notes.get(names.AWAITING_NODES, ""),
        "attempt": int(attempt) if attempt.isdigit() and len(attempt) < 6 else 1,
    }
    for kind in ("Failed", "CapacityRevoked", "BookingExpired"):
        if (each := holding(status, kind)) is not None:
            text = ": ".join(part for part in (kind, each.get("reason", ""), each.get("message", "")) if part)
            at = timestamps.parsed(each.get("lastTransitionTime")) or 0.0
            return Seen(**base, state="Failed", message=text[:512], at=at)
    if (each := holding(status, "Provisioned")) is not None:
        return Seen(**base, state="Provisioned", message=str(each.get("message", ""))[:512])
    return Seen(**base, state="Pending" if holding(status, "Accepted") is None else "Accepted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do for one gang: at most one request made; `delete` are requests that are not its current one. `note`: in words."""

    create: int | None = None  # the attempt
    delete: tuple[Seen, ...] = ()
    note: str = ""
    due: float | None = None  # unix seconds: when the next step is due though nothing changes


def next_step(want: Wanted, found: Sequence[Seen], now: float) -> Step:
    """`found`: the gang's requests in the cluster."""
    own = sorted((each for each in found if each.name == want.name(each.attempt)), key=lambda each: each.attempt)
    others = tuple(each for each in found if each not in own)
    if not own:
        return Step(create=1, delete=others, note="its ProvisioningRequest is being made")
    current, old = own[-1], (*others, *own[:-1])
    if current.state != "Failed":
        return Step(delete=old, note=_progress(want, current))
    again = current.at + min(RETRY_MAX_S, RETRY_S * 2.0 ** (current.attempt - 1))
    said = f"the autoscaler refused ProvisioningRequest {want.namespace}/{current.name}: {current.message}"
    if current.attempt >= ATTEMPTS_MAX:
        note = f"{said}; that was attempt {current.attempt}, the last until the flavor's patience starts again: see the autoscaler's log"
        return Step(delete=old, note=note)
    if now < again:
        return Step(delete=old, note=f"{said}; asked again at {timestamps.seconds(again)}", due=again)
    return Step(create=current.attempt + 1, delete=(*old, current), note=f"{said}; it is asked again")


def _progress(want: Wanted, current: Seen) -> str:
    name = f"ProvisioningRequest {want.namespace}/{current.name}"
    if current.state == "Provisioned":
        return f"{name} is provisioned: its nodes' devices are awaited"
    if current.state == "Accepted":
        return f"{name} is accepted by the autoscaler"
    return (
        f"{name} is not accepted by an autoscaler yet: see that one runs with --enable-provisioning-requests and serves class "
        f"{want.provisioning_class}"
    )
