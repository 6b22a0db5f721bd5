"""One scheduling cycle: one pod against a snapshot of the cluster, as a pure function.

Phases in kube-scheduler's order: PreEnqueue, PreFilter, Filter per node (volumes, other pods and devices last), PostFilter, Score.
Invariants: the order of nodes is total (score, then name); the snapshot is not changed.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.sandbox.node_fit import pod_requests
from fairlead.sandbox.objects import Obj, allocation_of, key_of, pod_claims, spec_of
from fairlead.sandbox.release import NEWEST, Release
from fairlead.sandbox.scheduler import claims as dra
from fairlead.sandbox.scheduler import devices
from fairlead.sandbox.scheduler.fit import NodeInfo, Storage, Volumes, claim_names, refusals, score
from fairlead.sandbox.scheduler.neighbours import Neighbours, concerns
from fairlead.sandbox.scheduler.pools import DeviceKey

# As kube-scheduler: all nodes of a small cluster are scored, of a larger one only so many that fit.
FEASIBLE_MAX = 100


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    nodes: Mapping[str, NodeInfo]
    slices: Callable[[], Iterable[Obj]]
    claim: Callable[[str, str], Obj | None]
    device_class: Callable[[str], Obj | None]
    allocated: Collection[DeviceKey]
    selects: devices.Selects
    repelling: Collection[str] = ()  # UIDs of placed pods with required anti-affinity
    namespace_labels: Callable[[str], Mapping[str, str]] = lambda _: {}
    storage: Storage | None = None
    release: Release = NEWEST


@dataclass(frozen=True, kw_only=True)
class Gated:
    """The pod is not enqueued: it has scheduling gates, or a claim is missing."""

    message: str


@dataclass(frozen=True, kw_only=True)
class Unschedulable:
    message: str
    deallocate: Obj | None = None
    reason: str = "Unschedulable"


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The node, and per claim what PreBind writes: a new allocation, or None for a claim that was allocated before."""

    node: str
    claims: tuple[tuple[Obj, Obj | None], ...]


Outcome = Gated | Unschedulable | Placed


def decide(pod: Obj, snapshot: Snapshot, *, pick: Callable[[Sequence[Obj]], Obj]) -> Outcome:
    """Where the pod goes. `pick` chooses among claims that may be deallocated (kube-scheduler: at random)."""
    if spec_of(pod).get("schedulingGates"):
        return Gated(message="Scheduling is blocked due to non-empty scheduling gates")
    missing = dra.waits_for(pod, snapshot.claim)
    if missing:
        return Gated(message=missing)
    namespace = pod["metadata"]["namespace"]
    found = [snapshot.claim(namespace, name) for _, name in pod_claims(pod) if name]
    own = [claim for claim in found if claim is not None]
    refused = dra.refused(pod, own)
    if refused:
        return Unschedulable(message=_summary(snapshot, Counter({refused: len(snapshot.nodes)})))
    try:
        return _place(pod, own, snapshot, pick)
    except devices.AllocationError as error:
        return Unschedulable(message=f'running "DynamicResources" filter plugin: {error}', reason="SchedulerError")


def _place(pod: Obj, own: Sequence[Obj], snapshot: Snapshot, pick: Callable[[Sequence[Obj]], Obj]) -> Outcome:
    requests = pod_requests(pod)
    allocated = [claim for claim in own if allocation_of(claim) is not None]
    wanting = [claim for claim in own if allocation_of(claim) is None]
    slices = list(snapshot.slices()) if wanting else []
    volumes = _volumes(pod, snapshot)
    if volumes is not None and volumes.refused:
        return Unschedulable(message=_summary(snapshot, Counter({volumes.refused: len(snapshot.nodes)})))
    neighbours = _neighbours(pod, snapshot)
    reasons: Counter[str] = Counter()
    unavailable: dict[str, Obj] = {}
    feasible: list[tuple[float, str, list[Obj]]] = []
    for name, info in sorted(snapshot.nodes.items()):
        refusal = refusals(pod, requests, info)
        if refusal:
            reasons.update(refusal)
            continue
        beside = (volumes and volumes.refusal(info.node)) or (neighbours and neighbours.refusal(info.node))
        if beside:
            reasons[beside] += 1
            continue
        elsewhere = [claim for claim in allocated if not dra.is_available(claim, info.node)]
        if elsewhere:
            unavailable |= {key_of(claim): claim for claim in elsewhere}
            reasons[dra.NOT_HERE] += 1
            continue
        chosen = _devices(wanting, info, slices, snapshot)
        if chosen is None:
            reasons[dra.CANNOT_ALLOCATE] += 1
            continue
        allocations, preference = chosen
        feasible.append((score(pod, requests, info) + 2.0 * preference, name, allocations))
        if len(feasible) >= FEASIBLE_MAX:
            break
    if not feasible:
        dropped = dra.to_deallocate(pod, list(unavailable.values()), pick=pick)
        note = " deallocation of ResourceClaim completed" if dropped is not None else ""
        return Unschedulable(message=_summary(snapshot, reasons) + note, deallocate=dropped)
    _, node, allocations = min(feasible, key=lambda each: (-each[0], each[1]))
    ours = list(zip(wanting, allocations, strict=True))
    theirs: list[tuple[Obj, Obj | None]] = [(claim, None) for claim in allocated]
    return Placed(node=node, claims=(*ours, *theirs))


def _volumes(pod: Obj, snapshot: Snapshot) -> Volumes | None:
    if snapshot.storage is None or not any(claim_names(pod)):
        return None
    pods = (other for info in snapshot.nodes.values() for other in info.objects.values())
    return Volumes(pod, snapshot.storage, list(pods))


def _neighbours(pod: Obj, snapshot: Snapshot) -> Neighbours | None:
    """None where neither this pod nor one that is there has a term: most pods cost nothing."""
    if not snapshot.repelling and not concerns(pod):
        return None
    cluster = ((info.node, info.objects.values()) for _, info in sorted(snapshot.nodes.items()))
    return Neighbours(pod, cluster, snapshot.namespace_labels)


def _devices(
    wanting: Sequence[Obj], info: NodeInfo, slices: Sequence[Obj], snapshot: Snapshot
) -> tuple[list[Obj], int] | None:
    if not wanting:
        return [], 0
    return devices.allocate(
        wanting,
        node=info.node,
        slices=slices,
        device_class=snapshot.device_class,
        allocated=snapshot.allocated,
        selects=snapshot.selects,
        incomplete=not snapshot.release.has("incomplete-pools-unused"),
    )


def _summary(snapshot: Snapshot, reasons: Counter[str]) -> str:
    """`0/4 nodes are available: 3 Insufficient cpu, 1 node(s) had untolerated taint(s).`"""
    total = len(snapshot.nodes)
    if not total:
        return "no nodes available to schedule pods"
    text = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{total} nodes are available: {text}."
