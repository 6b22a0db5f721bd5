"""Which nodes do not take the pods of one shape, devices aside, and why: looked at again where a node changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.types.reasons import NodeShortage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.candidate_nodes import CandidateNode, NodeSnapshot
    from fairlead.engine.types.pod_needs import PodNeeds


NODE_SELECTOR = "node selector"


class NodeRefusals:
    """Of pods with these needs, or others of their refusal class, all on one node. Memory only."""

    def __init__(self, needs: Sequence[PodNeeds]) -> None:
        self.willing: set[CandidateNode] = set()
        self._needs = needs
        self._refused: dict[str, dict[str, CandidateNode]] = {}  # by need, by name of node
        self._why: dict[CandidateNode, str] = {}
        self._cursor = -1  # of the log of changed nodes

    def __len__(self) -> int:
        return len(self.willing) + len(self._why)

    def update(self, snapshot: NodeSnapshot, ledger: Ledger) -> None:
        """As the ledger is now."""
        changed = snapshot.log.since(self._cursor)
        self._cursor = snapshot.log.cursor
        if changed is None:
            self.willing.clear()
            self._refused.clear()
            self._why.clear()
            changed = snapshot.all
        for node in dict.fromkeys(changed):
            self._forget(node)
        for node in dict.fromkeys(changed):
            if snapshot.by_name.get(node.name) is node:
                self._look(node, ledger)

    @property
    def needs(self) -> list[str]:
        """What nodes do not meet: that of most nodes first."""
        return sorted(self._refused, key=lambda need: (-len(self._refused[need]), need))

    def label_nowhere(self, needs: Sequence[PodNeeds]) -> str:
        """The first label of these pods' node selectors that no node has; "" where each is on some node."""
        asked = dict.fromkeys(label for each in needs for label in each.node_selector)
        nodes = () if self.willing else self._why
        missing = (f"{key}={value}" for key, value in asked if all(n.info.labels.get(key) != value for n in nodes))
        return "" if self.willing else next(missing, "")

    def shortages(self, needs: Sequence[PodNeeds], ledger: Ledger) -> tuple[NodeShortage, ...]:
        """By need: how many nodes lack it, and the first of them as an example, with what these pods want there."""
        return tuple(
            NodeShortage(need=need, nodes=len(nodes), example=_refusal(nodes[min(nodes)], needs, ledger)[1])
            for need, nodes in sorted(self._refused.items())
        )

    def _forget(self, node: CandidateNode) -> None:
        self.willing.discard(node)
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
        self._why[node] = why
        self._refused.setdefault(why, {})[node.name] = node


def _refusal(node: CandidateNode, wanted: Sequence[PodNeeds], ledger: Ledger) -> tuple[str | None, str]:
    """Which need of the pods the node does not meet, None if it meets all; and the node as an example of it."""
    example = node.info.name
    why = next((why for needs in wanted if (why := node.info.refuses(needs)) is not None), None)
    if why is not None:
        return why, example + (_unlike(node, wanted) if why == NODE_SELECTOR else "")
    lacking = next((lack for needs in wanted if (lack := ledger.node_lacks(node.info, needs)) is not None), None)
    if lacking is None:
        return None, example
    why, _, rest = lacking.partition(":")
    return why, example + (f":{rest}" if rest else "")


def _unlike(node: CandidateNode, wanted: Sequence[PodNeeds]) -> str:
    """The first label of a node selector that the node has otherwise, or not at all."""
    labels, asked = node.info.labels, (label for each in wanted for label in each.node_selector)
    key, value = next((key, value) for key, value in asked if labels.get(key) != value)
    return f": {key} is {labels[key]}, {value} wanted" if key in labels else f": no label {key}, {value} wanted"
