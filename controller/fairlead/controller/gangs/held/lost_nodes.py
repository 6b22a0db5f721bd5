"""Members of a gang on nodes that do not answer: nothing replaces them until kubelet has said that they ended, or an operator does. Pure.

A pod on such a node stays as it is, and when Kubernetes has deleted it, it is still not gone: its containers may run. It goes when the
node is back, when its Node object is deleted, or when the node is tainted `node.kubernetes.io/out-of-service`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from fairlead.api.bounds import Bound
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.kube import core, timestamps

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
LISTED_MAX = 4


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


def text(lost: tuple[LostNode, ...]) -> str:
    """For users; empty where none is lost."""
    if not lost:
        return ""
    more = f"; and {len(lost) - LISTED_MAX} more nodes" if len(lost) > LISTED_MAX else ""
    listed = "; ".join(str(each) for each in lost[:LISTED_MAX])
    one = len(lost) == 1
    return f"{listed}{more}; they are replaced once {'it is' if one else 'these are'} back, deleted, or tainted {OUT_OF_SERVICE}"
