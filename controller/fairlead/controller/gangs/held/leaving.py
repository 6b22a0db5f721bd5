"""Members whose devices are awaited: pods that are deleted, pods on nodes that do not answer, and pods on nodes that are to go. Pure.

A user may delete a pod with any grace period. Others wait for it no longer than `maxTerminationGrace` allows: then its devices
are not awaited any more, and where a gang waits it is deleted again with a grace of one second, which Kubernetes lets shorten
the first. Never with none: that removes the pod from the API while its containers run, and its devices would be given twice.
What kubelet does not end, and what finalizers keep, stays: its devices are used until the claim is free.

A pod on a node that does not answer stays as it is, and when Kubernetes has deleted it, it is still not gone: its containers may run.
It goes when the node is back, when its Node object is deleted, or when the node is tainted `node.kubernetes.io/out-of-service`.

Of a gang that stays on a node which goes soon all members are asked to save their work, on whichever node they run: the gang stops
with the node. Without a known time it is the gang's checkpoint-grace from now on. The request is taken back when the node stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from fairlead.api import names
from fairlead.api.bounds import Bound
from fairlead.controller.gangs.membership.gangs import Gang, created_s
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.engine.inventory.nodes import NodeNotice
from fairlead.kube import core, timestamps

GRACE_S = 1  # of the second deletion
LISTED_MAX = 4


def leaving_since(pod: core.Pod) -> float | None:
    """Unix seconds of the deletion; None where the pod is not deleted, or does not say."""
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return None
    try:
        since = timestamps.parse(meta.deletion_timestamp) - max(0, meta.deletion_grace_period_seconds or 0)
        return max(since, created_s(pod))  # a period of more than 292 years overflows in the apiserver
    except ValueError:
        return None


def holding(gang: Gang) -> tuple[Member, ...]:
    """The deleted pods of the gang that run still and hold devices."""
    return tuple(
        member
        for member in gang.at(Stage.RELEASED)
        if member.terminating and any(claim.allocated for claim in member.claims)
    )


def to_shorten(members: Iterable[Member], bound_s: float, now: float) -> tuple[tuple[Member, ...], float | None]:
    """Those that have had the time of the bound and would take more; and when the next ones have."""
    late: list[Member] = []
    soonest: float | None = None
    for member in members:
        since, asked_s = leaving_since(member.pod), member.pod.metadata.deletion_grace_period_seconds or 0
        if since is None or asked_s <= max(bound_s, GRACE_S):
            continue
        if since + bound_s <= now:
            late.append(member)
        elif soonest is None or since + bound_s < soonest:
            soonest = since + bound_s
    return tuple(late), soonest


def description(members: Iterable[Member], bound_s: float) -> str:
    """For users: which pods are leaving since when, until when others wait for them, and what keeps them; "" for none."""
    found: list[str] = []
    for member in members:
        since, meta = leaving_since(member.pod), member.pod.metadata
        if since is None:
            continue
        text = f"pod {meta.key} is leaving since {timestamps.seconds(since)}"
        text += f", counted as free from {timestamps.seconds(since + bound_s)}: others wait for its devices until then"
        if meta.finalizers:
            text += f"; kept by its finalizers {', '.join(meta.finalizers[:LISTED_MAX])}"
        found.append(text)
    more = f"; and {len(found) - LISTED_MAX} more" if len(found) > LISTED_MAX else ""
    return "; ".join(found[:LISTED_MAX]) + more


OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNode:
    """`since`: RFC 3339, as its Ready condition has it, or empty; `silent`: it does not answer, else it says that it is not ready."""

    node: str
    since: str
    silent: bool
    members: tuple[Member, ...]

    def __str__(self) -> str:
        count = len(self.members)
        what = "has not answered" if self.silent else "is not ready"
        since = f" since {self.since}" if self.since else ""
        return f"{count} {'member is' if count == 1 else 'members are'} on node {self.node}, which {what}{since}"


def lost_nodes(gang: Gang, node_of: Callable[[str], core.Node | None]) -> tuple[LostNode, ...]:
    """In the order of their names; without nodes whose object is deleted: their pods are being removed."""
    bound = sorted(
        (member for member in gang.at(Stage.RELEASED) if member.bound),
        key=lambda member: (member.pod.spec.node_name, member.uid),
    )
    found: list[LostNode] = []
    for name, members in groupby(bound, key=lambda member: member.pod.spec.node_name):
        node = node_of(name)
        ready = next((each for each in node.status.conditions if each.type == "Ready"), None) if node else None
        if node is None or ready is None or ready.status == "True":
            continue
        if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
            continue
        since = timestamps.seconds(timestamps.parse(ready.last_transition_time)) if ready.last_transition_time else ""
        found.append(LostNode(node=name, since=since, silent=ready.status == "Unknown", members=tuple(members)))
    return tuple(found)


def overdue(gang: Gang, lost: tuple[LostNode, ...], bound: Bound | None, now: float) -> tuple[str, float | None]:
    """Why the gang's other members are to give their devices back, empty where they are not; and when they will, unix seconds.

    They keep them where they are enough to run by themselves.
    """
    on_lost = {member.uid for each in lost for member in each.members}
    staying = [member for member in gang.running if member.uid not in on_lost]
    begun = [timestamps.parse(each.since) for each in lost if each.since]
    if bound is None or not begun or not staying or len(staying) >= gang.together:
        return "", None
    at = min(begun) + bound.seconds
    if now < at:
        return "", at
    return f"{'; '.join(map(str, lost[:LISTED_MAX]))}: for longer than {bound.seconds:.0f} s ({bound.source})", None


def lost_text(lost: tuple[LostNode, ...]) -> str:
    """For users; empty where none is lost."""
    if not lost:
        return ""
    more = f"; and {len(lost) - LISTED_MAX} more nodes" if len(lost) > LISTED_MAX else ""
    listed = "; ".join(str(each) for each in lost[:LISTED_MAX])
    one = len(lost) == 1
    return f"{listed}{more}; they are replaced once {'it is' if one else 'these are'} back, deleted, or tainted {OUT_OF_SERVICE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """`by`: RFC 3339; None: what was asked is taken back."""

    members: tuple[Member, ...]
    by: str | None
    why: str = ""


def ask(gang: Gang, notice: tuple[str, NodeNotice] | None, now: float) -> Ask | None:
    """None where nothing is to be written."""
    if notice is None:
        asked = tuple(member for member in gang.running if names.CHECKPOINT_BY in _annotations(member))
        return Ask(members=asked, by=None) if asked else None
    node, what = notice
    by = what.by if what.by is not None else now + (gang.checkpoint_grace_s or 0.0)
    text = timestamps.seconds(by)
    said = (
        tuple(member for member in gang.running if names.CHECKPOINT_BY not in _annotations(member))
        if what.by is None
        else tuple(member for member in gang.running if _annotations(member).get(names.CHECKPOINT_BY) != text)
    )
    if not said:
        return None
    why = f"node {node} goes: {what}; its pods have until {text} to save their work"
    return Ask(members=said, by=text, why=why)


def _annotations(member: Member) -> Mapping[str, str]:
    return member.pod.metadata.annotations
