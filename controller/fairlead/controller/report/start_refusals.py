"""Why pods of a gang that have a node do not start, as kubelet and driver say it. Pure.

A driver says it in the claim (`fairlead.kube.prepare_refusals`), kubelet in the pod's status: a container that waits for another
reason than being created. What kubelet says in Events alone is looked for where neither says anything (`kubelet_events`).
Example: `train-3 on node-7: NodePrepareResources: gpu-0 is held by ResourceClaim …; and 2 more`.
"""

from __future__ import annotations

from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member
from fairlead.kube import core, prepare_refusals

STARTS = frozenset({"", "ContainerCreating", "PodInitializing"})
SAID_MAX = 300


def text(gang: Gang, events: tuple[str, str] | None) -> str:
    """For users, of the first such pod; empty where nothing is refused. `events`: a pod's UID, and what kubelet says of it in Events."""
    uid, said_of_it = events or ("", "")
    found = [
        (member, said)
        for member in gang.released
        if _starts(member) and (said := _refusal(member) or (said_of_it if member.uid == uid else ""))
    ]
    if not found:
        return ""
    member, said = found[0]
    more = f"; and {len(found) - 1} more of its pods do not start" if len(found) > 1 else ""
    return f"{member.pod.metadata.name} on {member.pod.spec.node_name} does not start: {said[:SAID_MAX]}{more}"


def unexplained(gang: Gang) -> list[core.Pod]:
    """Pods with a node of which no container was begun, and neither driver nor status says why."""
    return [member.pod for member in gang.released if _starts(member) and not _begun(member) and not _refusal(member)]


def _starts(member: Member) -> bool:
    return member.bound and not member.terminating and member.pod.status.phase in {"", "Pending"}


def _begun(member: Member) -> bool:
    return any(status.state.waiting is None for status in member.pod.status.container_statuses)


def _refusal(member: Member) -> str:
    for each in member.claims:
        if each.claim is not None and (said := prepare_refusals.refusal(each.claim)):
            return said
    for status in member.pod.status.container_statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in STARTS:
            return f"container {status.name}: {waiting.reason}{f': {waiting.message}' if waiting.message else ''}"
    return ""
