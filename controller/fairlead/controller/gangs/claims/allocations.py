"""What an allocated claim states: which devices, on which node, for which pods. And where a member runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.controller.gangs import release
from fairlead.controller.gangs.membership.members import Member
from fairlead.engine.types.values import PodRef
from fairlead.kube import resource


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
