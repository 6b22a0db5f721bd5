"""Which pods a device's NoExecute taint evicts, and when.

Pure: claims, slices and pods in, deadlines out. As in upstream's device taint eviction: a pod is evicted when a device of a
claim that it uses has a NoExecute taint that the allocation result does not tolerate; a toleration with
`tolerationSeconds` only delays it, counted from the taint's `timeAdded`. NoSchedule has no effect on allocated devices.
Source: kubernetes pkg/controller/devicetainteviction; resource.k8s.io/v1 DeviceToleration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.kube.timestamps import parse
from fairlead.sandbox.node_matching import tolerates
from fairlead.sandbox.objects import Obj, is_deleting, results_of, spec_of, uid_of


@dataclass(frozen=True, order=True)
class Eviction:
    """Delete this pod at that time (unix seconds), because of this device."""

    at_s: float
    pod_uid: str
    device: str
    taint: str


Taints = Mapping[tuple[str, str, str], tuple[Mapping[str, Any], ...]]


def taints_of(slices: Iterable[Obj]) -> Taints:
    """(driver, pool, device) → its NoExecute taints, from the newest generation of each pool."""
    newest: dict[tuple[str, str], int] = {}
    all_slices = list(slices)
    for each in all_slices:
        pool = spec_of(each)["pool"]
        key = (spec_of(each)["driver"], pool["name"])
        newest[key] = max(newest.get(key, 0), int(pool.get("generation", 0)))
    found: dict[tuple[str, str, str], tuple[Mapping[str, Any], ...]] = {}
    for each in all_slices:
        spec = spec_of(each)
        driver, pool = spec["driver"], spec["pool"]
        if int(pool.get("generation", 0)) < newest[driver, pool["name"]]:
            continue
        for device in spec.get("devices") or ():
            severe = tuple(taint for taint in device.get("taints") or () if taint.get("effect") == "NoExecute")
            if severe:
                found[driver, pool["name"], device["name"]] = severe
    return found


def evictions(
    pods: Iterable[Obj], claims_of: Mapping[str, Iterable[Obj]], taints: Taints, *, now_s: float
) -> list[Eviction]:
    """One entry per pod to evict, earliest first. `claims_of` maps a pod's UID to the claims it uses."""
    found: list[Eviction] = []
    for pod in pods:
        if is_deleting(pod):
            continue
        due = [
            eviction
            for claim in claims_of.get(uid_of(pod), ())
            for result in results_of(claim)
            for eviction in _of_result(uid_of(pod), result, taints, now_s)
        ]
        if due:
            found.append(min(due))
    return sorted(found)


def _of_result(pod_uid: str, result: Mapping[str, Any], taints: Taints, now_s: float) -> Iterable[Eviction]:
    device = (result["driver"], result["pool"], result["device"])
    for taint in taints.get(device, ()):
        added_s = parse(taint["timeAdded"]) if taint.get("timeAdded") else now_s
        tolerated = [_tolerated_s(each) for each in result.get("tolerations") or () if tolerates(each, taint)]
        if any(seconds is None for seconds in tolerated):
            continue
        wait_s = max((seconds for seconds in tolerated if seconds is not None), default=0.0)
        yield Eviction(added_s + wait_s, pod_uid, "/".join(device), f"{taint['key']}={taint.get('value', '')}")


def _tolerated_s(toleration: Mapping[str, Any]) -> float | None:
    seconds = toleration.get("tolerationSeconds")
    return None if seconds is None else max(0.0, float(seconds))
