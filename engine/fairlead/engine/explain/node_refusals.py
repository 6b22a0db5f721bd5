"""Which nodes do not take the pods of one shape, devices aside, and why: looked at again where a node changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.types.reasons import NodeShortage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.candidate_nodes import CandidateNode, NodeSnapshot
    from fairlead.engine.types.pod_needs import PodNeeds


class NodeRefusals:
    """Of pods with these needs, or others of their refusal class, all on one node. Memory only."""

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
        """Follow the ledger."""
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
