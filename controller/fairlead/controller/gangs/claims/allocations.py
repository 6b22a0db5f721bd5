"""What an allocated claim states: which devices, on which node, for which pods, since when. And where a member runs. Pure.

Since when, also where the apiserver does not keep `allocationTimestamp` (1.34): the first that is there counts:
1. the allocation's own time;
2. the creation of a claim that an admission made: it is allocated right after, or deleted;
3. the release of a pod that the claim is reserved for (`fairlead.dev/released-at`). Only the controller writes it, which the webhook
   sees to; what is written while the webhook is down counts within the claim's creation and the pod's start;
4. the claim's creation: no allocation is older. It may be much older than the allocation, so no deadline begins with it.
Example: the claim of a bare pod was made at 10:00, the gang was admitted at 11:00. On 1.34 the claim says nothing, its pod "11:00".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.api import names
from fairlead.controller.gangs import release
from fairlead.controller.gangs.claims.claims import created_here
from fairlead.controller.gangs.membership.gangs import created_s
from fairlead.controller.gangs.membership.members import Member
from fairlead.engine.types.values import PodRef
from fairlead.kube import core, resource, timestamps


def pod_ref(member: Member) -> PodRef:
    return PodRef(member.pod.metadata.namespace, member.pod.metadata.name, member.uid)


def node_of(member: Member) -> str | None:
    """The node on which a member runs, or to which it is pinned."""
    return member.pod.spec.node_name or release.pinned_node(member.pod)


def results(claim: resource.ResourceClaim) -> tuple[resource.DeviceRequestAllocationResult, ...]:
    return claim.status.allocation.devices.results if claim.status.allocation else ()


def allocated_node(claim: resource.ResourceClaim) -> str | None:
    """The one node that the allocation names; None when it names none or several."""
    selector = claim.status.allocation.node_selector if claim.status.allocation else None
    if selector is None or len(selector.node_selector_terms) != 1:
        return None
    for field in selector.node_selector_terms[0].match_fields:
        if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
            return field.values[0]
    return None


def held_claims(members: Iterable[Member]) -> dict[str, resource.ResourceClaim]:
    """By UID the claims that are allocated and reserved for one of these members, or for its PodGroup."""
    found: dict[str, resource.ResourceClaim] = {}
    for member in members:
        for pod_claim in member.claims:
            if pod_claim.claim is not None and pod_claim.allocated and pod_claim.usable_by(member.uid):
                found.setdefault(pod_claim.claim.metadata.uid, pod_claim.claim)
    return found


def allocated_at(claim: resource.ResourceClaim, pods: Iterable[core.Pod]) -> float:
    """Unix seconds; 0 without an allocation. `pods`: those that use the claim, as far as they are known."""
    if claim.status.allocation is None:
        return 0.0
    known = known_allocation_time(claim, pods)
    return created_s(claim) if known is None else known


def known_allocation_time(claim: resource.ResourceClaim, pods: Iterable[core.Pod]) -> float | None:
    """As `allocated_at`, without the last of the four; None where that would count, and without an allocation."""
    allocation = claim.status.allocation
    if allocation is None:
        return None
    if allocation.allocation_timestamp:
        return timestamps.parse(allocation.allocation_timestamp)
    if created_here(claim) and names.AWAITING_NODES not in claim.metadata.annotations:
        return created_s(claim)
    return min((at for pod in pods if (at := _released(pod, created_s(claim))) is not None), default=None)


def allocation_times(members: Iterable[Member]) -> Mapping[str, float]:
    """Allocation times of the claims that these members hold, by UID; of one that several share, by the pod that was released first."""
    members = tuple(members)
    pods: dict[str, list[core.Pod]] = {}
    for member in members:
        for pod_claim in member.claims:
            if pod_claim.claim is not None:
                pods.setdefault(pod_claim.claim.metadata.uid, []).append(member.pod)
    return {uid: allocated_at(claim, pods[uid]) for uid, claim in held_claims(members).items()}


def _released(pod: core.Pod, created: float) -> float | None:
    """When the pod says that it was released, not before `created` nor after its own start."""
    at = timestamps.parsed(pod.metadata.annotations.get(names.RELEASED_AT))
    if at is None:
        return None
    started = timestamps.parse(pod.status.start_time) if pod.status.start_time else at
    return max(created, min(at, started))
