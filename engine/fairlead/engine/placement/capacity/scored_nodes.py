"""For one shape, the nodes that might take it, best first: a heap that follows the ledger, kept from one decision to the next.

Placing a pod costs a look at the best node, not at all nodes. A node in the heap is likely to fit, not certain: the allocator
decides. Keeps: a heap entry is as of its node's latest change; nodes that changed since are scored again before `best`
returns one. Memory only: a fresh cache gives the same placements.
With `spread` more devices left over are better, and fragmentation does not count.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from fairlead.engine.allocator.requests import CompiledClaim
from fairlead.engine.allocator.result import SearchResult
from fairlead.engine.inventory import node_selector
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.placement.capacity.device_fit import DeviceFit, Spare
from fairlead.engine.placement.model import CandidateNode, NodeScope, NodeSnapshot
from fairlead.engine.placement.shapes import UnitShape
from fairlead.engine.placement.value.fragmentation import FragmentationScore
from fairlead.engine.placement.value.scarce import NOTHING


class Score(NamedTuple):
    """The score of a node for one unit of a shape: low is better, and the name makes it total, so decisions repeat."""

    avoided: bool
    rank: int  # of the alternatives, summed over requests
    preference: int  # negative
    scarce: int  # taken of scarce requests
    waste: int  # how much less what is left is worth; of MIG devices that were cut beforehand, how large they are
    loss: int
    left: int  # devices left over; with `spread` negative
    node: str


if TYPE_CHECKING:
    Entry = tuple[Score, int, int, CandidateNode]
    """Score, the node's stamp when it was made, its number, node."""
    Failure = tuple[Score, int, int, CandidateNode, SearchResult]
    """As an entry, with what the allocator found instead of devices."""


class ScoredNodes:
    """The heap of one shape over the nodes of a scope."""

    def __init__(
        self,
        shape: UnitShape,
        node_snapshot: NodeSnapshot,
        ledger: Ledger,
        scope: NodeScope,
        fragmentation: FragmentationScore | None,
        fit: DeviceFit,
    ) -> None:
        """`fit`: of the shape's claims, in the same ledger."""
        self.shape = shape
        self.node_snapshot = node_snapshot
        self.ledger = ledger
        self.fit = fit
        self.spread = scope.spread
        self.avoid = scope.avoid
        self.refused = scope.refused
        self.fragmentation = None if scope.spread else fragmentation
        self.scarce = NOTHING if self.fragmentation is None else self.fragmentation.scarce
        self.domain = None if scope.among is None else frozenset(scope.among.nodes)
        self.preferring = [needs for needs in shape.needs if needs.preferred]
        self._stamp: dict[CandidateNode, int] = {}
        self._heap: list[Entry] = []
        self._pushed = 0
        self._failed: list[Failure] = []  # a heap, of this decision
        self._last: Entry | None = None  # what `best` returned
        self._cursor = -1
        self._epoch: tuple[int, ...] = ()  # of the counts of neighbours, where the shape has facets
        self._catch_up()

    # --------------------------------------------------------------------------------------------------- the score

    def score(self, node: CandidateNode, spare: Spare | None = None) -> Score | None:
        """None when the node certainly does not take the shape now. `spare`: its devices, where they are known."""
        if not self.takes(node):
            return None
        info = node.info
        if spare is None:
            spare = self.fit.spare(node)
        if spare is None:
            return None
        rank, left, size = spare
        preference = sum([info.preference(need) for need in self.preferring])
        taken = waste = loss = 0
        if size and not self.spread:
            waste = size
        elif self.fragmentation is not None:
            taken, waste, loss = self.fragmentation.cost(self.shape, node, self.scarce)
        left = -left if self.spread else left
        return Score(info.name in self.avoid, rank, -preference, taken, waste, loss, left, node.name)

    def takes(self, node: CandidateNode) -> bool:
        """False when the node certainly does not take the shape's pods now, whatever devices it has."""
        info = node.info
        needs = self.shape.needs
        if len(needs) == 1:
            if self.ledger.lacks_room(info, needs[0]):
                return False
            return not self.shape.facets or self.ledger.neighbours_refuse(info, self.shape.facets[0]) is None
        return self._takes_all(info)

    def _takes_all(self, info: NodeInfo) -> bool:
        added = 0
        for needs in self.shape.needs:
            if self.ledger.lacks_room(info, needs):
                break
            self.ledger.count_pod(info, needs, 1)
            added += 1
        for needs in self.shape.needs[:added]:
            self.ledger.count_pod(info, needs, -1)
        # What members of one unit need of one another shows when they are put there.
        beside = any(self.ledger.neighbours_refuse(info, facet) is not None for facet in self.shape.facets[:1])
        return added == len(self.shape.needs) and not beside

    # ---------------------------------------------------------------------------------------------------- the heap

    def best(self, skip: frozenset[CandidateNode] | set[CandidateNode] = frozenset()) -> CandidateNode | None:
        """The best node now, without those in `skip`; None when none is left."""
        self._catch_up()
        skipped: list[Entry] = []
        found: CandidateNode | None = None
        while self._heap:
            entry = self._heap[0]
            node = entry[3]
            if entry[1] != self._stamp.get(node, 0):
                heapq.heappop(self._heap)
                continue
            if node in skip:
                skipped.append(heapq.heappop(self._heap))
                continue
            found, self._last = node, entry
            break
        for entry in skipped:
            heapq.heappush(self._heap, entry)
        return found

    def drop(self, node: CandidateNode) -> None:
        """Leave the node out until it changes."""
        self._stamp[node] = self._stamp.get(node, 0) + 1

    def failed(self, node: CandidateNode, found: SearchResult, *, undecided: bool) -> None:
        """The allocator found nothing on the node that `best` just returned: leave it out until it changes, unless `undecided`."""
        last = self._last
        if not undecided:
            self.drop(node)
        if last is not None and last[3] is node:
            self._pushed += 1
            heapq.heappush(self._failed, (last[0], self._stamp.get(node, 0), self._pushed, node, found))

    def closest(self) -> tuple[CandidateNode, SearchResult] | None:
        """The best of the nodes on which the allocator found nothing and which have not changed since, and what it lacked.

        Also of those that were tried for a gang before that asks for the same: what is said of a gang does not depend on others.
        """
        while self._failed and self._failed[0][1] != self._stamp.get(self._failed[0][3], 0):
            heapq.heappop(self._failed)
        return self._failed[0][3:] if self._failed else None

    def restore(self, node: CandidateNode) -> None:
        """Undo `drop` and `failed`: a new decision begins."""
        self._failed.clear()
        if self.eligible(node):
            self.fit.catch_up()
            self._push(node)

    def ranked(self) -> list[CandidateNode]:
        """All nodes that might take the shape now, best first."""
        self._catch_up()
        entries = sorted(self._heap, key=itemgetter(0))
        return [node for _, stamp, _, node in entries if stamp == self._stamp.get(node, 0)]

    @property
    def among(self) -> list[CandidateNode]:
        """The nodes that may take the shape when they have room, in name order."""
        nodes = self.node_snapshot.all
        return [node for node in nodes if self.eligible(node)]

    def eligible(self, node: CandidateNode) -> bool:
        """Whether the node may take the shape when it has room."""
        return (
            (self.domain is None or node in self.domain)
            and self.node_snapshot.by_name.get(node.name) is node
            and node.name not in self.refused
            and not self._never(node)
        )

    def _never(self, node: CandidateNode) -> bool:
        """Whether the node does not take the shape whatever runs on it."""
        info = node.info
        for needs in self.shape.needs:
            if info.refuses(needs) is not None:
                return True
        bound = self.shape.bound
        return bool(bound) and any(not node_selector.matches(selector, info.name, info.labels) for selector in bound)

    def _push(self, node: CandidateNode) -> None:
        """Score the node again; its earlier entries no longer count."""
        stamp = self._stamp[node] = self._stamp.get(node, 0) + 1
        spare = self.fit.nodes.get(node)
        score = None if spare is None else self.score(node, spare)
        if score is not None:
            heapq.heappush(self._heap, self._entry(score, stamp, node))

    def _entry(self, score: Score, stamp: int, node: CandidateNode) -> Entry:
        """Numbered, since a node that came back under its name can have the score and the stamp of the one that went."""
        self._pushed += 1
        return (score, stamp, self._pushed, node)

    def _catch_up(self) -> None:
        """Score again the nodes that changed since the last time; all of them where devices are network-attached."""
        log = self.node_snapshot.log
        neighbours = self.ledger.neighbours
        if self.fragmentation is not None and self.fragmentation.scarce != self.scarce:
            self._other_scarce(self.fragmentation)
        if self.shape.facets and neighbours is not None:
            epoch = neighbours.epoch(self.shape.facets)
            if epoch != self._epoch:  # a pod on one node changes what others take
                self._epoch, self._cursor = epoch, log.cursor
                self.fit.catch_up()
                self._rebuild()
                return
        if self._cursor == log.cursor:
            return
        self.fit.catch_up()
        changed: Iterable[CandidateNode] | None = log.since(self._cursor)
        self._cursor = log.cursor
        if changed is None or self.node_snapshot.has_network_attached:
            self._rebuild()
            return
        for node in dict.fromkeys(changed):
            if self.eligible(node):
                self._push(node)
            else:
                self.drop(node)
        if len(self._heap) > 64 + 4 * len(self.node_snapshot.all):
            self._heap = [entry for entry in self._heap if entry[1] == self._stamp.get(entry[3], 0)]
            heapq.heapify(self._heap)

    def _other_scarce(self, fragmentation: FragmentationScore) -> None:
        """Other classes are scarce than when nodes were scored: score again those that have a place for one that changed.

        They are few, for that is what makes a class scarce. Of nodes without a place nothing is taken.
        """
        before, self.scarce = self.scarce, fragmentation.scarce
        if before.epoch != self.scarce.epoch:
            self._cursor = -1
            return
        self.fit.catch_up()
        for node in fragmentation.ahead.with_places(before.classes ^ self.scarce.classes):
            if self.eligible(node):
                self._push(node)

    def _rebuild(self) -> None:
        self._stamp = {}
        self._heap = []
        self._failed.clear()
        for node, spare in self.fit.nodes.items():
            if self.eligible(node):
                score = self.score(node, spare)
                if score is not None:
                    self._heap.append(self._entry(score, 0, node))
        heapq.heapify(self._heap)


HEAPS_MIN = 16  # heaps kept in any case; each is as long as there are nodes
HEAP_ENTRIES_MAX = 4_000_000  # of all heaps together


class ScoredNodesCache:
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
