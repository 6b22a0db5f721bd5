"""An aligned gang: the choices of `alignment` tried one after the other, each by the search for nodes that other gangs have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.api import names
from fairlead.engine.allocator.model import SearchStatus
from fairlead.engine.placement.topology.choice_search import as_asked, first_found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.api.topology import Level
    from fairlead.engine.allocator.steps import StepBudget
    from fairlead.engine.placement.model import NodeScope, PlacementResult
    from fairlead.engine.placement.search.placer import Placer
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.placement.topology.alignment import AlignmentRule
    from fairlead.engine.placement.topology.choice_search import Search
    from fairlead.engine.types.gangs import GangRequest


class AlignedSearch:
    """One gang, once. `search`: of units by levels, with the values that they are restricted to."""

    def __init__(
        self, gang: GangRequest, rule: AlignmentRule, placer: Placer, scope: NodeScope, search: Search
    ) -> None:
        self._gang = gang
        self._rule = rule
        self._placer = placer
        self._scope = scope
        self._search = search

    def __call__(self, units: Sequence[PlacementUnit], levels: Sequence[Level], budget: StepBudget) -> PlacementResult:
        """As `search`, with aligned devices. A failure is of the units as they were asked for. Raises InvalidClaimError."""
        choices = self._rule.choices(self._gang, units, self._scope, budget)
        if choices is None:
            return self._search(units, levels, budget)
        ways = [choice.units for choice in choices.of]
        result = first_found(ways, levels, budget, self._search, whole=choices.whole)
        return self._explained(as_asked(result, units), units, levels, budget)

    def _explained(
        self, result: PlacementResult, units: Sequence[PlacementUnit], levels: Sequence[Level], budget: StepBudget
    ) -> PlacementResult:
        """Whether it has a place where it is not aligned; what it lacks otherwise is told of the gang as any other's."""
        if result.status is not SearchStatus.IMPOSSIBLE:
            return result
        otherwise = self._search(units, levels, budget)
        if otherwise.status is SearchStatus.FOUND:
            self._placer.undo(otherwise.placed)
            return replace(result, rule=names.ALIGN)
        return replace(otherwise, status=SearchStatus.IMPOSSIBLE)
