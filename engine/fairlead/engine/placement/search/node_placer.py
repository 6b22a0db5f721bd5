"""A unit of a gang on one node: room for its pods and devices for its claims, or why not.

Looks at one node at a time and, for joint allocation, the gang's other units there. The common case, n alike whole devices, is
served without a search; the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.engine.allocator import allocate as allocator
from fairlead.engine.allocator.candidates import Candidates
from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest
from fairlead.engine.allocator.result import ClaimCandidates, Pick, SearchResult, SearchStatus
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.placement.model import CandidateNode, NodeSnapshot, UnitPlacement
from fairlead.engine.placement.shapes import PlacementUnit
from fairlead.engine.placement.value.fragmentation import FragmentationScore
from fairlead.engine.placement.value.preference import free_of, preferred, smallest


class NodePlacer:
    def __init__(self, node_snapshot: NodeSnapshot, ledger: Ledger) -> None:
        self.node_snapshot = node_snapshot
        self.ledger = ledger
        self.fragmentation: FragmentationScore | None = None
        self.touched: dict[CandidateNode, None] = {}  # nodes that this decision changed in the ledger

    def changed(self, node: CandidateNode) -> None:
        """The ledger has other devices or another room of this node than before."""
        self.touched[node] = None
        self.node_snapshot.changed(node)

    def put(self, unit: PlacementUnit, node: CandidateNode, budget: StepBudget) -> UnitPlacement | SearchResult:
        """The unit on this node, or why not. Room for the pods is checked too."""
        # Before the pods count against the node.
        left = 0 if self.fragmentation is None else self.fragmentation.leftover(unit.shape, node)
        lacking = self._add_pods(unit, node)
        if lacking is not None:
            return SearchResult(SearchStatus.IMPOSSIBLE, detail=lacking)
        result = self._without_search(unit, node) or allocator.allocate(
            [self._candidates(claim, node, left) for claim in unit.shape.claims], self.ledger, budget
        )
        if result.status is not SearchStatus.FOUND:
            self._count_pods(unit, node, -1)
            return result
        self.changed(node)
        return UnitPlacement(unit, node, result.picks)

    def _without_search(self, unit: PlacementUnit, node: CandidateNode) -> SearchResult | None:
        """The common case, n alike whole devices for one claim. None when it does not apply."""
        if not unit.shape.plain:
            return SearchResult(SearchStatus.FOUND) if not unit.shape.claims else None
        request = unit.shape.claims[0].alternatives[0][0]
        found = self.node_snapshot.candidates(node, request)
        if not found.plain:
            return None
        free = free_of(found, self.ledger)
        if len(free) < request.count:
            return None
        ordered = smallest(found, free, request.count)[: request.count]
        self.ledger.taken.update(ordered)
        return SearchResult(SearchStatus.FOUND, picks=[[Pick(request, device, ()) for device in ordered]])

    def _candidates(self, claim: CompiledClaim, node: CandidateNode, left: int = 0) -> ClaimCandidates:
        """`left`: shared devices with exactly so many thousandths left come first; 0: no such preference."""
        node_snapshot, ledger, fragmentation = self.node_snapshot, self.ledger, self.fragmentation

        def candidates(request: CompiledRequest) -> Candidates:
            return node_snapshot.candidates(node, request)

        def prefer(request: CompiledRequest, found: Candidates) -> Sequence[Device]:
            if fragmentation is not None and not found.plain and not left:
                return fragmentation.partitions.ordered(
                    node, request, found.devices, lambda devices: preferred(request, found, ledger, devices)
                )
            ordered = preferred(request, found, ledger)
            if left and fragmentation is not None:
                return sorted(ordered, key=lambda device: fragmentation.leftovers.left(device) != left)
            return ordered

        return ClaimCandidates(claim, candidates, prefer)

    def _add_pods(self, unit: PlacementUnit, node: CandidateNode) -> str | None:
        """Count the unit's pods on the node, or say what it has too little of."""
        info, ledger, facets = node.info, self.ledger, unit.shape.facets
        for added, needs in enumerate(unit.shape.needs):
            lacking = ledger.node_lacks(info, needs)
            if lacking is None and facets:
                lacking = ledger.neighbours_refuse(info, facets[added])
            if lacking is not None:
                for earlier in unit.shape.needs[:added]:
                    ledger.count_pod(info, earlier, -1)
                for facet in facets[:added]:
                    ledger.add_facet(info, facet, -1)
                return lacking
            ledger.count_pod(info, needs, 1)
            if facets:
                ledger.add_facet(info, facets[added], 1)
        return None

    def _count_pods(self, unit: PlacementUnit, node: CandidateNode, sign: int) -> None:
        for needs in unit.shape.needs:
            self.ledger.count_pod(node.info, needs, sign)
        for facet in unit.shape.facets:
            self.ledger.add_facet(node.info, facet, sign)

    def put_jointly(
        self, unit: PlacementUnit, node: CandidateNode, gang: list[UnitPlacement], budget: StepBudget
    ) -> UnitPlacement | None:
        """The unit on this node, with those of the gang's claims that compete with it allocated again; None if that fails."""
        others = [
            each for each in gang if (self.node_snapshot.has_network_attached or each.node is node) and not each.fixed
        ]
        if not others or not unit.shape.claims or self._add_pods(unit, node) is not None:
            return None
        ledger = self.ledger
        for placement in others:
            for picks in placement.picks:
                allocator.release(picks, ledger)
        claims = [self._candidates(claim, each.node) for each in others for claim in each.unit.shape.claims]
        claims += [self._candidates(claim, node) for claim in unit.shape.claims]
        result = allocator.allocate(claims, ledger, budget)
        if result.status is not SearchStatus.FOUND:
            for placement in others:
                for picks in placement.picks:
                    allocator.retake(picks, ledger)
            self._count_pods(unit, node, -1)
            return None
        start = 0
        for placement in others:
            count = len(placement.unit.shape.claims)
            placement.picks = result.picks[start : start + count]
            start += count
            self.changed(placement.node)
        self.changed(node)
        return UnitPlacement(unit, node, result.picks[start:])

    def undo(self, placed: Iterable[UnitPlacement]) -> None:
        for placement in placed:
            for picks in placement.picks:
                allocator.release(picks, self.ledger)
            self._count_pods(placement.unit, placement.node, -1)
            self.changed(placement.node)

    def redo(self, placed: Iterable[UnitPlacement]) -> None:
        """Take the devices and the room of these placements again, which nothing else has taken since `undo`."""
        for placement in placed:
            for picks in placement.picks:
                allocator.retake(picks, self.ledger)
            self._count_pods(placement.unit, placement.node, 1)
            self.changed(placement.node)
