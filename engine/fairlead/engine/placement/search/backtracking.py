"""Every way to spread a gang over nodes, until one works or the budget ends.

For gangs of unlike pods: the best node for one may be the only node for another. On each node all of the gang's pods are
allocated jointly, so that the order of units does not decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator import allocate as allocator
from fairlead.engine.allocator.model import SearchResult, SearchStatus
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.placement.model import PlacementResult, UnitPlacement
from fairlead.engine.placement.shapes import hardest_first

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.allocator.model import Pick
    from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes
    from fairlead.engine.placement.search.node_placer import NodePlacer
    from fairlead.engine.placement.shapes import PlacementUnit, UnitShape

NODE_STEPS = 10  # what trying one node costs, in devices tried


class Backtracking:
    """One gang on one domain, within what greedy placement left of the budget."""

    def __init__(self, placer: NodePlacer, nodes_for: Callable[[UnitShape], ScoredNodes], budget: StepBudget) -> None:
        self._placer = placer
        self._nodes_for = nodes_for
        self._budget = budget

    def place(self, units: Sequence[PlacementUnit]) -> PlacementResult:
        placed: list[UnitPlacement] = []
        try:
            found = self._descend(hardest_first(units), 0, placed)
        except (_OutOfStepsError, RecursionError):
            found = False
            self._budget.ended = True
            self._placer.undo(placed)
        if found:
            return PlacementResult(SearchStatus.FOUND, placed)
        return PlacementResult(SearchStatus.BUDGET_ENDED if self._budget.ended else SearchStatus.IMPOSSIBLE)

    def _descend(self, units: list[PlacementUnit], depth: int, placed: list[UnitPlacement]) -> bool:
        if depth == len(units):
            return True
        unit = units[depth]
        # Where other pods matter the order decides: a domain may be open only after a pod went to another.
        alike = depth > 0 and units[depth - 1].shape is unit.shape and not unit.shape.facets
        least = placed[-1].node.name if alike and not self._placer.node_snapshot.has_network_attached else ""
        for node in self._nodes_for(unit.shape).among:
            if node.name < least:
                continue  # alike units in ascending order of nodes: other orders are the same placement
            if not self._budget.spend(NODE_STEPS):
                raise _OutOfStepsError
            before = [each.picks for each in placed]
            placement: UnitPlacement | SearchResult | None = self._placer.put(unit, node, self._budget)
            if not isinstance(placement, UnitPlacement):
                placement = self._placer.put_jointly(unit, node, placed, self._budget)
            if placement is None:
                continue
            placed.append(placement)
            if self._descend(units, depth + 1, placed):
                return True
            placed.pop()
            self._placer.undo((placement,))
            self._restore(placed, before)
        return False

    def _restore(self, placed: list[UnitPlacement], before: list[list[list[Pick]]]) -> None:
        """Back to the picks that the units had before they were allocated again together."""
        moved = [(each, picks) for each, picks in zip(placed, before, strict=True) if each.picks is not picks]
        for placement, _ in moved:
            for picks in placement.picks:
                allocator.release(picks, self._placer.ledger)
        for placement, earlier in moved:
            placement.picks = earlier
            for picks in earlier:
                allocator.retake(picks, self._placer.ledger)
            self._placer.changed(placement.node)


class _OutOfStepsError(Exception):
    """The budget ended."""
