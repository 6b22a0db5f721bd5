"""How many units of a shape each node takes at most now, for all nodes at once: sums over them bound what a domain takes.

Never too low where devices are local to their nodes and no terms about other pods count; exact for plain shapes. Kept from one
question to the next and from one decision to the next: a question costs the nodes that changed since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.placement.capacity.bounds import units_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes
    from fairlead.engine.placement.model import NodeScope, TopologyDomain
    from fairlead.engine.placement.shapes import UnitShape

KNOWN_MAX = 64  # shapes and scopes that are remembered; each has a number for each node


class UnitCapacity:
    """The capacity for units, for one placer, whose `scored_nodes` these are."""

    def __init__(self, scored_nodes: Callable[[UnitShape, NodeScope], ScoredNodes]) -> None:
        self._scored_nodes = scored_nodes
        self._known: dict[object, _OfShape] = {}

    def in_domains(
        self, shape: UnitShape, scope: NodeScope, domains: Iterable[TopologyDomain]
    ) -> dict[TopologyDomain, int]:
        """How many units the nodes of each take at most. What `scope` says of a domain does not count."""
        units = self.by_node(shape, scope)
        return {domain: sum([units.get(node, 0) for node in domain.nodes]) for domain in domains}

    def by_node(self, shape: UnitShape, scope: NodeScope) -> dict[CandidateNode, int]:
        """The nodes that may take a unit now, with how many."""
        whole = scope._replace(among=None)
        scored = self._scored_nodes(shape, whole)
        found = self._known.get((shape, whole))
        if found is None or found.scored is not scored:
            while len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            found = self._known[shape, whole] = _OfShape(scored)
        return found.now()


class _OfShape:
    def __init__(self, scored: ScoredNodes) -> None:
        self.scored = scored
        self._units: dict[CandidateNode, int] = {}
        self._cursor = -1

    def now(self) -> dict[CandidateNode, int]:
        scored = self.scored
        snapshot, log = scored.node_snapshot, scored.node_snapshot.log
        scored.fit.catch_up()
        changed: Iterable[CandidateNode] | None = None if self._cursor < 0 else log.since(self._cursor)
        self._cursor = log.cursor
        if changed is None or scored.shape.facets or snapshot.has_network_attached:
            self._units.clear()
            changed = snapshot.all
        for node in dict.fromkeys(changed):
            units = self._on(node)
            if units:
                self._units[node] = units
            else:
                self._units.pop(node, None)
        return self._units

    def _on(self, node: CandidateNode) -> int:
        spare = self.scored.fit.nodes.get(node)
        if spare is None or not self.scored.eligible(node) or not self.scored.takes(node):
            return 0
        return units_on(node, self.scored)
