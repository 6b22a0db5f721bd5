"""A unit of a gang on one node: room for its pods, devices for its claims, or why not.

Exists apart from the placing of gangs because it knows one node at a time (and, to make room, the gang's other units there).
The common case, n alike whole devices, is served without a search; the verdict is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator import allocate as allocator
from fairlead.engine.allocator.model import ClaimCandidates, Pick, SearchResult, SearchStatus, StepBudget
from fairlead.engine.placement.model import UnitPlacement
from fairlead.engine.placement.preference import free_of, preferred, tightest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairlead.engine.allocator.candidates import Candidates
    from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.fragmentation import FragmentationScore
    from fairlead.engine.placement.node_info import CandidateNode, NodeSnapshot
    from fairlead.engine.placement.shapes import PlacementUnit


class NodePlacer:
    """Puts units onto nodes and takes them off again, in one ledger."""

    def __init__(self, sites: NodeSnapshot, ledger: Ledger) -> None:
        self.sites = sites
        self.ledger = ledger
        self.outlook: FragmentationScore | None = None

    def put(self, unit: PlacementUnit, site: CandidateNode, budget: StepBudget) -> UnitPlacement | SearchResult:
        """The unit on this node, or why not. Room for the pods is checked too."""
        node, ledger = site.node, self.ledger
        room = 0 if self.outlook is None else self.outlook.room(unit.shape, site)  # before the pod weighs on the node
        loaded = 0
        for needs in unit.shape.needs:
            lacking = ledger.node_lacks(node, needs)
            if lacking is not None:
                self._unload(unit, site, loaded)
                return SearchResult(SearchStatus.IMPOSSIBLE, detail=lacking)
            ledger.load(node, needs, 1)
            loaded += 1
        answer = self._fast(unit, site) or allocator.allocate(
            [self._offer(claim, site, room) for claim in unit.shape.claims], ledger, budget
        )
        if answer.verdict is not SearchStatus.FOUND:
            self._unload(unit, site, loaded)
            return answer
        self.sites.changed(site)
        return UnitPlacement(unit, site, answer.picks)

    def _fast(self, unit: PlacementUnit, site: CandidateNode) -> SearchResult | None:
        """The common case, n alike whole devices for one claim: no search. None when it does not apply."""
        if not unit.shape.plain:
            return SearchResult(SearchStatus.FOUND) if not unit.shape.claims else None
        ask = unit.shape.claims[0].alternatives[0][0]
        found = self.sites.candidates(site, ask)
        if not found.plain:
            return None
        free = free_of(found, self.ledger)
        if len(free) < ask.count:
            return None
        ordered = tightest(free, ask.count)[: ask.count]
        self.ledger.taken.update(ordered)
        return SearchResult(SearchStatus.FOUND, picks=[[Pick(ask, device, ()) for device in ordered]])

    def _offer(self, claim: CompiledClaim, site: CandidateNode, room: int = 0) -> ClaimCandidates:
        """`room`: how much of it a shared device should have left, so as to be taken first; 0: any."""
        sites, ledger, outlook = self.sites, self.ledger, self.outlook

        def found(ask: CompiledRequest) -> Candidates:
            return sites.candidates(site, ask)

        def prefer(ask: CompiledRequest, candidates: Candidates) -> Sequence[Device]:
            ordered = preferred(ask, candidates, ledger)
            if room and outlook is not None:
                return sorted(ordered, key=lambda device: outlook.left(device) != room)
            return ordered

        return ClaimCandidates(claim, found, prefer)

    def _unload(self, unit: PlacementUnit, site: CandidateNode, loaded: int) -> None:
        for needs in unit.shape.needs[:loaded]:
            self.ledger.load(site.node, needs, -1)

    def put_jointly(
        self, unit: PlacementUnit, site: CandidateNode, gang: list[UnitPlacement], budget: StepBudget
    ) -> UnitPlacement | None:
        """The unit on this node, with the gang's claims that could be in its way allocated anew; None if even so not."""
        others = [entry for entry in gang if (self.sites.roaming or entry.site is site) and not entry.fixed]
        if not others or not unit.shape.claims:
            return None
        node, ledger = site.node, self.ledger
        loaded = 0
        for needs in unit.shape.needs:
            if ledger.node_lacks(node, needs) is not None:
                self._unload(unit, site, loaded)
                return None
            ledger.load(node, needs, 1)
            loaded += 1
        for entry in others:
            for picks in entry.picks:
                allocator.release(picks, ledger)
        offers = [self._offer(claim, entry.site) for entry in others for claim in entry.unit.shape.claims]
        offers += [self._offer(claim, site) for claim in unit.shape.claims]
        answer = allocator.allocate(offers, ledger, budget)
        if answer.verdict is not SearchStatus.FOUND:
            for entry in others:
                for picks in entry.picks:
                    allocator.retake(picks, ledger)
            self._unload(unit, site, loaded)
            return None
        start = 0
        for entry in others:
            count = len(entry.unit.shape.claims)
            entry.picks = answer.picks[start : start + count]
            start += count
            self.sites.changed(entry.site)
        self.sites.changed(site)
        return UnitPlacement(unit, site, answer.picks[start:])

    def undo(self, placed: Iterable[UnitPlacement]) -> None:
        for entry in placed:
            for picks in entry.picks:
                allocator.release(picks, self.ledger)
            for needs in entry.unit.shape.needs:
                self.ledger.load(entry.site.node, needs, -1)
            self.sites.changed(entry.site)
