"""Which nodes do not take the pods of one shape, devices aside, and why: looked at again where a node changed.

A node's verdict on a pod depends on few facts: the pod's constraints, its host ports, and for each resource which nodes have
less left than it asks for. Pods for which these are the same are refused by the same nodes: a refusal class.
Example: three nodes have 4, 8 and 8 cores left. Pods that ask for 5 and for 7 are of one class (one node has too little); a pod
that asks for 9 is of another.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.placement.model import CandidateNode, NodeSnapshot
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.reasons import NodeShortage


class NodeRefusals:
    """Which nodes refuse pods with these needs, or others of their refusal class, all on one node. Memory only."""

    def __init__(self, needs: Sequence[PodNeeds]) -> None:
        self.willing: set[CandidateNode] = set()
        self.full: set[CandidateNode] = set()  # these would take them, had they more room left
        self.away: set[CandidateNode] = set()  # these would by their kind, and take no pods now
        self._needs = needs
        self._refused: dict[str, dict[str, CandidateNode]] = {}  # by need, by name of node
        self._why: dict[CandidateNode, str] = {}
        self._cursor = -1  # of the log of changed nodes

    def __len__(self) -> int:
        return len(self.willing) + len(self._why)

    def may_take(self, node: CandidateNode) -> bool:
        """Whether such pods run there once others have ended."""
        return node in self.willing or node in self.full

    def update(self, snapshot: NodeSnapshot, ledger: Ledger) -> None:
        changed = snapshot.log.since(self._cursor)
        self._cursor = snapshot.log.cursor
        if changed is None:
            self.willing.clear()
            self.full.clear()
            self.away.clear()
            self._refused.clear()
            self._why.clear()
            changed = snapshot.all
        for node in dict.fromkeys(changed):
            self._forget(node)
        for node in dict.fromkeys(changed):
            if snapshot.by_name.get(node.name) is node:
                self._look(node, ledger)

    def shortages(self, needs: Sequence[PodNeeds], ledger: Ledger) -> tuple[NodeShortage, ...]:
        """By need: how many nodes lack it, and the first of them as an example, with what these pods want there."""
        return tuple(
            NodeShortage(need=need, nodes=len(nodes), example=_refusal(nodes[min(nodes)], needs, ledger)[1])
            for need, nodes in sorted(self._refused.items())
        )

    def _forget(self, node: CandidateNode) -> None:
        for nodes in (self.willing, self.full, self.away):
            nodes.discard(node)
        why = self._why.pop(node, None)
        if why is not None:
            del self._refused[why][node.name]
            if not self._refused[why]:
                del self._refused[why]

    def _look(self, node: CandidateNode, ledger: Ledger) -> None:
        why, _ = _refusal(node, self._needs, ledger)
        if why is None:
            self.willing.add(node)
            return
        if all(node.info.refuses(needs) is None for needs in self._needs):
            self.full.add(node)
        elif all(node.info.kind_refuses(needs.constraints, fresh=False) is None for needs in self._needs):
            self.away.add(node)
        self._why[node] = why
        self._refused.setdefault(why, {})[node.name] = node


def _refusal(node: CandidateNode, wanted: Sequence[PodNeeds], ledger: Ledger) -> tuple[str | None, str]:
    """Which need of the pods the node does not meet, None if it meets all; and the node as an example of it."""
    example = node.info.name
    why = next((why for needs in wanted if (why := node.info.refuses(needs)) is not None), None)
    if why is not None:
        return why, example
    lacking = next((lack for needs in wanted if (lack := ledger.node_lacks(node.info, needs)) is not None), None)
    if lacking is None:
        return None, example
    why, _, rest = lacking.partition(":")
    return why, example + (f":{rest}" if rest else "")


RESOURCES_MAX = 64  # followed at once; tenants may ask for resources of any name


class NodeRoom:
    """Kept from decision to decision; memory only."""

    def __init__(self) -> None:
        self._cursor = -1  # of the log of changed nodes
        self._left: dict[str, dict[CandidateNode, int]] = {}  # by resource, thousandths
        self._order: dict[str, list[int]] = {}  # by resource: the same, sorted

    def update(self, snapshot: NodeSnapshot, ledger: Ledger) -> None:
        changed = snapshot.log.since(self._cursor)
        self._cursor = snapshot.log.cursor
        if changed is None or len(changed) > len(snapshot.all):
            self._left.clear()
            self._order.clear()
            return
        for node in dict.fromkeys(changed):
            exists = snapshot.by_name.get(node.name) is node
            for resource, known in self._left.items():
                order = self._order[resource]
                before = known.pop(node, None)
                if before is not None:
                    del order[bisect_left(order, before)]
                if exists:
                    left = known[node] = ledger.left(node.info, resource)
                    insort(order, left)

    def refusal_class(self, needs: Sequence[PodNeeds], snapshot: NodeSnapshot, ledger: Ledger) -> object:
        """Equal for pods that the same nodes refuse, for the same reasons."""
        return tuple(
            (
                each.constraints,
                each.ports,
                tuple((resource, self._short(resource, value, snapshot, ledger)) for resource, value in each.requests),
            )
            for each in needs
        )

    def _short(self, resource: str, value: int, snapshot: NodeSnapshot, ledger: Ledger) -> int:
        """How many nodes have less left; the same number means the same nodes."""
        order = self._order.get(resource)
        if order is None:
            if len(self._left) >= RESOURCES_MAX:
                oldest = next(iter(self._left))
                del self._left[oldest], self._order[oldest]
            left = self._left[resource] = {node: ledger.left(node.info, resource) for node in snapshot.all}
            order = self._order[resource] = sorted(left.values())
        return bisect_left(order, value)
