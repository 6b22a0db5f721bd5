"""A node for every pod of a gang and devices for all its claims, or nothing: the transaction at the heart of a decision.

Exists because devices and nodes must be chosen together, for all pods at once. Greedy first, best node first; where greedy
fails the gang's claims on a node are allocated anew together (k/k#138765), and then nodes are searched with backtracking.
Decides neither order nor quota. On failure the ledger is as before.
For a gang of alike units without network-attached devices greedy with joint allocation is complete: what a node can hold
does not depend on other nodes. Otherwise the search over nodes is complete within the budget.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.engine.allocator.model import SearchStatus, StepBudget
from fairlead.engine.placement.attempt import Attempt
from fairlead.engine.placement.bounds import too_many
from fairlead.engine.placement.node import NodePlacer
from fairlead.engine.placement.node_info import ScoredNodes
from fairlead.engine.placement.search import Backtracking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.fragmentation import FragmentationScore
    from fairlead.engine.placement.model import PlacementResult, TopologyDomain
    from fairlead.engine.placement.node_info import CandidateNode, NodeSnapshot
    from fairlead.engine.placement.shapes import PlacementUnit, Shapes, UnitShape

SPOTS_MIN = 16  # heaps kept in any case; each is as long as there are nodes
SPOT_ENTRIES_MAX = 4_000_000  # of all heaps together: the oldest goes first


class Placer(NodePlacer):
    """Places gangs one after the other against one ledger."""

    def __init__(self, sites: NodeSnapshot, ledger: Ledger, shapes: Shapes) -> None:
        super().__init__(sites, ledger)
        self.shapes = shapes
        self._spots: dict[object, ScoredNodes] = {}
        self._refused: list[tuple[ScoredNodes, CandidateNode]] = []
        self.mark = sites.log.cursor  # what is logged after it was changed by the decision being made

    def place(
        self,
        units: Sequence[PlacementUnit],
        budget: StepBudget,
        *,
        spread: bool = False,
        avoid: frozenset[str] = frozenset(),
        among: TopologyDomain | None = None,
    ) -> PlacementResult:
        """All units on nodes of the domain (default: all), or none."""
        attempt = Attempt(self, budget, spread=spread, avoid=avoid, among=among)
        outcome = attempt.greedy(units)
        if outcome.verdict is SearchStatus.IMPOSSIBLE and self._worth_searching(units, attempt):
            searched = Backtracking(attempt).search(units)
            if searched.verdict is not SearchStatus.IMPOSSIBLE:
                return (
                    searched if searched.verdict is SearchStatus.FOUND else replace(outcome, verdict=searched.verdict)
                )
        return outcome

    def _worth_searching(self, units: Sequence[PlacementUnit], attempt: Attempt) -> bool:
        """Not where greedy was complete, nor where there is too little of something anyway."""
        if self.sites.roaming:
            return True
        return len({unit.shape for unit in units}) > 1 and not too_many(units, attempt.options)

    def spots(
        self, shape: UnitShape, *, spread: bool, avoid: frozenset[str], among: TopologyDomain | None
    ) -> ScoredNodes:
        key = (shape, spread, avoid, among)
        found = self._spots.get(key)
        if found is None:
            while len(self._spots) >= SPOTS_MIN and len(self._spots) * len(self.sites.all) > SPOT_ENTRIES_MAX:
                del self._spots[next(iter(self._spots))]
            scope = None if among is None else frozenset(among.sites)
            found = self._spots[key] = ScoredNodes(
                shape, self.sites, self.ledger, scope=scope, spread=spread, avoid=avoid, outlook=self.outlook
            )
        return found

    def look(self, outlook: FragmentationScore | None) -> None:
        """Judge nodes by this from now on."""
        self.outlook = outlook
        self._spots.clear()

    def forget_spots(self) -> None:
        """All of them, as when nodes came or went: those of a domain no longer know their nodes."""
        self._spots.clear()

    def begin(self) -> None:
        """A new decision: what the last one gave and refused is forgotten, what it knew of unchanged nodes is kept."""
        touched = self.sites.log.since(self.mark)
        self.ledger.clear()
        for site in dict.fromkeys(touched or ()):
            self.sites.changed(site)
        if touched is None:
            self._spots.clear()
        for spots, site in self._refused:
            spots.again(site)
        self._refused.clear()
        self.mark = self.sites.log.cursor

    def refuse(self, spots: ScoredNodes, site: CandidateNode) -> None:
        """The allocator said no to the spots' shape on this node, as the ledger is."""
        spots.drop(site)
        self._refused.append((spots, site))
