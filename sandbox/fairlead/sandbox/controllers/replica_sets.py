"""What the ReplicaSet controller decides: pods to create and to delete, and the status.

Pure. Source: kubernetes pkg/controller/replicaset, pkg/controller/controller_utils.go (ActivePodsWithRanks), 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fairlead.kube import timestamps
from fairlead.sandbox.objects import (
    TERMINAL_PHASES,
    Obj,
    annotations_of,
    condition,
    is_deleting,
    is_true,
    labels_of,
    meta,
    name_of,
    namespace_of,
    node_name_of,
    owner_reference,
    phase_of,
    spec_of,
    status_of,
    with_condition,
)

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
BURST: Final = 500  # pods created or deleted for one set at a time
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


@dataclass(frozen=True, kw_only=True)
class SetWork:
    """`status` None: it is as it should be. `again_after_s`: when a ready pod becomes available."""

    creates: int = 0
    deletes: tuple[str, ...] = ()
    again_after_s: float | None = None


def replicas_of(obj: Obj) -> int:
    found = spec_of(obj).get("replicas")
    return 1 if found is None else int(found)


def active(pods: Iterable[Obj]) -> list[Obj]:
    return [pod for pod in pods if phase_of(pod) not in TERMINAL_PHASES and not is_deleting(pod)]


def set_work(replica_set: Obj, pods: Sequence[Obj]) -> SetWork:
    """`pods` are those that it controls."""
    living = active(pods)
    missing = 0 if is_deleting(replica_set) else replicas_of(replica_set) - len(living)
    if missing >= 0:
        return SetWork(creates=min(missing, BURST))
    on_node = Counter(node_name_of(pod) for pod in living)
    order = sorted(living, key=lambda pod: _goes_later(pod, on_node[node_name_of(pod)]))
    return SetWork(deletes=tuple(name_of(pod) for pod in order[: min(-missing, BURST)]))


def _goes_later(pod: Obj, neighbours: int) -> tuple[object, ...]:
    """The less it is worth, the earlier: unbound, pending, not ready, cheap, on a node with others, young."""
    since = condition(pod, "Ready")
    ready = is_true(pod, "Ready")
    ready_at = _seconds((since or {}).get("lastTransitionTime")) if ready else 0.0
    cost = annotations_of(pod).get(DELETION_COST, "0")
    return (
        bool(node_name_of(pod)),
        _PHASES.get(phase_of(pod), 0),
        ready,
        int(cost) if cost.lstrip("-").isdecimal() else 0,
        -neighbours,
        -ready_at,
        -_seconds(meta(pod).get("creationTimestamp")),
        name_of(pod),
    )


def set_status(replica_set: Obj, pods: Sequence[Obj], *, now_s: float, failure: str = "") -> tuple[Obj, float | None]:
    """The status, and when to look again since a ready pod becomes available then. `failure`: of a write of a pod."""
    living = active(pods)
    wanted = (spec_of(replica_set).get("template") or {}).get("metadata", {}).get("labels") or {}
    least_s = float(spec_of(replica_set).get("minReadySeconds") or 0)
    left = [left for pod in living if (left := _until_available(pod, least_s, now_s)) is not None]
    conditions = [each for each in status_of(replica_set).get("conditions") or () if each["type"] != "ReplicaFailure"]
    if failure:
        failed = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failure}
        before = [each for each in status_of(replica_set).get("conditions") or () if each["type"] == "ReplicaFailure"]
        conditions += with_condition(before, failed, now=timestamps.seconds(now_s))
    counts = {
        "fullyLabeledReplicas": sum(wanted.items() <= labels_of(pod).items() for pod in living),
        "readyReplicas": sum(is_true(pod, "Ready") for pod in living),
        "availableReplicas": sum(wait <= 0 for wait in left),
        "terminatingReplicas": sum(is_deleting(pod) and phase_of(pod) not in TERMINAL_PHASES for pod in pods),
    }
    status: Obj = {
        "replicas": len(living),
        "observedGeneration": meta(replica_set).get("generation", 1),
        **{name: count for name, count in counts.items() if count},
        **({"conditions": conditions} if conditions else {}),
    }
    return status, min((wait for wait in left if wait > 0), default=None)


def _until_available(pod: Obj, least_s: float, now_s: float) -> float | None:
    """None: it is not ready."""
    ready = condition(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    return 0.0 if least_s == 0 else _seconds(ready.get("lastTransitionTime")) + least_s - now_s


def new_pod(replica_set: Obj) -> Obj:
    template = spec_of(replica_set).get("template") or {}
    wanted = template.get("metadata") or {}
    metadata: Obj = {
        "generateName": f"{name_of(replica_set)}-",
        "namespace": namespace_of(replica_set),
        "labels": dict(wanted.get("labels") or {}),
        "ownerReferences": [owner_reference(replica_set, api_version="apps/v1", kind="ReplicaSet")],
    }
    for key in ("annotations", "finalizers"):
        if wanted.get(key):
            metadata[key] = wanted[key]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}


def _seconds(text: object) -> float:
    return timestamps.parse(text) if isinstance(text, str) and text else 0.0
