"""A gang that may have its devices in one of several ways (a model, values that align it): each tried by the search for nodes, best first.

Where preferred levels of a topology are named, a way in which the gang fits in one of the innermost domains comes before a better one in
which it does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.api.topology import Level
from fairlead.engine.allocator.model import SearchStatus
from fairlead.engine.placement.model import PlacementResult, better

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.allocator.steps import StepBudget
    from fairlead.engine.placement.shapes import PlacementUnit

    Search = Callable[[Sequence[PlacementUnit], Sequence[Level], StepBudget], PlacementResult]


def first_found(
    ways: Sequence[Sequence[PlacementUnit]], levels: Sequence[Level], budget: StepBudget, search: Search, *, whole: bool
) -> PlacementResult:
    """The gang in the first way that has a place, or the failure that got furthest. `ways`: its units, restricted; `whole`: they are all
    there are, so that a refusal may be a proof.
    """
    result = PlacementResult(SearchStatus.IMPOSSIBLE)
    for tried in _passes(levels) if len(ways) > 1 else [levels]:
        result = PlacementResult(SearchStatus.IMPOSSIBLE)
        for units in ways:
            found = search(units, tried, budget.attempt())
            if found.status is SearchStatus.FOUND:
                return found
            result = better(result, found)
    if not whole and result.status is SearchStatus.IMPOSSIBLE:
        result.status = SearchStatus.BUDGET_ENDED
    return result


def as_asked(result: PlacementResult, units: Sequence[PlacementUnit]) -> PlacementResult:
    """A failure, of the units as the gang asks for them instead of what they were restricted to."""
    unplaced = result.unplaced
    own = next((unit for unit in units if unplaced is not None and unit.members == unplaced.members), None)
    return replace(result, unplaced=own)


def _passes(levels: Sequence[Level]) -> list[Sequence[Level]]:
    """The levels with all that are preferred as required, then with fewer and fewer of these, at last as they are."""
    bound = sum(level.mode == "required" for level in levels)
    strict = [
        tuple(Level("required", level.label) for level in levels[:depth]) for depth in range(len(levels), bound, -1)
    ]
    return [*strict, levels]
