"""Greedy placement of one gang: the hardest unit first, each on its best node, with the ways out that need no backtracking.

A unit that fits nowhere is tried together with its gang's other units on their nodes; pods that share a claim with
network-attached devices may go to different nodes. On failure nothing is left placed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.engine.allocator.model import SearchResult, SearchStatus
from fairlead.engine.allocator.result import node_selector
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.placement.model import PlacementResult, UnitPlacement
from fairlead.engine.placement.shapes import hardest_first
from fairlead.engine.types.reasons import NodeShortage
from fairlead.kube import core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes
    from fairlead.engine.placement.capacity.scored_nodes_cache import ScoredNodesCache
    from fairlead.engine.placement.search.node_placer import NodePlacer
    from fairlead.engine.placement.shapes import PlacementUnit, Shapes, UnitShape

JOINT_NODES_MAX = 256  # nodes on which a unit that fits nowhere is tried together with its gang


class Greedy:
    """One gang on one domain. `nodes_for` gives the domain's nodes for a shape, best first."""

    def __init__(
        self,
        placer: NodePlacer,
        shapes: Shapes,
        cache: ScoredNodesCache,
        nodes_for: Callable[[UnitShape], ScoredNodes],
        budget: StepBudget,
    ) -> None:
        self._placer = placer
        self._shapes = shapes
        self._cache = cache
        self._nodes_for = nodes_for
        self._budget = budget

    def place(self, units: Sequence[PlacementUnit]) -> PlacementResult:
        placed: list[UnitPlacement] = []
        for unit in hardest_first(units):
            placement, closest = self.on_best_node(unit)
            if placement is None:
                placement = self._with_gang(unit, placed)
            if placement is None and (parts := self._apart(unit)):
                placed += parts
                continue
            if placement is None:
                status = SearchStatus.BUDGET_ENDED if self._budget.ended else SearchStatus.IMPOSSIBLE
                beside = self._refused_by_neighbours(unit) if unit.shape.facets else ()
                self._placer.undo(placed)
                members = sum(len(each.unit.members) for each in placed)
                result = PlacementResult(status, members_placed=members, unplaced=unit, beside=beside)
                if closest is not None:
                    result.closest, result.short = closest
                return result
            placed.append(placement)
        return PlacementResult(SearchStatus.FOUND, placed)

    def on_best_node(
        self, unit: PlacementUnit
    ) -> tuple[UnitPlacement | None, tuple[CandidateNode, SearchResult] | None]:
        """The placement, or the node that came closest and what it lacked."""
        scored_nodes = self._nodes_for(unit.shape)
        undecided: set[CandidateNode] = set()
        while (node := scored_nodes.best(undecided)) is not None:
            placement = self._placer.put(unit, node, self._budget)
            if isinstance(placement, UnitPlacement):
                return placement, None
            ended = placement.status is SearchStatus.BUDGET_ENDED
            if ended:
                undecided.add(node)
            self._cache.failed(scored_nodes, node, placement, undecided=ended)
        return None, scored_nodes.closest()

    def _refused_by_neighbours(self, unit: PlacementUnit) -> tuple[NodeShortage, ...]:
        """Which nodes terms about other pods rule out for it now, those of its gang that are placed included."""
        found: dict[str, list[str]] = {}
        ledger = self._placer.ledger
        for node in self._nodes_for(unit.shape).among:
            why = next((w for f in unit.shape.facets if (w := ledger.neighbours_refuse(node.info, f))), None)
            if why is not None:
                found.setdefault(why, []).append(node.name)
        return tuple(
            NodeShortage(need=need, nodes=len(nodes), example=min(nodes)) for need, nodes in sorted(found.items())
        )

    def _with_gang(self, unit: PlacementUnit, placed: list[UnitPlacement]) -> UnitPlacement | None:
        """On a node that its gang uses already, all their claims there allocated together."""
        if unit.shape.plain and all(each.unit.shape is unit.shape for each in placed):
            return None  # alike requests can't make room for one another
        scored_nodes = self._nodes_for(unit.shape)
        seen: dict[CandidateNode, None] = dict.fromkeys(each.node for each in placed)
        for node in list(seen)[:JOINT_NODES_MAX]:
            if scored_nodes.eligible(node):
                placement = self._placer.put_jointly(unit, node, placed, self._budget)
                if placement is not None:
                    return placement
        return None

    def _apart(self, unit: PlacementUnit) -> list[UnitPlacement]:
        """Pods that share a claim on different nodes, where its devices are reachable from several; [] if they are not."""
        if len(unit.members) == 1 or not self._placer.node_snapshot.has_network_attached:
            return []
        lead = self._shapes.lead(unit)
        for node in self._nodes_for(lead.shape).ranked():
            first = self._placer.put(lead, node, self._budget)
            if not isinstance(first, UnitPlacement):
                continue
            picks = [pick for of_claim in first.picks for pick in of_claim]
            parts = [first]
            if not any(pick.device.local for pick in picks):
                selector = node_selector(picks, node.name)
                bound = None if selector is None else msgspec.convert(selector, core.NodeSelector)
                for follower in self._shapes.followers(unit, bound):
                    placement, _ = self.on_best_node(follower)
                    if placement is None:
                        break
                    parts.append(placement)
                else:
                    first.fixed = True
                    return parts
            self._placer.undo(parts)
        return []
