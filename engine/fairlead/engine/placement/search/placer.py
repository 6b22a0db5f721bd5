"""A node for every pod of a gang and devices for all its claims, or nothing.

Devices and nodes are chosen together, for all pods at once. Greedy first, best node first; where greedy fails the gang's
claims on a node are allocated again together (k/k#138765), and then nodes are searched with backtracking.
Decides neither order nor quota. On failure the ledger is as before.
For a gang of alike units without network-attached devices greedy with joint allocation is complete: what a node can hold
does not depend on other nodes. Otherwise the search over nodes is complete within the budget.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.engine.allocator.model import SearchStatus
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.placement.capacity.bounds import too_many
from fairlead.engine.placement.capacity.scored_nodes_cache import ScoredNodesCache
from fairlead.engine.placement.model import NodeScope, TopologyDomain
from fairlead.engine.placement.search.backtracking import Backtracking
from fairlead.engine.placement.search.greedy import Greedy
from fairlead.engine.placement.search.node_placer import NodePlacer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.candidate_nodes import CandidateNode, NodeSnapshot
    from fairlead.engine.placement.capacity.device_fit import DeviceFit
    from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes
    from fairlead.engine.placement.model import PlacementResult, UnitPlacement
    from fairlead.engine.placement.shapes import PlacementUnit, Shapes, UnitShape
    from fairlead.engine.placement.value.fragmentation import FragmentationScore

DEFAULT_SCOPE = NodeScope()
RELATED_STEPS = (
    20_000  # of a search over nodes where terms about other pods count: a step costs more, and few steps are equal
)
NEAR_MAX = 16  # domains that are tried for pods that want to be near one another
DOMAINS_MAX = 1024  # remembered


class Placer(NodePlacer):
    """Places gangs one after the other against one ledger."""

    def __init__(self, node_snapshot: NodeSnapshot, ledger: Ledger, shapes: Shapes) -> None:
        super().__init__(node_snapshot, ledger)
        self.shapes = shapes
        self._cache = ScoredNodesCache(node_snapshot, ledger)
        self._domains: dict[tuple[str, str], TopologyDomain] = {}

    def place(
        self, units: Sequence[PlacementUnit], budget: StepBudget, scope: NodeScope = DEFAULT_SCOPE
    ) -> PlacementResult:
        """All units on nodes of the scope, or none."""
        greedy = Greedy(self, self.shapes, self._cache, self._nodes_for(scope), budget)
        result = greedy.place(units)
        related = result.status is SearchStatus.IMPOSSIBLE and any(unit.shape.facets for unit in units)
        if related:
            found = self._place_near(units, budget, scope)
            if found is not None:
                return found
        if result.status is SearchStatus.IMPOSSIBLE and self._worth_searching(units, scope):
            steps = budget.part(min(budget.steps, RELATED_STEPS)) if related else budget
            searched = Backtracking(self, self._nodes_for(scope), steps).place(units)
            if searched.status is not SearchStatus.IMPOSSIBLE:
                return searched if searched.status is SearchStatus.FOUND else replace(result, status=searched.status)
        return result

    def _place_near(
        self, units: Sequence[PlacementUnit], budget: StepBudget, scope: NodeScope
    ) -> PlacementResult | None:
        """Pods that want to be near one another in each domain in turn: the first may have gone where not all have room."""
        keys = {key for unit in units for facet in unit.shape.facets if facet for key in facet.affinity_keys}
        if len(units) == 1 or not keys:
            return None
        nodes = self.node_snapshot.all if scope.among is None else scope.among.nodes
        groups: dict[str, list[CandidateNode]] = {}
        for node in nodes:
            value = node.info.labels.get(min(keys))
            if value is not None:
                groups.setdefault(value, []).append(node)
        largest = sorted(groups, key=lambda value: (-len(groups[value]), value))[:NEAR_MAX]
        for value in largest:
            within = scope._replace(among=self._domain(min(keys), value, groups[value]))
            found = Greedy(self, self.shapes, self._cache, self._nodes_for(within), budget).place(units)
            if found.status is SearchStatus.FOUND:
                return found
        return None

    def _domain(self, key: str, value: str, nodes: list[CandidateNode]) -> TopologyDomain:
        """The same object as long as its nodes are the same: scores are remembered by it."""
        known = self._domains.get((key, value))
        if known is None or known.nodes != nodes:
            if len(self._domains) >= DOMAINS_MAX:
                self._domains.clear()
            known = self._domains[key, value] = TopologyDomain(value, nodes)
        return known

    def place_unit(self, unit: PlacementUnit, budget: StepBudget, scope: NodeScope) -> UnitPlacement | None:
        """One unit on its best node of the scope, alone; None where it fits none."""
        return Greedy(self, self.shapes, self._cache, self._nodes_for(scope), budget).on_best_node(unit)[0]

    def _nodes_for(self, scope: NodeScope) -> Callable[[UnitShape], ScoredNodes]:
        return lambda shape: self.scored_nodes(shape, scope)

    def _worth_searching(self, units: Sequence[PlacementUnit], scope: NodeScope) -> bool:
        """False where greedy was complete, and where there is too little of something in any case."""
        if self.node_snapshot.has_network_attached:
            return True
        return len({unit.shape for unit in units}) > 1 and not too_many(units, self._nodes_for(scope))

    def scored_nodes(self, shape: UnitShape, scope: NodeScope) -> ScoredNodes:
        return self._cache.of(shape, scope, self.fragmentation)

    def device_fit(self, shape: UnitShape) -> DeviceFit:
        """Which nodes have devices for the shape, whatever its pods need besides."""
        return self._cache.fit(shape)

    def set_fragmentation(self, fragmentation: FragmentationScore | None) -> None:
        """Score nodes by this from now on."""
        self.fragmentation = fragmentation
        self._cache.forget_scores()

    def forget_scored_nodes(self) -> None:
        """When nodes came or went: heaps of a domain lack its new nodes."""
        self._cache.clear()

    def begin(self) -> None:
        """Start a new decision: the ledger is cleared, the scores of unchanged nodes are kept."""
        self.ledger.clear()
        for node in self.touched:
            self.node_snapshot.changed(node)
        self.touched.clear()
        self._cache.restore_dropped()
