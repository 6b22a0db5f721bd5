"""Which demand classes are scarce: those for which few places are left, beside how many of them will come.

Best fit keeps nodes whole by chance; the value of leftovers (`leftover`) sees what a placement spoils on average. Neither sees
that a request for eight devices has nine places left and ten of its kind still to come, or that the last devices of a model go to pods
that could run on any. Here the places of each class (`workload`) are counted on the nodes as they are. A class is scarce when there
are places for some, and no more than will likely be wanted until the cluster is full: the number expected from the mix and half a standard
deviation. What a placement takes of scarce classes counts before all else of fragmentation.

A pure function of mix, nodes and ledger: `look` follows the nodes' log, and finds what a count of all nodes would find.
Example: of 1,000 pods 10 requested eight devices, and 400 more pods will fill the cluster: 4 for eight devices are expected, 4 + 0.5 * 2.4
are likely the most. On seven empty nodes they are not scarce. On six they are: a pod with one device then takes it from a
node that is no longer whole, even where that wastes more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, log
from typing import NamedTuple

from fairlead.engine.placement.model import CandidateNode
from fairlead.engine.placement.value.leftover import MEMORY_MAX, WHOLE, Leftovers, UsualRequest
from fairlead.engine.placement.value.node_leftovers import NodeLeftovers
from fairlead.engine.placement.value.workload import WEIGHT, DemandClass, DemandClasses, Pace, RequestKind, Shares

STEP = 2.0  # what is expected is rounded up to powers of this: scarce classes change seldom, and with them the scores of nodes


class Scarce(NamedTuple):
    """Which classes are scarce, by their place among the classes; `epoch` grows whenever there are other classes."""

    epoch: int
    classes: frozenset[int]


NOTHING = Scarce(0, frozenset())


class _Node(NamedTuple):
    sort: _Sort
    places: tuple[int, ...]  # for each class, in thousandths of thousandths of a device
    free: int
    cpu: int


class ScarceRequests:
    """The classes on the nodes as they are. `look` at the start of a decision; then `taken` for each score."""

    def __init__(self, kinds: Sequence[RequestKind], leftovers: NodeLeftovers) -> None:
        self.kinds = tuple(kinds)
        self.classes: tuple[DemandClass, ...] = ()
        self.places: list[int] = []
        self.free = 0
        self.cpu = 0
        self._of_kinds = DemandClasses(kinds)
        self._leftovers = leftovers
        self._shares: dict[CandidateNode, tuple[object, object, Shares]] = {}
        self._same: dict[Shares, Shares] = {}  # one object for nodes of one sort
        self._sorts: dict[Shares, _Sort] = {}
        self._numbers: dict[Shares, int] = {}
        self._nodes: dict[CandidateNode, _Node] = {}
        self._cursor = -1
        self._epoch = 0
        self._scarce = NOTHING

    # -------------------------------------------------------------------------------------------------- the cluster

    def look(self, pace: Pace) -> Scarce:
        self._follow()
        arrivals = self.expected(pace)
        scarce = Scarce(
            self._epoch,
            frozenset(
                index
                for index, (each, places) in enumerate(zip(self.classes, self.places, strict=True))
                if 0 < places < WEIGHT * each.wants(arrivals, pace.seen)
            ),
        )
        if scarce != self._scarce:
            self._scarce = scarce
        return self._scarce

    def expected(self, pace: Pace) -> float:
        """How many pods will request devices until devices or CPU are used up, rounded up to a power of STEP; at least 1."""
        arrivals = self.free / pace.size if pace.size else 0.0
        if pace.cpu:
            arrivals = min(arrivals, self.cpu / pace.cpu)
        return STEP ** ceil(log(arrivals, STEP)) if arrivals > 1 else 1.0

    def with_places(self, classes: frozenset[int]) -> list[CandidateNode]:
        """The nodes that had a place for any of them at the last `look`."""
        return [node for node, state in self._nodes.items() if any(map(state.places.__getitem__, classes))]

    def _follow(self) -> None:
        """Count again on the nodes that changed; on all of them when there is another sort of node, or one less."""
        snapshot = self._leftovers.node_snapshot
        changed: Iterable[CandidateNode] | None = snapshot.log.since(self._cursor)
        self._cursor = snapshot.log.cursor
        if changed is None:
            self._forget()
            changed = snapshot.all
        sorts: dict[CandidateNode, Shares | None] = {node: self._shares_of(node) for node in dict.fromkeys(changed)}
        for node, shares in sorts.items():
            before = self._nodes.get(node)
            if before is not None:
                self._numbers[before.sort.shares] -= 1
            if shares is not None:
                self._numbers[shares] = self._numbers.get(shares, 0) + 1
        present = {shares: number for shares, number in self._numbers.items() if number}
        if present.keys() != self._sorts.keys():
            sorts = {**{node: state.sort.shares for node, state in self._nodes.items()}, **sorts}
            self._renew(present)
        for node, shares in sorts.items():
            self._count(node, shares)

    def _forget(self) -> None:
        self._shares.clear()
        self._same.clear()
        self._numbers.clear()
        self._count_none()

    def _renew(self, present: dict[Shares, int]) -> None:
        """The classes for these sorts of node; nothing is counted yet."""
        self._epoch += 1
        self._numbers = present
        self.classes = self._of_kinds.on(present)
        self._sorts = {shares: _Sort(self.kinds, self.classes, shares) for shares in present}
        self._count_none()

    def _count_none(self) -> None:
        self._nodes.clear()
        self.places = [0] * len(self.classes)
        self.free = self.cpu = 0

    def _count(self, node: CandidateNode, shares: Shares | None) -> None:
        nothing = (0,) * len(self.classes)
        before = self._nodes.pop(node, None)
        old = nothing
        if before is not None:
            old = before.places
            self.free -= before.free
            self.cpu -= before.cpu
        new = nothing
        if shares is not None:
            leftovers, cpu = self._leftovers.state(node)
            sort = self._sorts[shares]
            new = sort.places(leftovers, cpu)
            now = self._nodes[node] = _Node(sort, new, sum(leftovers), max(cpu, 0))
            self.free += now.free
            self.cpu += now.cpu
        if old != new:
            self.places = [total + more - less for total, more, less in zip(self.places, new, old, strict=True)]

    def _shares_of(self, node: CandidateNode) -> Shares | None:
        """None: a node that went, takes no pods, or has no devices."""
        if self._leftovers.node_snapshot.by_name.get(node.name) is not node:
            self._shares.pop(node, None)
            return None
        if not node.info.ready or node.info.unschedulable or not self._leftovers.devices(node):
            return None
        known = self._shares.get(node)
        if known is None or known[0] is not node.devices or known[1] is not node.info:
            shares = tuple([self._share(node, kind) for kind in self.kinds])
            known = self._shares[node] = (node.devices, node.info, self._same.setdefault(shares, shares))
        return known[2]

    def _share(self, node: CandidateNode, kind: RequestKind) -> int:
        if kind.request is None:
            return WHOLE
        if kind.needs is not None and node.info.refuses(kind.needs) is not None:
            return 0
        return self._leftovers.share(node, kind.request)

    # ------------------------------------------------------------------------------------------------------ one node

    def taken(
        self,
        node: CandidateNode,
        leftovers: Leftovers,
        cpu: int,
        count: int,
        share: int,
        wanted_cpu: int,
        leftover: int,
        scarce: Scarce,
    ) -> int:
        """What a placement takes there from scarce classes, in thousandths of thousandths of a device.

        `count` devices of which `share` thousandths are taken; one device: of that with so much `leftover`, 0: the one with most.
        """
        state = self._nodes.get(node)
        return 0 if state is None else state.sort.taken(leftovers, cpu, count, share, wanted_cpu, leftover, scarce)


class _Sort:
    """The classes on nodes of one sort; remembers by what is left of devices and CPU, for nodes in a like state are many."""

    def __init__(self, kinds: Sequence[RequestKind], classes: Sequence[DemandClass], shares: Shares) -> None:
        self.shares = shares
        self._number = len(classes)
        self._classes = [
            (index, counted)
            for index, each in enumerate(classes)
            if (
                counted := [
                    (UsualRequest(kinds[kind].count, shares[kind], kinds[kind].cpu, kinds[kind].part), weight * size)
                    for kind, weight, size in each.counted
                    if shares[kind]
                ]
            )
        ]
        self._scarce = NOTHING
        self._watched: list[tuple[UsualRequest, int]] = []  # of the classes that are scarce
        self._places: dict[tuple[Leftovers, int], tuple[int, ...]] = {}
        self._taken: dict[tuple[Leftovers, int, int, int, int, int], int] = {}

    def places(self, leftovers: Leftovers, cpu: int) -> tuple[int, ...]:
        found = self._places.get((leftovers, cpu))
        if found is None:
            if len(self._places) >= MEMORY_MAX:
                self._places.clear()
            places = [0] * self._number
            for index, counted in self._classes:
                places[index] = _worth_of(counted, leftovers, cpu)
            found = self._places[leftovers, cpu] = tuple(places)
        return found

    def taken(
        self, leftovers: Leftovers, cpu: int, count: int, share: int, wanted_cpu: int, leftover: int, scarce: Scarce
    ) -> int:
        """What is taken of all scarce classes together."""
        if scarce is not self._scarce:
            self._scarce = scarce
            self._watched = [each for index, counted in self._classes if index in scarce.classes for each in counted]
            self._taken.clear()
        if not self._watched:
            return 0
        key = (leftovers, cpu, count, share, wanted_cpu, leftover)
        found = self._taken.get(key)
        if found is None:
            if len(self._taken) >= MEMORY_MAX:
                self._taken.clear()
            before = sum(map(self.places(leftovers, cpu).__getitem__, scarce.classes))
            after = (
                _worth_of(self._watched, _after(leftovers, count, share, leftover), cpu - wanted_cpu) if before else 0
            )
            found = self._taken[key] = before - after
        return found


def _worth_of(counted: Sequence[tuple[UsualRequest, int]], leftovers: Leftovers, cpu: int) -> int:
    return 0 if cpu < 0 else sum([request.copies(leftovers, cpu) * worth for request, worth in counted])


def _after(leftovers: Leftovers, count: int, share: int, leftover: int) -> Leftovers:
    if not count:
        return leftovers
    left = list(leftovers)
    if count == 1 and leftover:
        left[left.index(leftover)] -= share
    else:
        left[-count:] = [each - share for each in left[-count:]]  # from those with most left
    left.sort()
    return tuple(left)
