"""What holds each allocated claim: the gang of the pods that it is reserved for, and that gang's queue; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from fairlead.controller.gangs.claims.allocations import allocated_at, known_allocation_time
from fairlead.kube import nulls
from fairlead.kube.containment import computed
from fairlead.kube.core import Pod
from fairlead.kube.device_usage import FRESH_S, DeviceId, DeviceUsage, usage_of
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import Raw
from fairlead.ui.model import idle_devices, plain_pods
from fairlead.ui.model.explanations import gang_of
from fairlead.ui.model.facts import Holder, Usage


def holders(claims: Iterable[ResourceClaim], pods: Iterable[Raw], gangs: Iterable[Raw]) -> dict[str, Holder]:
    """The holder of each allocated claim, by claim UID. Where the pods are not known it says no more than that."""
    by_uid = {pod["metadata"].get("uid", ""): pod for pod in pods}
    queues = {(raw["metadata"].get("namespace", ""), raw["metadata"]["name"]): queue_of(raw) for raw in gangs}
    return {
        claim.metadata.uid: computed(partial(holder, claim, by_uid, queues), lambda _: Holder())
        for claim in claims
        if claim.status.allocation is not None
    }


def holder(claim: ResourceClaim, pods: Mapping[str, Raw], queues: Mapping[tuple[str, str], str]) -> Holder:
    """`pods` by UID; those of another namespace cannot use the claim. `queues` of gangs, by namespace and name."""
    namespace = claim.metadata.namespace
    named = (pods.get(each.uid) for each in claim.status.reserved_for)
    own = [pod for pod in named if pod is not None and pod["metadata"].get("namespace", "") == namespace]
    if not own:
        return Holder()
    name = gang_of(own[0])
    starting = not any((pod.get("status") or {}).get("phase") in {"Running", "Succeeded", "Failed"} for pod in own)
    return Holder(
        gang=f"{namespace}/{name}",
        queue=queues.get((namespace, name)) or plain_pods.queue_of(own[0]),
        starting=starting,
        since=_since(claim, own),
    )


def _since(claim: ResourceClaim, pods: Iterable[Raw]) -> float | None:
    try:
        known = known_allocation_time(claim, ())
        return allocated_at(claim, (nulls.convert(pod, Pod) for pod in pods)) if known is None else known
    except (ValueError, msgspec.ValidationError):  # of a snapshot that somebody wrote
        return None


def usage_by_device(claims: Iterable[ResourceClaim], *, now: float) -> dict[DeviceId, Usage]:
    """How busy devices are, of which their driver wrote lately. `now`: unix seconds."""
    return lately(((claim.metadata.uid, usage_of(claim)) for claim in claims), now=now)


def lately(written: Iterable[tuple[str, Mapping[DeviceId, DeviceUsage]]], *, now: float) -> dict[DeviceId, Usage]:
    """`written`: by claim UID."""
    return {
        device: Usage(
            idle_since=usage.since_s if usage.state == "Idle" else None,
            percent=None if usage.state == "Unknown" else usage.utilization_percent,
            claim=uid if device.share_id else "",
            share=idle_devices.share(usage) if device.share_id else "",
        )
        for uid, found in written
        for device, usage in found.items()
        if usage.sampled_at_s >= now - FRESH_S
    }


def reserved(gangs: Iterable[Raw]) -> dict[str, str]:
    """Nodes that are kept free for a gang: its namespace/name, by node; of several gangs that of the last name."""
    kept = {
        f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}": nodes
        for raw in gangs
        if (nodes := (raw.get("status") or {}).get("reservedNodes"))
    }
    return {str(node): gang for gang in sorted(kept) for node in kept[gang]}


def queue_of(raw: Raw) -> str:
    """The queue that a gang is in; "" where the controller has not said so yet. What its spec names may be a user's."""
    return str((raw.get("status") or {}).get("queue") or "")
