"""One try to place one gang: greedy, best node first, with the ways out that need no backtracking.

Exists apart from the placer because it lives for one gang and one domain. On failure nothing is left placed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.engine.allocator.model import Answer, Budget, Verdict
from fairlead.engine.allocator.result import node_selector
from fairlead.engine.placement.model import Outcome, Placed
from fairlead.kube import core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.placement.model import Domain
    from fairlead.engine.placement.node_info import Site, Spots
    from fairlead.engine.placement.placer import Placer
    from fairlead.engine.placement.shapes import Shape, Unit

JOINT_NODES_MAX = 256  # nodes on which a unit that fits nowhere is tried together with its gang


class Attempt:
    """One gang on one domain."""

    def __init__(
        self, placer: Placer, budget: Budget, *, spread: bool, avoid: frozenset[str], among: Domain | None
    ) -> None:
        self.placer = placer
        self.budget = budget
        self.options: Callable[[Shape], Spots] = lambda shape: placer.spots(
            shape, spread=spread, avoid=avoid, among=among
        )
        self.deepest = Outcome(Verdict.IMPOSSIBLE)

    def greedy(self, units: Sequence[Unit]) -> Outcome:
        placed: list[Placed] = []
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
                verdict = Verdict.BUDGET_ENDED if ended else Verdict.IMPOSSIBLE
                outcome = Outcome(verdict, members_placed=members_of(placed), stuck=unit)
                if stuck is not None:
                    outcome.closest, outcome.short = stuck
                return outcome
            placed.append(entry)
        return Outcome(Verdict.FOUND, placed)

    def best_node(self, unit: Unit) -> tuple[Placed | None, tuple[Site, Answer] | None]:
        spots = self.options(unit.shape)
        closest: tuple[Site, Answer] | None = None
        undecided: set[Site] = set()
        while (site := spots.best(undecided)) is not None:
            entry = self.placer.put(unit, site, self.budget)
            if isinstance(entry, Placed):
                return entry, None
            closest = closest or (site, entry)
            if entry.verdict is Verdict.BUDGET_ENDED:
                undecided.add(site)
            else:
                self.placer.refuse(spots, site)
        return None, closest

    def with_gang(self, unit: Unit, placed: list[Placed]) -> Placed | None:
        """On a node that its gang uses already, all their claims there allocated together."""
        if unit.shape.plain and all(entry.unit.shape is unit.shape for entry in placed):
            return None  # alike asks can't make room for one another
        spots = self.options(unit.shape)
        seen: dict[Site, None] = dict.fromkeys(entry.site for entry in placed)
        for site in list(seen)[:JOINT_NODES_MAX]:
            if site in spots.among:
                entry = self.placer.put_jointly(unit, site, placed, self.budget)
                if entry is not None:
                    return entry
        return None

    def _apart(self, unit: Unit) -> list[Placed]:
        """Pods that share a claim on different nodes, where its devices can be reached from several; [] if they can't."""
        if len(unit.members) == 1 or not self.placer.sites.roaming:
            return []
        lead = self.placer.shapes.lead(unit)
        for site in self.options(lead.shape).ranked():
            first = self.placer.put(lead, site, self.budget)
            if not isinstance(first, Placed):
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


def members_of(placed: Sequence[Placed]) -> int:
    return sum(len(entry.unit.members) for entry in placed)


def hardest_first(units: Sequence[Unit]) -> list[Unit]:
    """Large units before small ones, alike ones together; otherwise as given."""
    return sorted(units, key=lambda unit: (-unit.shape.least, unit.shape.number))
