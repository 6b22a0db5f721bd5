"""What kube-scheduler's DynamicResources plugin does with a pod's claims, phase by phase.

Fairlead's protocol depends on these rules: which pods may use a claim, on which nodes an allocation by another writer can
be used, when the scheduler deallocates such a claim, and what it writes before it binds. Pure; loop.py writes.
Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go, 1.36.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from fairlead.sandbox.node_fit import matches_selector
from fairlead.sandbox.objects import (
    RESERVED_FOR_MAX,
    Obj,
    allocation_of,
    is_claim_for,
    is_deleting,
    is_reserved_for,
    name_of,
    namespace_of,
    pod_claims,
    reserved_for,
    status_of,
    uid_of,
)

NOT_HERE = "resourceclaim not available on the node"
CANNOT_ALLOCATE = "cannot allocate all claims"

ClaimLookup = Callable[[str, str], Obj | None]  # namespace, name


def waits_for(pod: Obj, claim: ClaimLookup) -> str | None:
    """PreEnqueue: why the pod is not enqueued yet, None when all its claims exist and it may use them."""
    for entry, name in pod_claims(pod):
        if name is None:
            return f'pod "{namespace_of(pod)}/{name_of(pod)}": ResourceClaim not created yet'
        found = claim(namespace_of(pod), name)
        if found is None:
            return f'resourceclaim "{name}" not found'
        if entry.get("resourceClaimTemplateName") is not None and not is_claim_for(found, pod):
            return f'resourceclaim "{name}" was not created for pod {namespace_of(pod)}/{name_of(pod)}'
        if is_deleting(found):
            return f'resourceclaim "{name}" is being deleted'
    return None


def refused(pod: Obj, claims: Iterable[Obj]) -> str | None:
    """PreFilter: why no node is possible. An allocated claim must be reserved for the pod, or have room for one more."""
    for claim in claims:
        full = len(reserved_for(claim)) >= RESERVED_FOR_MAX
        if allocation_of(claim) is not None and full and not is_reserved_for(claim, pod):
            return "resourceclaim in use"
    return None


def is_available(claim: Obj, node: Obj) -> bool:
    """Filter, for an allocated claim: only the allocation's node selector counts, no device is looked at."""
    allocation = allocation_of(claim) or {}
    selector = allocation.get("nodeSelector")
    return selector is None or matches_selector(selector, node)


def to_deallocate(pod: Obj, unavailable: Sequence[Obj], *, pick: Callable[[Sequence[Obj]], Obj]) -> Obj | None:
    """PostFilter: the claim to deallocate when no node fits and a node was refused because of a claim, or None.

    A reservation for this pod does not protect the claim; any other consumer does.
    """
    loose = [
        claim
        for claim in unavailable
        if not reserved_for(claim) or [each.get("uid") for each in reserved_for(claim)] == [uid_of(pod)]
    ]
    return pick(loose) if loose else None


def deallocated(claim: Obj) -> Obj:
    """The status of a claim after its deallocation."""
    return {k: v for k, v in status_of(claim).items() if k not in {"allocation", "reservedFor", "devices"}}


def bound(claim: Obj, pod: Obj, *, allocation: Mapping[str, object] | None, now: str | None) -> Obj | None:
    """PreBind: the status to write before the pod is bound; None when the pod is in `reservedFor` already.

    `allocation` is what this scheduler chose, None for a claim that was allocated before. The timestamp `now` is added to
    either: the apiserver refuses that for an allocation that another writer wrote without one, as in 1.36. It is None where
    binding conditions are off, and nothing is added.
    """
    if is_reserved_for(claim, pod):
        return None
    status = dict(status_of(claim))
    chosen = dict(allocation if allocation is not None else allocation_of(claim) or {})
    if now is not None:
        chosen.setdefault("allocationTimestamp", now)
    status["allocation"] = chosen
    status["reservedFor"] = [*reserved_for(claim), {"resource": "pods", "name": name_of(pod), "uid": uid_of(pod)}]
    return status
