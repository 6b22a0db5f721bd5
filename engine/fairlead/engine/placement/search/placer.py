"""A node for every pod of a gang and devices for all its claims, or nothing.

Devices and nodes are chosen together, for all pods at once. Greedy first, the hardest unit first, each on its best node; where that fails
the gang's claims on a node are allocated again together (k/k#138765), pods that share a claim with network-attached devices may go to
different nodes, and then nodes are searched with backtracking: the best node for one pod may be the only node for another.
Decides neither order nor quota. On failure the ledger is as before.
For a gang of alike units without network-attached devices greedy with joint allocation is complete: what a node can hold
does not depend on other nodes. Otherwise the search over nodes is complete within the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fairlead.engine.allocator import allocate as allocator
from fairlead.engine.allocator.result import Pick, SearchResult, SearchStatus, node_selector
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.placement.capacity.device_fit import DeviceFit
from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes, ScoredNodesCache
from fairlead.engine.placement.capacity.unit_capacity import too_many
from fairlead.engine.placement.model import (
    CandidateNode,
    NodeScope,
    NodeSnapshot,
    PlacementResult,
    TopologyDomain,
    UnitPlacement,
)
from fairlead.engine.placement.search.node_placer import NodePlacer
from fairlead.engine.placement.shapes import PlacementUnit, Shapes, UnitShape, hardest_first
from fairlead.engine.placement.value.fragmentation import FragmentationScore
from fairlead.engine.types.reasons import NodeShortage

NODE_STEPS = 10  # what trying one node costs, in devices tried
JOINT_NODES_MAX = 256  # nodes on which a unit that fits nowhere is tried together with its gang


class _OutOfStepsError(Exception):
    """The budget ended."""


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
        result = self._greedy(units, budget, scope)
        related = result.status is SearchStatus.IMPOSSIBLE and any(unit.shape.facets for unit in units)
        if related:
            found = self._place_near(units, budget, scope)
            if found is not None:
                return found
        if result.status is SearchStatus.IMPOSSIBLE and self._worth_searching(units, scope):
            steps = budget.part(min(budget.steps, RELATED_STEPS)) if related else budget
            searched = self._backtrack(units, steps, scope)
            if searched.status is not SearchStatus.IMPOSSIBLE:
                return searched if searched.status is SearchStatus.FOUND else replace(result, status=searched.status)
        return result

    def _greedy(self, units: Sequence[PlacementUnit], budget: StepBudget, scope: NodeScope) -> PlacementResult:
        """The hardest unit first, each on its best node, with the ways out that need no backtracking."""
        placed: list[UnitPlacement] = []
        for unit in hardest_first(units):
            placement, closest = self._on_best_node(unit, budget, scope)
            if placement is None:
                placement = self._with_gang(unit, placed, budget, scope)
            if placement is None and (parts := self._apart(unit, budget, scope)):
                placed += parts
                continue
            if placement is None:
                status = SearchStatus.BUDGET_ENDED if budget.ended else SearchStatus.IMPOSSIBLE
                beside = self._refused_by_neighbours(unit, scope) if unit.shape.facets else ()
                self.undo(placed)
                members = sum(len(each.unit.members) for each in placed)
                result = PlacementResult(status, members_placed=members, unplaced=unit, beside=beside)
                if closest is not None:
                    result.closest, result.short = closest
                return result
            placed.append(placement)
        return PlacementResult(SearchStatus.FOUND, placed)

    def _on_best_node(
        self, unit: PlacementUnit, budget: StepBudget, scope: NodeScope
    ) -> tuple[UnitPlacement | None, tuple[CandidateNode, SearchResult] | None]:
        """The placement, or the node that came closest and what it lacked."""
        scored_nodes = self.scored_nodes(unit.shape, scope)
        undecided: set[CandidateNode] = set()
        while (node := scored_nodes.best(undecided)) is not None:
            placement = self.put(unit, node, budget)
            if isinstance(placement, UnitPlacement):
                return placement, None
            ended = placement.status is SearchStatus.BUDGET_ENDED
            if ended:
                undecided.add(node)
            self._cache.failed(scored_nodes, node, placement, undecided=ended)
        return None, scored_nodes.closest()

    def _refused_by_neighbours(self, unit: PlacementUnit, scope: NodeScope) -> tuple[NodeShortage, ...]:
        """Which nodes terms about other pods rule out for it now, those of its gang that are placed included."""
        found: dict[str, list[str]] = {}
        for node in self.scored_nodes(unit.shape, scope).among:
            why = next((w for f in unit.shape.facets if (w := self.ledger.neighbours_refuse(node.info, f))), None)
            if why is not None:
                found.setdefault(why, []).append(node.name)
        return tuple(
            NodeShortage(need=need, nodes=len(nodes), example=min(nodes)) for need, nodes in sorted(found.items())
        )

    def _with_gang(
        self, unit: PlacementUnit, placed: list[UnitPlacement], budget: StepBudget, scope: NodeScope
    ) -> UnitPlacement | None:
        """On a node that its gang uses already, all their claims there allocated together."""
        if unit.shape.plain and all(each.unit.shape is unit.shape for each in placed):
            return None  # alike requests can't make room for one another
        scored_nodes = self.scored_nodes(unit.shape, scope)
        seen: dict[CandidateNode, None] = dict.fromkeys(each.node for each in placed)
        for node in list(seen)[:JOINT_NODES_MAX]:
            if scored_nodes.eligible(node):
                placement = self.put_jointly(unit, node, placed, budget)
                if placement is not None:
                    return placement
        return None

    def _apart(self, unit: PlacementUnit, budget: StepBudget, scope: NodeScope) -> list[UnitPlacement]:
        """Pods that share a claim on different nodes, where its devices are reachable from several; [] if they are not."""
        if len(unit.members) == 1 or not self.node_snapshot.has_network_attached:
            return []
        lead = self.shapes.lead(unit)
        for node in self.scored_nodes(lead.shape, scope).ranked():
            first = self.put(lead, node, budget)
            if not isinstance(first, UnitPlacement):
                continue
            picks = [pick for of_claim in first.picks for pick in of_claim]
            parts = [first]
            if not any(pick.device.local for pick in picks):
                for follower in self.shapes.followers(unit, node_selector(picks, node.name)):
                    placement, _ = self._on_best_node(follower, budget, scope)
                    if placement is None:
                        break
                    parts.append(placement)
                else:
                    first.fixed = True
                    return parts
            self.undo(parts)
        return []

    def _backtrack(self, units: Sequence[PlacementUnit], budget: StepBudget, scope: NodeScope) -> PlacementResult:
        """Every way to spread the gang over nodes, until one works or the budget ends. On each node all of its pods are allocated
        jointly, so that the order of units does not decide.
        """
        placed: list[UnitPlacement] = []
        try:
            found = self._descend(hardest_first(units), 0, placed, budget, scope)
        except (_OutOfStepsError, RecursionError):
            found = False
            budget.ended = True
            self.undo(placed)
        if found:
            return PlacementResult(SearchStatus.FOUND, placed)
        return PlacementResult(SearchStatus.BUDGET_ENDED if budget.ended else SearchStatus.IMPOSSIBLE)

    def _descend(
        self, units: list[PlacementUnit], depth: int, placed: list[UnitPlacement], budget: StepBudget, scope: NodeScope
    ) -> bool:
        if depth == len(units):
            return True
        unit = units[depth]
        # Where other pods matter the order decides: a domain may be open only after a pod went to another.
        alike = depth > 0 and units[depth - 1].shape is unit.shape and not unit.shape.facets
        least = placed[-1].node.name if alike and not self.node_snapshot.has_network_attached else ""
        for node in self.scored_nodes(unit.shape, scope).among:
            if node.name < least:
                continue  # alike units in ascending order of nodes: other orders are the same placement
            if not budget.spend(NODE_STEPS):
                raise _OutOfStepsError
            before = [each.picks for each in placed]
            placement: UnitPlacement | SearchResult | None = self.put(unit, node, budget)
            if not isinstance(placement, UnitPlacement):
                placement = self.put_jointly(unit, node, placed, budget)
            if placement is None:
                continue
            placed.append(placement)
            if self._descend(units, depth + 1, placed, budget, scope):
                return True
            placed.pop()
            self.undo((placement,))
            self._restore(placed, before)
        return False

    def _restore(self, placed: list[UnitPlacement], before: list[list[list[Pick]]]) -> None:
        """Back to the picks that the units had before they were allocated again together."""
        moved = [(each, picks) for each, picks in zip(placed, before, strict=True) if each.picks is not picks]
        for placement, _ in moved:
            for picks in placement.picks:
                allocator.release(picks, self.ledger)
        for placement, earlier in moved:
            placement.picks = earlier
            for picks in earlier:
                allocator.retake(picks, self.ledger)
            self.changed(placement.node)

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
            found = self._greedy(units, budget, within)
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
        return self._on_best_node(unit, budget, scope)[0]

    def _worth_searching(self, units: Sequence[PlacementUnit], scope: NodeScope) -> bool:
        """False where greedy was complete, and where there is too little of something in any case."""
        if self.node_snapshot.has_network_attached:
            return True
        return len({unit.shape for unit in units}) > 1 and not too_many(
            units, lambda shape: self.scored_nodes(shape, scope)
        )

    def bounded(self, units: Iterable[PlacementUnit]) -> bool:
        """Whether capacities for these units are never too low."""
        return not self.node_snapshot.has_network_attached and not any(unit.shape.facets for unit in units)

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
