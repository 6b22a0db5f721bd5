"""An allocated claim and its pods, as the ledger is told of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairlead.api import names
from fairlead.controller.accounting.units import Measures, Units, unpublished
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.held.leaving import leaving_since
from fairlead.controller.gangs.membership.gangs import ended_s, gang_id, starts_s
from fairlead.controller.watch.allocated_claims import Held
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.types.allocation import AllocatedClaim, AllocatedDevice
from fairlead.history.ledger.entries import (
    WHOLE_PPM,
    Allocation,
    ClaimEnded,
    ClaimSeen,
    End,
    Measure,
    PartSeen,
    UsageSeen,
)
from fairlead.history.ledger.pod_entries import Holder
from fairlead.kube import core, timestamps
from fairlead.kube.device_usage import DeviceId, DeviceUsage, usage_of

USER_MAX = 256  # characters; a tenant may write the annotation while the webhook is down


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The queue, gang and user that a claim is accounted to, beside what its pods say. `labels`: names of those that are kept with it."""

    queue_of: Callable[[core.Pod], str]
    labels: tuple[str, ...] = ()
    namespace_labels: Callable[[str], Mapping[str, str]] = lambda _: {}

    def allocation(self, held: Held) -> Allocation:
        meta, pod = held.claim.metadata, held.first_pod
        if pod is None:
            holder = Holder(meta.namespace, "", labels=self._labels(meta.namespace, {}))
        else:
            holder = self.holder(pod)
        return Allocation(
            claim_uid=meta.uid,
            namespace=meta.namespace,
            claim=meta.name,
            allocated_us=timestamps.microseconds(held.allocated_at),
            gang=holder.gang,
            queue=holder.queue,
            user=holder.user,
            labels=holder.labels,
        )

    def holder(self, pod: core.Pod) -> Holder:
        namespace = pod.metadata.namespace
        return Holder(
            namespace,
            gang_id(pod)[1],
            self.queue_of(pod),
            pod.metadata.annotations.get(names.USER, "")[:USER_MAX],
            self._labels(namespace, pod.metadata.labels),
        )

    def _labels(self, namespace: str, own: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        inherited = self.namespace_labels(namespace) if self.labels else {}
        chosen = ((name, own.get(name, inherited.get(name))) for name in self.labels)
        return tuple(sorted((name, value) for name, value in chosen if value is not None))


def claim_seen(
    held: Held,
    attribution: Attribution,
    inventory: Inventory,
    units: Units,
    measures: Measures,
    capacity_type: Callable[[str | None], str | None],
) -> ClaimSeen:
    """`capacity_type`: of a node, by name."""
    allocated = AllocatedClaim.of(held.claim)
    usage = usage_of(held.claim)
    started = [at for pod in held.pods.values() for at in starts_s(pod)]
    finished = [ended_s(pod) for pod in held.pods.values() if pod.finished]
    all_finished = bool(finished) and len(finished) == len(held.pods) and all(finished)
    return ClaimSeen(
        allocation=attribution.allocation(held),
        parts=tuple(
            _part(device, inventory, units, measures, capacity_type, usage)
            for device in (allocated.devices if allocated is not None else ())
            if not device.admin
        ),
        started_us=timestamps.microseconds(min(started)) if started else None,
        finished_us=timestamps.microseconds(max(finished)) if all_finished else None,
    )


def _part(
    held: AllocatedDevice,
    inventory: Inventory,
    units: Units,
    measures: Measures,
    capacity_type: Callable[[str | None], str | None],
    usage: Mapping[DeviceId, DeviceUsage],
) -> PartSeen:
    device, ref = inventory.device(held.ref), held.ref
    found = next((each for name, each in usage.items() if name[:3] == (ref.driver, ref.pool, ref.device)), None)
    sample = None if found is None or found.state == "Unknown" else _usage(found)
    if device is None:
        return PartSeen(unit=unpublished(ref), device=ref.device, measure=Measure(share_ppm=WHOLE_PPM), usage=sample)
    measure = measures.of(device, held.consumed, capacity_type(device.node))
    return PartSeen(unit=units.of(device), device=ref.device, measure=measure, usage=sample)


def _usage(usage: DeviceUsage) -> UsageSeen:
    return UsageSeen(
        idle=usage.state == "Idle",
        since_us=timestamps.microseconds(usage.since_s),
        sampled_us=timestamps.microseconds(usage.sampled_at_s),
        busy_percent=usage.utilization_percent,
        memory_peak_bytes=usage.memory_used_peak_bytes,
        memory_bytes=usage.memory_bytes,
    )


def claim_ended(held: Held, at_s: float, node_exists: Callable[[str], bool]) -> ClaimEnded:
    """Why it came free, as its pods tell. Work is lost where a whole gang was evicted that had no time for a checkpoint."""
    pods = list(held.pods.values())
    marks = [mark for pod in pods if (mark := eviction_marks.mark_of(pod)) is not None]
    lost = any(mark.whole for mark in marks) and not any(
        names.CHECKPOINT_GRACE in pod.metadata.annotations for pod in pods
    )
    end = _end(pods, bool(marks), node_exists)
    return ClaimEnded(
        claim_uid=held.uid, at_us=timestamps.microseconds(at_s), ended_by=end, lost=lost and end == "Evicted"
    )


def _end(pods: list[core.Pod], marked: bool, node_exists: Callable[[str], bool]) -> End:
    stopped = [pod for pod in pods if _was_stopped(pod)]
    if pods and not stopped and all(pod.status.phase == "Succeeded" for pod in pods):
        return "Completed"
    if marked:
        return "Evicted"
    if any(pod.spec.node_name and not node_exists(pod.spec.node_name) for pod in pods):
        return "NodeGone"
    if any(pod.status.phase == "Failed" and pod not in stopped for pod in pods):
        return "Failed"
    return "Deleted"


def _was_stopped(pod: core.Pod) -> bool:
    """Whether it was deleted before it ended: with what its containers then exited says nothing of its work."""
    since = leaving_since(pod)
    return since is not None and since <= ended_s(pod)
