"""The strategy of pods: defaults, gates, QoS class, graceful deletion, and what may change.

Images, deadlines and more tolerations may change; while a pod is gated also gates, selectors and affinity. Fairlead's protocol depends on
it: one patch pins a gated pod to its node and removes its gate, and afterwards no patch can move it. The gates of the *old* pod decide.
What must hold of a spec is in podvalidation. Source: pkg/registry/core/pod/strategy.go, ValidatePodUpdate in pkg/apis/core/validation
(1.36).
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Iterator
from typing import Any

from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, invalid
from fairlead.sandbox.apiserver.kinds.podspec import default_pod, pod_warnings, qos_class
from fairlead.sandbox.apiserver.kinds.podvalidation import pod_spec
from fairlead.sandbox.apiserver.kinds.request import Json

GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"


def _resized(given: list[Json], stored: list[Json]) -> list[Json]:
    by_name = {each.get("name"): each for each in given}
    resized = ("resources", "resizePolicy")
    return [
        {**{name: value for name, value in each.items() if name not in resized},
         **{name: value for name, value in by_name.get(each.get("name"), each).items() if name in resized}}
        for each in stored
    ]  # fmt: skip


class PodStrategy(BuiltIn):
    def default(self, obj: Json) -> None:
        super().default(obj)
        default_pod(obj)

    def prepare_create(self, obj: Json, context: Context) -> None:
        spec = obj.get("spec", {})
        status: Json = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = [_gated(context)]
        obj["status"] = status

    def prepare_status(self, new: Json, old: Json, context: Context) -> None:
        """A status write does not change finalizers, owners and a deletion in progress."""
        meta, before = new["metadata"], old["metadata"]
        for key in ("ownerReferences", "finalizers"):
            if key in before:
                meta[key] = before[key]
            else:
                meta.pop(key, None)
        status = new.setdefault("status", {})
        status["qosClass"] = old.get("status", {}).get("qosClass") or qos_class(new.get("spec", {}))

    def warnings(self, new: Json, old: Json | None, context: Context) -> list[str]:
        return [] if old is not None else list(pod_warnings(new))

    def validate_create(self, obj: Json, context: Context) -> list[FieldError]:
        errors = list(pod_spec(obj.get("spec", {})))
        if obj.get("spec", {}).get("schedulingGates") and obj["spec"].get("nodeName"):
            errors.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
        return errors

    def narrow(self, subresource: str, new: Json, old: Json) -> bool:
        """`ephemeralcontainers` and `resize` write those containers, or resources of containers, and no metadata."""
        if subresource not in {"ephemeralcontainers", "resize"}:
            return False
        given, spec = new.get("spec", {}), dict(old.get("spec", {}))
        if subresource == "ephemeralcontainers":
            spec.pop("ephemeralContainers", None)
            spec |= {name: value for name, value in given.items() if name == "ephemeralContainers"}
        else:
            spec["containers"] = _resized(given.get("containers") or [], spec.get("containers") or [])
        kept = {
            name: new["metadata"][name]
            for name in ("uid", "resourceVersion", "managedFields")
            if name in new["metadata"]
        }
        new |= {"spec": spec, "metadata": {**old["metadata"], **kept}}
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
        return True

    def validate_update(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        return [*pod_spec(new.get("spec", {})), *pod_update(new, old)]

    def validate_status(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        errors = []
        after = new.get("status", {})
        if old.get("spec", {}).get("nodeName") != new.get("spec", {}).get("nodeName"):
            errors.append(forbidden("spec.nodeName", "may not be changed directly"))
        known = {claim.get("name") for claim in new.get("spec", {}).get("resourceClaims") or []}
        for index, one in enumerate(after.get("resourceClaimStatuses") or []):
            if one.get("name") not in known:
                errors.append(
                    invalid(
                        f"status.resourceClaimStatuses[{index}].name",
                        one.get("name", ""),
                        "must match the name of an entry in `spec.resourceClaims`",
                    )
                )
        errors += container_states(new, old)
        return errors

    def grace_period_s(self, obj: Json, requested: int | None) -> int | None:
        """The spec's period unless the request has another; none for pods that never ran or are finished."""
        spec, status = obj.get("spec", {}), obj.get("status", {})
        period = requested
        if period is None:
            period = spec.get("terminationGracePeriodSeconds")
            period = 0 if period is None else period
        if not spec.get("nodeName") or status.get("phase") in {"Failed", "Succeeded"}:
            return 0
        return 1 if period < 0 else int(period)


def _gated(context: Context) -> dict[str, Any]:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": context.timestamp(),
        "reason": "SchedulingGated",
        "message": GATED_MESSAGE,
    }


_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"spec.affinity.nodeAffinity.{_HARD}.nodeSelectorTerms"


def container_states(new: Json, old: Json) -> Iterator[FieldError]:
    """Complaints about containers that the new status says run again, and that the restart policy does not let run again (both whole pods).

    So a kubelet's write that arrives late takes no end back. Source: ValidateContainerStateTransition in pkg/apis/core/validation (1.36);
    restart rules of single containers are left out, pods have none here.
    """
    policy = new.get("spec", {}).get("restartPolicy")
    if policy == "Always":
        return
    for field in ("containerStatuses", "initContainerStatuses"):
        after = {one.get("name"): one for one in new.get("status", {}).get(field) or []}
        for index, before in enumerate(old.get("status", {}).get(field) or []):
            ended = (before.get("state") or {}).get("terminated")
            now = after.get(before.get("name"))
            if not ended or now is None or (ended.get("exitCode") and policy == "OnFailure"):
                continue
            if not (now.get("state") or {}).get("terminated"):
                yield forbidden(f"status.{field}[{index}].state", "may not be transitioned to non-terminated state")


def pod_update(new: Json, old: Json) -> Iterator[FieldError]:
    """Complaints about the change from old to new spec (both whole pods)."""
    after, before = new.get("spec", {}), old.get("spec", {})
    for key in ("containers", "initContainers"):
        if len(after.get(key) or []) != len(before.get(key) or []):
            yield forbidden(f"spec.{key}", "pod updates may not add or remove containers")
            return
    yield from _deadline(after, before)
    yield from _gates(after, before)
    yield from _tolerations(after, before)

    allowed = copy.deepcopy(after)
    for key in ("containers", "initContainers"):
        for one, other in zip(allowed.get(key) or [], before.get(key) or [], strict=False):
            _put(one, "image", other.get("image"))
    for key in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        _put(allowed, key, before.get(key))
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        allowed["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    if before.get("schedulingGates"):
        yield from _node_selector(after, before)
        _put(allowed, "nodeSelector", before.get("nodeSelector"))
        now, was = ((one.get("affinity") or {}).get("nodeAffinity") for one in (after, before))
        if now != was:
            yield from _node_affinity(now, was)
            _put(allowed, "affinity", _with_node_affinity(allowed.get("affinity"), before.get("affinity")))
    if allowed != before:
        yield forbidden("spec", f"{_MAY_CHANGE}\n{_diff(before, allowed)}")


def _put(obj: Json, key: str, value: Any) -> None:
    if value is None:
        obj.pop(key, None)
    else:
        obj[key] = value


def _diff(before: Json, after: Json) -> str:
    left, right = (json.dumps(one, indent=1, sort_keys=True).splitlines() for one in (before, after))
    lines = [line for line in difflib.unified_diff(left, right, lineterm="") if not line.startswith(("---", "+++"))]
    return "\n".join(lines) + "\n"


def _deadline(after: Json, before: Json) -> Iterator[FieldError]:
    new, old = after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if new is not None and old is not None and new > old:
        yield invalid("spec.activeDeadlineSeconds", new, f"must be less than or equal to previous value '{old}'")
    elif new is None and old is not None:
        yield invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")


def _gates(after: Json, before: Json) -> Iterator[FieldError]:
    known = {gate.get("name") for gate in before.get("schedulingGates") or []}
    for index, gate in enumerate(after.get("schedulingGates") or []):
        if gate.get("name") not in known:
            yield forbidden(
                f"spec.schedulingGates[{index}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
            )


def _tolerations(after: Json, before: Json) -> Iterator[FieldError]:
    def bare(one: Json) -> Json:
        return {key: value for key, value in one.items() if key != "tolerationSeconds"}

    given = [bare(one) for one in after.get("tolerations") or []]
    for one in before.get("tolerations") or []:
        if bare(one) not in given:
            yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
            return


def _node_selector(after: Json, before: Json) -> Iterator[FieldError]:
    new, old = after.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    for key, value in old.items():
        if new.get(key) != value:
            yield invalid(
                "spec.nodeSelector", new, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            )
            return


def _hard_terms(node_affinity: Json | None) -> list[Json]:
    return ((node_affinity or {}).get(_HARD) or {}).get("nodeSelectorTerms") or []


def _node_affinity(new: Json | None, old: Json | None) -> Iterator[FieldError]:
    """Terms may be made stricter one by one; their number may not change, and an empty one stays empty."""
    if old is None:
        return
    after, before = _hard_terms(new), _hard_terms(old)
    if before and len(before) != len(after):
        yield invalid(_TERMS, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for index, (now, was) in enumerate(zip(after, before, strict=False)):
        if not _only_adds(now, was):
            yield invalid(f"{_TERMS}[{index}]", now, "only additions are allowed (no mutations or deletions)")


def _only_adds(now: Json, was: Json) -> bool:
    if not was.get("matchExpressions") and not was.get("matchFields"):
        return not now.get("matchExpressions") and not now.get("matchFields")
    for key in ("matchExpressions", "matchFields"):
        kept = was.get(key) or []
        if (now.get(key) or [])[: len(kept)] != kept:
            return False
    return True


def _with_node_affinity(new: Json | None, old: Json | None) -> Json | None:
    """The new affinity with the old node affinity: what still differs is forbidden."""
    was = (old or {}).get("nodeAffinity")
    if new is None:
        return None if was is None else {"nodeAffinity": was}
    if old is None and not new.get("podAffinity") and not new.get("podAntiAffinity"):
        return None
    out = dict(new)
    _put(out, "nodeAffinity", was)
    return out
