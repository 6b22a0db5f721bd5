"""How much of each resource the nodes have left, in order: which nodes a pod is too large for, without a look at each.

A node's verdict on a pod depends on few facts: the pod's constraints, its host ports, and for each resource which nodes have
less left than it asks for. Pods for which these are the same are refused by the same nodes: a refusal class.

Example: three nodes have 4, 8 and 8 cores left. Pods that ask for 5 and for 7 are of one class (one node has too little); a pod
that asks for 9 is of another.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.candidate_nodes import CandidateNode, NodeSnapshot
    from fairlead.engine.types.pod_needs import PodNeeds

RESOURCES_MAX = 64  # followed at once; tenants may ask for resources of any name


class NodeRoom:
    """Kept from decision to decision; memory only."""

    def __init__(self) -> None:
        self._cursor = -1  # of the log of changed nodes
        self._left: dict[str, dict[CandidateNode, int]] = {}  # by resource, thousandths
        self._order: dict[str, list[int]] = {}  # by resource: the same, sorted

    def update(self, snapshot: NodeSnapshot, ledger: Ledger) -> None:
        """Follow the ledger."""
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
