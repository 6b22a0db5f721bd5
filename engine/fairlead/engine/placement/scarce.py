"""Which requests for several devices are scarce: those for which few places are left, beside how many of them will come.

Best fit keeps nodes whole by chance; the value of leftovers (`leftover`) sees what a placement spoils on average. Neither sees
that a request for eight devices has nine places left and ten of its kind still to come. Here the places are counted: of each
kind of request for several devices, how many fit on the nodes as they are. A kind is scarce when that is some, and no more
than will likely be asked for until the cluster is full: the number expected from the mix and half a standard deviation. Kinds for as many
devices and more CPU take the same places, so they are expected with it. What a placement takes of scarce kinds counts before all else of
fragmentation.

Kinds are those that were seen, and all devices of a node at once, for each kind of node: requests that were not made before come, too, as
often as new kinds came before (Good and Turing's estimate).
A pure function of mix, nodes and ledger: `look` follows the nodes' log, and finds what a count of all nodes would find.
Example: of 1,000 pods 10 requested eight devices, and 400 more pods will fill the cluster: 4 for eight devices are expected, 4 + 0.5 * 2.4
are likely the most. On seven empty nodes they are not scarce. On six they are: a pod with one device then takes it from a
node that is no longer whole, even where that wastes more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log, sqrt
from typing import TYPE_CHECKING, NamedTuple

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.placement.leftover import MEMORY_MAX, UsualRequest
from fairlead.engine.placement.prices import WHOLE
from fairlead.engine.placement.workload import cpu_of
from fairlead.engine.types.pod_needs import Constraints

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairlead.engine.allocator.requests import CompiledRequest, Compiler
    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.leftover import Rooms
    from fairlead.engine.placement.node_rooms import NodeRooms
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.engine.types.workload import Workload
    from fairlead.kube import resource

LARGE_MAX = 64  # kinds of request for several devices that are counted
SHAPES_MAX = 32  # and kinds of node whose devices are requested all at once
DEVIATIONS = 0.5  # how many standard deviations more than expected may come, before places are short
STEP = 2.0  # what is expected is rounded up to powers of this: scarce kinds change seldom, and with them the scores of nodes
Scarce = frozenset[int]
NOTHING: Scarce = frozenset()


@dataclass(frozen=True, slots=True)
class LargeRequest:
    """A kind of request for several devices. `request` None: devices of any kind, whole ones; `needs` None: on any node."""

    request: CompiledRequest | None
    needs: PodNeeds | None
    count: int
    cpu: int  # thousandths of a core
    part: float  # of all pods that request devices

    def takes_places_of(self, other: LargeRequest) -> bool:
        """Whether each of this kind takes a place of the other: as many devices of the same, no less CPU, not on more nodes.

        Of a new kind's places only new kinds are counted: else all kinds of a cluster, whatever model they ask for, would keep any
        node whole, and pods that could go there would take the devices of rare models.
        """
        if self.count != other.count or self.cpu < other.cpu:
            return False
        if other.request is None or other.needs is None:
            return self.request is None
        if self.request is None or self.needs is None:  # a new kind, taken to be one without conditions
            return not other.request.filter.selectors and other.needs.constraints == Constraints()
        mine, its = self.request.filter, other.request.filter
        return (
            set(its.selectors) <= set(mine.selectors)
            and replace(mine, selectors=its.selectors) == its
            and self.needs.constraints == other.needs.constraints
        )


class Pace(NamedTuple):
    """What a pod that requests devices takes on average: thousandths of a device, and CPU with that of pods without devices.

    `seen`: of how many such pods that is known.
    """

    size: float
    cpu: float
    seen: int = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """What a mix says of large requests.

    `new`: how often a pod of a new kind comes; `cpu`: thousandths of a core for each pod that requests devices, with those of pods
    that request none; `cpu_per_device`: the most that a kind of pod requests beside each of its devices; `pods`: how many were seen.
    """

    requests: tuple[LargeRequest, ...]
    new: float
    cpu: float
    cpu_per_device: float
    pods: int

    @classmethod
    def of(cls, workload: Workload, compiler: Compiler) -> Seen:
        pods = workload.pods
        if not pods:
            return cls((), 0.0, 0.0, 0.0, 1)
        kinds: dict[tuple[object, int, int, object], LargeRequest] = {}
        most_cpu = 0.0
        for demand in (*workload.demands, *workload.rare):
            request = single_request(demand.spec, compiler)
            if request is None or not request.count:
                continue
            cpu, part = cpu_of(demand.needs), demand.count / pods
            most_cpu = max(most_cpu, cpu / request.count)
            if request.count > 1:
                key = (request.filter, request.count, cpu, demand.needs.constraints)
                if key in kinds:
                    part += kinds[key].part
                kinds[key] = LargeRequest(request, demand.needs, request.count, cpu, part)
        return cls(tuple(kinds.values())[:LARGE_MAX], max(workload.once, 1) / pods, workload.cpu / pods, most_cpu, pods)

    def large(self, shapes: Sequence[tuple[int, int]]) -> tuple[LargeRequest, ...]:
        """With all devices of a node, for nodes with so many devices and so much CPU (thousandths of a core)."""
        if not self.new:
            return self.requests
        whole: dict[tuple[int, int], float] = {}
        for count, cpu in shapes:
            key = (count, min(cpu, ceil(count * self.cpu_per_device)))
            whole[key] = whole.get(key, 0.0) + self.new / len(shapes)
        largest = sorted(whole.items(), reverse=True)[:SHAPES_MAX]
        return (*self.requests, *(LargeRequest(None, None, count, cpu, part) for (count, cpu), part in largest))


def single_request(spec: resource.ResourceClaimSpec, compiler: Compiler) -> CompiledRequest | None:
    """What the claim requests, if that is one request for alike devices; None otherwise, and for an invalid one."""
    try:
        claim = compiler.compile_spec(spec)
    except InvalidClaimError:
        return None
    return claim.alternatives[0][0] if claim.plain else None


def likely_most(expected: float, ahead: float) -> float:
    """How many requests for places of a kind may come: those expected, and DEVIATIONS standard deviations.

    Arrivals are Poisson, their rate known from a count only: for `ahead` times as many pods as were counted, the variance is
    `1 + ahead` times what is expected (negative binomial).
    """
    return expected + DEVIATIONS * sqrt(expected * (1 + ahead))


class _Node(NamedTuple):
    copies: tuple[int, ...]
    free: int
    cpu: int


class ScarceRequests:
    """The large requests on the nodes as they are. `look` at the start of a decision; then `taken` for each score."""

    def __init__(self, large: Sequence[LargeRequest], rooms: NodeRooms) -> None:
        self.large = tuple(large)
        self._parts = [sum(each.part for each in large if each.takes_places_of(request)) for request in large]
        self._rooms = rooms
        self._kinds: dict[CandidateNode, tuple[object, object, _Kinds]] = {}
        self._known: dict[tuple[int, ...], _Kinds] = {}
        self._nodes: dict[CandidateNode, _Node] = {}
        self._cursor = -1
        self.copies = [0] * len(self.large)
        self.free = 0
        self.cpu = 0

    # -------------------------------------------------------------------------------------------------- the cluster

    def look(self, pace: Pace) -> Scarce:
        """Which kinds are scarce now, by their place in `large`."""
        self._follow()
        arrivals = self.expected(pace)
        return frozenset(
            index
            for index, (part, copies) in enumerate(zip(self._parts, self.copies, strict=True))
            if 0 < copies < 1 + likely_most(part * arrivals, arrivals / pace.seen)
        )

    def expected(self, pace: Pace) -> float:
        """How many pods will request devices until devices or CPU are used up, rounded up to a power of STEP; at least 1."""
        arrivals = self.free / pace.size if pace.size else 0.0
        if pace.cpu:
            arrivals = min(arrivals, self.cpu / pace.cpu)
        return STEP ** ceil(log(arrivals, STEP)) if arrivals > 1 else 1.0

    def _follow(self) -> None:
        """Count again on the nodes that changed."""
        snapshot = self._rooms.node_snapshot
        changed: Iterable[CandidateNode] | None = snapshot.log.since(self._cursor)
        self._cursor = snapshot.log.cursor
        if changed is None:
            self._nodes.clear()
            self._kinds.clear()
            self.copies = [0] * len(self.large)
            self.free = self.cpu = 0
            changed = snapshot.all
        for node in dict.fromkeys(changed):
            before = self._nodes.pop(node, None)
            now = self._count(node) if snapshot.by_name.get(node.name) is node else None
            if now is not None:
                self._nodes[node] = now
            else:
                self._kinds.pop(node, None)
            if before == now:
                continue
            old, new = before or _Node((0,) * len(self.large), 0, 0), now or _Node((0,) * len(self.large), 0, 0)
            self.free += new.free - old.free
            self.cpu += new.cpu - old.cpu
            if old.copies != new.copies:
                self.copies = [
                    total + more - less for total, more, less in zip(self.copies, new.copies, old.copies, strict=True)
                ]

    def _count(self, node: CandidateNode) -> _Node | None:
        """None: a node that takes no pods, or has no devices."""
        if not node.info.ready or node.info.unschedulable or not self._rooms.devices(node):
            return None
        rooms, cpu = self._rooms.state(node)
        return _Node(self._of(node).copies(rooms, cpu), sum(rooms), max(cpu, 0))

    def _of(self, node: CandidateNode) -> _Kinds:
        known = self._kinds.get(node)
        if known is None or known[0] is not node.devices or known[1] is not node.info:
            shares = tuple([self._share(node, request) for request in self.large])
            kinds = self._known.get(shares)
            if kinds is None:
                kinds = self._known[shares] = _Kinds(
                    [
                        (index, UsualRequest(request.count, share, request.cpu, request.part))
                        for index, (request, share) in enumerate(zip(self.large, shares, strict=True))
                        if share
                    ],
                    len(self.large),
                )
            known = self._kinds[node] = (node.devices, node.info, kinds)
        return known[2]

    def _share(self, node: CandidateNode, large: LargeRequest) -> int:
        if large.request is None:
            return WHOLE
        if large.needs is not None and node.info.refuses(large.needs) is not None:
            return 0
        return self._rooms.share(node, large.request)

    # ------------------------------------------------------------------------------------------------------ one node

    def taken(self, node: CandidateNode, *, count: int, share: int, wanted_cpu: int, room: int, scarce: Scarce) -> int:
        """Thousandths of devices for scarce requests that a placement takes there: places lost times their size.

        `count` devices of which `share` thousandths are taken; one device: of that with so much `room`, 0: the one with most.
        """
        rooms, cpu = self._rooms.state(node)
        lost = self._of(node).lost(rooms, cpu, count, share, wanted_cpu, room)
        return sum([size for index, size in lost if index in scarce]) if lost else 0


class _Kinds:
    """The large requests on nodes of one kind, by their place; remembers by room and CPU, for nodes in a like state are many."""

    def __init__(self, requests: list[tuple[int, UsualRequest]], number: int) -> None:
        self._requests = requests
        self._number = number
        self._copies: dict[tuple[Rooms, int], tuple[int, ...]] = {}
        self._lost: dict[tuple[Rooms, int, int, int, int, int], tuple[tuple[int, int], ...]] = {}

    def copies(self, rooms: Rooms, cpu: int) -> tuple[int, ...]:
        """How many of each fit."""
        found = self._copies.get((rooms, cpu))
        if found is None:
            if len(self._copies) >= MEMORY_MAX:
                self._copies.clear()
            fitting = [0] * self._number
            if cpu >= 0:
                for index, request in self._requests:
                    fitting[index] = request.copies(rooms, cpu)
            found = self._copies[rooms, cpu] = tuple(fitting)
        return found

    def lost(
        self, rooms: Rooms, cpu: int, count: int, share: int, wanted_cpu: int, room: int
    ) -> tuple[tuple[int, int], ...]:
        """Place and thousandths of the requests of which fewer fit afterwards."""
        key = (rooms, cpu, count, share, wanted_cpu, room)
        found = self._lost.get(key)
        if found is None:
            if len(self._lost) >= MEMORY_MAX:
                self._lost.clear()
            before = self.copies(rooms, cpu)
            after = self.copies(_after(rooms, count, share, room), cpu - wanted_cpu)
            found = self._lost[key] = tuple(
                (index, (before[index] - after[index]) * request.size)
                for index, request in self._requests
                if after[index] < before[index]
            )
        return found


def _after(rooms: Rooms, count: int, share: int, room: int) -> Rooms:
    if not count:
        return rooms
    left = list(rooms)
    if count == 1 and room:
        left[left.index(room)] -= share
    else:
        left[-count:] = [each - share for each in left[-count:]]  # from those with the most room
    left.sort()
    return tuple(left)
