"""The ScoredNodes of every shape that was placed, kept from one decision to the next.

Memory only: a fresh cache gives the same placements. The oldest heap goes first when all of them together grow too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.placement.capacity.device_fit import DeviceFit
from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes

if TYPE_CHECKING:
    from fairlead.engine.allocator.model import SearchResult
    from fairlead.engine.allocator.requests import CompiledClaim
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.candidate_nodes import CandidateNode, NodeSnapshot
    from fairlead.engine.placement.model import NodeScope
    from fairlead.engine.placement.shapes import UnitShape
    from fairlead.engine.placement.value.fragmentation import FragmentationScore

HEAPS_MIN = 16  # heaps kept in any case; each is as long as there are nodes
HEAP_ENTRIES_MAX = 4_000_000  # of all heaps together


class ScoredNodesCache:
    """One per placer."""

    def __init__(self, node_snapshot: NodeSnapshot, ledger: Ledger) -> None:
        self._node_snapshot = node_snapshot
        self._ledger = ledger
        self._known: dict[object, ScoredNodes] = {}
        self._fits: dict[tuple[CompiledClaim, ...], DeviceFit] = {}
        self._dropped: list[tuple[ScoredNodes, CandidateNode]] = []

    def of(self, shape: UnitShape, scope: NodeScope, fragmentation: FragmentationScore | None) -> ScoredNodes:
        key = (shape, scope)
        found = self._known.get(key)
        if found is None:
            while len(self._known) >= HEAPS_MIN and len(self._known) * len(self._node_snapshot.all) > HEAP_ENTRIES_MAX:
                del self._known[next(iter(self._known))]
            fit = self.fit(shape)
            found = self._known[key] = ScoredNodes(shape, self._node_snapshot, self._ledger, scope, fragmentation, fit)
        return found

    def fit(self, shape: UnitShape) -> DeviceFit:
        """Which nodes have devices for the shape, whatever its pods need besides."""
        found = self._fits.get(shape.claims)
        if found is None:
            while len(self._fits) >= HEAPS_MIN and len(self._fits) * len(self._node_snapshot.all) > HEAP_ENTRIES_MAX:
                del self._fits[next(iter(self._fits))]  # heaps that read it keep it
            found = self._fits[shape.claims] = DeviceFit(shape.claims, self._node_snapshot, self._ledger)
        return found

    def forget_scores(self) -> None:
        """Which nodes have devices stays known."""
        self._known.clear()
        self._dropped.clear()

    def clear(self) -> None:
        self.forget_scores()
        self._fits.clear()

    def failed(self, scored_nodes: ScoredNodes, node: CandidateNode, found: SearchResult, *, undecided: bool) -> None:
        """The allocator found nothing on the best node, as the ledger is: leave it out for this decision, unless `undecided`."""
        scored_nodes.failed(node, found, undecided=undecided)
        self._dropped.append((scored_nodes, node))

    def restore_dropped(self) -> None:
        """At a new decision the ledger is empty again: what was dropped may fit."""
        for scored_nodes, node in self._dropped:
            scored_nodes.restore(node)
        self._dropped.clear()
