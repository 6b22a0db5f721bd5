"""What a mix says of requests still to come, in demand classes: kinds of request that compete for the same places.

Kinds are those that were seen, and all devices of a node at once, for each kind of node: requests that were not made before come, too, as
often as new kinds came before (Good and Turing's estimate). Two sorts of class:
- for each kind of request for several devices: it, and kinds for as many devices and more CPU, which take the same places;
- for each set of nodes that is all that some kind may use: every kind that can go nowhere else, whatever it asks for there. Devices of
  one model are kept for those that name it, and nodes without a taint for those that do not tolerate it.
Compare: protection levels of nested fare classes (Littlewood 1972): a place is sold cheaply only while more are left than the dearer
classes are likely to want. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import TYPE_CHECKING, NamedTuple

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.placement.value.workload import cpu_of
from fairlead.engine.types.pod_needs import Constraints

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fairlead.engine.allocator.requests import CompiledRequest, Compiler
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.engine.types.workload import Workload
    from fairlead.kube import resource

SHAPES_MAX = 32  # kinds of node whose devices are requested all at once
SETS_MAX = 32  # sets of nodes that have a class, those with most demand
COUNTED_MAX = 8  # kinds of a class by which its places are counted, those with most demand
WEIGHT = 1000  # together of the kinds by which places are counted
DEVIATIONS = 0.5  # how many standard deviations more than expected may come, before places are short
Shares = tuple[int, ...]  # thousandths of a device that each kind takes on nodes of one sort; 0: it can't run there


@dataclass(frozen=True, slots=True)
class RequestKind:
    """`request` None: whole devices of any kind; `needs` None: on any node."""

    request: CompiledRequest | None
    needs: PodNeeds | None
    count: int
    cpu: int  # thousandths of a core
    part: float  # of all pods that request devices

    def takes_places_of(self, other: RequestKind) -> bool:
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
    """What a mix says of requests.

    `new`: how often a pod of a new kind comes; `cpu`: thousandths of a core for each pod that requests devices, with those of pods
    that request none; `cpu_per_device`: the most that a kind of pod requests beside each of its devices; `pods`: how many were seen.
    """

    kinds: tuple[RequestKind, ...]
    new: float
    cpu: float
    cpu_per_device: float
    pods: int

    @classmethod
    def of(cls, workload: Workload, compiler: Compiler) -> Seen:
        pods = workload.pods
        if not pods:
            return cls((), 0.0, 0.0, 0.0, 1)
        kinds: dict[tuple[object, int, int, object], RequestKind] = {}
        most_cpu = 0.0
        for demand in (*workload.demands, *workload.rare):
            request = single_request(demand.spec, compiler)
            if request is None or not request.count:
                continue
            cpu, part = cpu_of(demand.needs), demand.count / pods
            most_cpu = max(most_cpu, cpu / request.count)
            key = (request.filter, request.count, cpu, demand.needs.constraints)
            if key in kinds:
                part += kinds[key].part
            kinds[key] = RequestKind(request, demand.needs, request.count, cpu, part)
        return cls(tuple(kinds.values()), max(workload.once, 1) / pods, workload.cpu / pods, most_cpu, pods)

    def with_new(self, shapes: Sequence[tuple[int, int]]) -> tuple[RequestKind, ...]:
        """With all devices of a node, for nodes with so many devices and so much CPU (thousandths of a core)."""
        if not self.new:
            return self.kinds
        whole: dict[tuple[int, int], float] = {}
        for count, cpu in shapes:
            key = (count, min(cpu, ceil(count * self.cpu_per_device)))
            whole[key] = whole.get(key, 0.0) + self.new / len(shapes)
        largest = sorted(whole.items(), reverse=True)[:SHAPES_MAX]
        return (*self.kinds, *(RequestKind(None, None, count, cpu, part) for (count, cpu), part in largest))


def single_request(spec: resource.ResourceClaimSpec, compiler: Compiler) -> CompiledRequest | None:
    """What the claim requests, if that is one request for alike devices; None otherwise, and for an invalid one."""
    try:
        claim = compiler.compile_spec(spec)
    except InvalidClaimError:
        return None
    return claim.alternatives[0][0] if claim.plain else None


class Counted(NamedTuple):
    """A kind by which places of a class are counted: each is its weight times its size (thousandths of a device)."""

    kind: int  # its place among the kinds
    weight: int
    size: int


class DemandClass(NamedTuple):
    """What of a mix competes for the same places. Sizes are thousandths of a device."""

    counted: tuple[Counted, ...]
    mean: float  # what a pod with devices requests of it on average
    square: float  # and its square
    largest: int

    def wants(self, arrivals: float, seen: int) -> float:
        """How much is likely the most that so many more pods want, and one request more.

        Arrivals are Poisson, their rate known from a count only: for `ahead` times as many pods as were counted, the variance is
        `1 + ahead` times what is expected (negative binomial).
        """
        return self.largest + arrivals * self.mean + DEVIATIONS * sqrt(arrivals * self.square * (1 + arrivals / seen))


class DemandClasses:
    """The classes of some kinds of demand, on whatever nodes there are."""

    def __init__(self, kinds: Sequence[RequestKind]) -> None:
        self.kinds = tuple(kinds)
        self._several = [
            (index, sum(each.part for each in kinds if each.takes_places_of(kind)))
            for index, kind in enumerate(kinds)
            if kind.count > 1
        ]

    def on(self, nodes: Collection[Shares]) -> tuple[DemandClass, ...]:
        """On nodes of these sorts. A kind's size is its size where it takes most."""
        if not nodes:
            return ()
        kinds = self.kinds
        nodes = sorted(nodes)
        sizes = [kind.count * max([shares[index] for shares in nodes]) for index, kind in enumerate(kinds)]
        several = [
            DemandClass(
                (Counted(index, WEIGHT, sizes[index]),), part * sizes[index], part * sizes[index] ** 2, sizes[index]
            )
            for index, part in self._several
        ]
        reach = [
            sum([1 << place for place, shares in enumerate(nodes) if shares[index]]) for index in range(len(kinds))
        ]
        bound: list[tuple[float, int, DemandClass]] = []
        for reached in set(reach) - {0, (1 << len(nodes)) - 1}:
            own = [index for index in range(len(kinds)) if reach[index] and not reach[index] & ~reached]
            found = self._together(own, sizes)
            bound.append((-found.mean, reached, found))
        return (*several, *(found for _, _, found in sorted(bound)[:SETS_MAX]))

    def _together(self, indices: list[int], sizes: list[int]) -> DemandClass:
        """All requests of these kinds."""
        demand = {index: self.kinds[index].part * sizes[index] for index in indices}
        most = sorted(indices, key=lambda index: (-demand[index], index))[:COUNTED_MAX]
        total = sum([demand[index] for index in most])
        return DemandClass(
            tuple([Counted(index, max(1, round(WEIGHT * demand[index] / total)), sizes[index]) for index in most]),
            sum(demand.values()),
            sum([demand[index] * sizes[index] for index in indices]),
            max([sizes[index] for index in indices]),
        )
