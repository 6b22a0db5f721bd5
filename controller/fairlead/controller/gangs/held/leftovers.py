"""Claims that are still allocated though their pod is gone: their devices come free without an eviction.

Between a pod's deletion and the claim controller's write nothing else shows that: the gang has no such member any more. Without
them a second gang would be evicted for the same beneficiary. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.engine.types.gangs import RunningGang, RunningMember
from fairlead.engine.types.values import PodRef
from fairlead.kube import core, resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What one deleted pod holds until the claim controller has written. `claims` are UIDs."""

    gang_id: GangId
    queue: str | None
    pod: PodRef
    node: str
    claims: tuple[str, ...]


def leftover(
    pod: core.Pod, claims: Iterable[resource.ResourceClaim], gang_id: GangId, queue: str | None
) -> Leftover | None:
    """What a pod that was deleted still holds; None where it holds nothing alone."""
    uid = pod.metadata.uid
    held = tuple(
        sorted(
            claim.metadata.uid
            for claim in claims
            if claim.status.allocation is not None and {user.uid for user in claim.status.reserved_for} <= {uid}
        )
    )
    if not held:
        return None
    ref = PodRef(pod.metadata.namespace, pod.metadata.name, uid)
    return Leftover(gang_id=gang_id, queue=queue, pod=ref, node=pod.spec.node_name, claims=held)


def with_leftover(running: RunningGang | None, left: Leftover, labels: Mapping[str, str]) -> RunningGang:
    """The gang as the engine sees it; `running` without the pod, None where nothing else of it runs."""
    member = RunningMember(pod=left.pod, node=left.node, claims=left.claims, leaving=True)
    if running is None:
        namespace, name = left.gang_id
        running = RunningGang(
            namespace=namespace, name=name, uid=left.pod.uid, queue=left.queue, claims=(), namespace_labels=labels
        )
    claims = tuple(sorted({*running.claims, *left.claims}))
    return replace(running, claims=claims, members=(*running.members, member))
