"""Every way to spread a gang over nodes, until one works or the budget ends.

Exists for gangs of unlike pods, where the best node for one may be the only node for another. Each node is judged jointly
for all of the gang's pods on it, so that devices never stand in the way of one another's order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator import allocate as allocator
from fairlead.engine.allocator.model import SearchResult, SearchStatus
from fairlead.engine.placement.attempt import Attempt, hardest_first
from fairlead.engine.placement.model import PlacementResult, UnitPlacement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.allocator.model import Pick
    from fairlead.engine.placement.node_info import CandidateNode
    from fairlead.engine.placement.shapes import PlacementUnit


NODE_STEPS = 10  # what trying one node costs, in devices tried


class Backtracking:
    """Continues an attempt that greedy could not finish; shares its budget."""

    def __init__(self, attempt: Attempt) -> None:
        self.placer = attempt.placer
        self.budget = attempt.budget
        self.options = attempt.options

    def search(self, units: Sequence[PlacementUnit]) -> PlacementResult:
        """Every way to spread the units over nodes, until one works or the budget ends."""
        ordered = hardest_first(units)
        placed: list[UnitPlacement] = []
        try:
            found = self._descend(ordered, 0, placed)
        except (_EndError, RecursionError):
            found = False
            self.budget.ended = True
            self.placer.undo(placed)
        if found:
            return PlacementResult(SearchStatus.FOUND, placed)
        return PlacementResult(SearchStatus.BUDGET_ENDED if self.budget.ended else SearchStatus.IMPOSSIBLE)

    def _descend(self, units: list[PlacementUnit], place: int, placed: list[UnitPlacement]) -> bool:
        if place == len(units):
            return True
        unit = units[place]
        spots = self.options(unit.shape)
        alike = place > 0 and units[place - 1].shape is unit.shape
        least = placed[-1].site.name if alike and not self.placer.sites.roaming else ""
        for site in sorted(spots.among, key=_name):
            if site.name < least:
                continue  # alike units in ascending order of nodes: any other way is the same way
            self.budget.steps -= NODE_STEPS
            if self.budget.steps < 0:
                raise _EndError
            before = [entry.picks for entry in placed]
            entry: UnitPlacement | SearchResult | None = self.placer.put(unit, site, self.budget)
            if not isinstance(entry, UnitPlacement):
                entry = self.placer.put_jointly(unit, site, placed, self.budget)
            if entry is None:
                continue
            placed.append(entry)
            if self._descend(units, place + 1, placed):
                return True
            placed.pop()
            self.placer.undo((entry,))
            self._restore(placed, before)
        return False

    def _restore(self, placed: list[UnitPlacement], before: list[list[list[Pick]]]) -> None:
        """Back to the picks that the units had before they were allocated anew together."""
        moved = [(entry, picks) for entry, picks in zip(placed, before, strict=True) if entry.picks is not picks]
        for entry, _ in moved:
            for picks in entry.picks:
                allocator.release(picks, self.placer.ledger)
        for entry, earlier in moved:
            entry.picks = earlier
            for picks in earlier:
                allocator.retake(picks, self.placer.ledger)
            self.placer.sites.changed(entry.site)


class _EndError(Exception):
    """The budget ended."""


def _name(site: CandidateNode) -> str:
    return site.name
