"""One try to place one gang: greedy, best node first, with the ways out that need no backtracking.

Exists apart from the placer because it lives for one gang and one domain. On failure nothing is left placed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.engine.allocator.model import SearchResult, SearchStatus, StepBudget
from fairlead.engine.allocator.result import node_selector
from fairlead.engine.placement.model import PlacementResult, UnitPlacement
from fairlead.kube import core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.placement.model import TopologyDomain
    from fairlead.engine.placement.node_info import CandidateNode, ScoredNodes
    from fairlead.engine.placement.placer import Placer
    from fairlead.engine.placement.shapes import PlacementUnit, UnitShape

JOINT_NODES_MAX = 256  # nodes on which a unit that fits nowhere is tried together with its gang


class Attempt:
    """One gang on one domain."""

    def __init__(
        self, placer: Placer, budget: StepBudget, *, spread: bool, avoid: frozenset[str], among: TopologyDomain | None
    ) -> None:
        self.placer = placer
        self.budget = budget
        self.options: Callable[[UnitShape], ScoredNodes] = lambda shape: placer.spots(
            shape, spread=spread, avoid=avoid, among=among
        )
        self.deepest = PlacementResult(SearchStatus.IMPOSSIBLE)

    def greedy(self, units: Sequence[PlacementUnit]) -> PlacementResult:
        placed: list[UnitPlacement] = []
        ended = False
        for unit in hardest_first(units):
            entry, stuck = self.best_node(unit)
            if entry is None:
                entry = self.with_gang(unit, placed)
            if entry is None and (parts := self._apart(unit)):
                placed += parts
                continue
            if entry is None:
                ended = self.budget.ended
                self.placer.undo(placed)
                verdict = SearchStatus.BUDGET_ENDED if ended else SearchStatus.IMPOSSIBLE
                outcome = PlacementResult(verdict, members_placed=members_of(placed), stuck=unit)
                if stuck is not None:
                    outcome.closest, outcome.short = stuck
                return outcome
            placed.append(entry)
        return PlacementResult(SearchStatus.FOUND, placed)

    def best_node(self, unit: PlacementUnit) -> tuple[UnitPlacement | None, tuple[CandidateNode, SearchResult] | None]:
        spots = self.options(unit.shape)
        closest: tuple[CandidateNode, SearchResult] | None = None
        undecided: set[CandidateNode] = set()
        while (site := spots.best(undecided)) is not None:
            entry = self.placer.put(unit, site, self.budget)
            if isinstance(entry, UnitPlacement):
                return entry, None
            closest = closest or (site, entry)
            if entry.verdict is SearchStatus.BUDGET_ENDED:
                undecided.add(site)
            else:
                self.placer.refuse(spots, site)
        return None, closest

    def with_gang(self, unit: PlacementUnit, placed: list[UnitPlacement]) -> UnitPlacement | None:
        """On a node that its gang uses already, all their claims there allocated together."""
        if unit.shape.plain and all(entry.unit.shape is unit.shape for entry in placed):
            return None  # alike asks can't make room for one another
        spots = self.options(unit.shape)
        seen: dict[CandidateNode, None] = dict.fromkeys(entry.site for entry in placed)
        for site in list(seen)[:JOINT_NODES_MAX]:
            if site in spots.among:
                entry = self.placer.put_jointly(unit, site, placed, self.budget)
                if entry is not None:
                    return entry
        return None

    def _apart(self, unit: PlacementUnit) -> list[UnitPlacement]:
        """Pods that share a claim on different nodes, where its devices can be reached from several; [] if they can't."""
        if len(unit.members) == 1 or not self.placer.sites.roaming:
            return []
        lead = self.placer.shapes.lead(unit)
        for site in self.options(lead.shape).ranked():
            first = self.placer.put(lead, site, self.budget)
            if not isinstance(first, UnitPlacement):
                continue
            picks = [pick for given in first.picks for pick in given]
            parts = [first]
            if not any(pick.device.local for pick in picks):
                selector = node_selector(picks, site.name)
                bound = None if selector is None else msgspec.convert(selector, core.NodeSelector)
                for follower in self.placer.shapes.followers(unit, bound):
                    entry, _ = self.best_node(follower)
                    if entry is None:
                        break
                    parts.append(entry)
                else:
                    first.fixed = True
                    return parts
            self.placer.undo(parts)
        return []


def members_of(placed: Sequence[UnitPlacement]) -> int:
    return sum(len(entry.unit.members) for entry in placed)


def hardest_first(units: Sequence[PlacementUnit]) -> list[PlacementUnit]:
    """Large units before small ones, alike ones together; otherwise as given."""
    return sorted(units, key=lambda unit: (-unit.shape.least, unit.shape.number))
