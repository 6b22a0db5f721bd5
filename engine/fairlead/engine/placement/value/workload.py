"""The mix of usual requests: counted from pods that arrived, and read as classes of demand that compete for the same places.

"Least loss of future requests" takes the future to be like the past: the mix comes from gangs that arrived, never from those still to come.
A new mix is made only when `GROWTH` times as many pods were seen as at the last one, since each makes placement score every
node again; from `REMEMBERED` pods on, the older ones count less and less. Anybody's pods are counted: of very many kinds those that
came once are forgotten, and a mix has only so many selectors.
Kinds of demand are those that were seen, and all devices of a node at once, for each kind of node: requests that were not made before come,
too, as often as new kinds came before (Good and Turing's estimate). Two sorts of class:
- for each kind of request for several devices: it, and kinds for as many devices and more CPU, which take the same places;
- for each set of nodes that is all that some kind may use: every kind that can go nowhere else, whatever it asks for there. Devices of
  one model are kept for those that name it, and nodes without a taint for those that do not tolerate it.
Compare: protection levels of nested fare classes (Littlewood 1972): a place is sold cheaply only while more are left than the dearer
classes are likely to want.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import NamedTuple

from fairlead.engine.allocator.requests import CompiledRequest, Compiler, InvalidClaimError
from fairlead.engine.inventory.selectors import selector_weight
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.pods import Constraints, Demand, PodNeeds, Workload
from fairlead.kube import resource
from fairlead.kube.spec_key import spec_key

CPU = "cpu"
FIRST = 32  # pods seen before there is a mix
GROWTH = 2
REMEMBERED = 65_536
DEMANDS_MAX = 64  # most frequent kinds of pod in a mix
RARE_MAX = 64  # kinds of pod beside these that request several devices, or name where they may run
KINDS_MAX = 4_096  # kinds of pod remembered at all
SELECTORS_MAX = 256  # of a mix, by weight: each is evaluated on every device


class WorkloadCounter:
    def __init__(self) -> None:
        self._counts: dict[tuple[bytes, PodNeeds], int] = {}
        self._specs: dict[bytes, resource.ResourceClaimSpec] = {}
        self._total = 0
        self._cpu = 0
        self._new = 0  # pods since the last mix
        self._due = FIRST  # when they are so many, another is made
        self._workload: Workload | None = None

    def note(self, gang: GangRequest) -> None:
        """A gang arrived. Of pods without a claim, or with several, only their CPU counts."""
        specs = {claim.key: claim.spec for claim in gang.claims}
        for member in gang.members:
            self._cpu += cpu_of(member.needs)
            if len(member.claims) != 1 or member.claims[0] not in specs:
                continue
            spec = specs[member.claims[0]]
            text = spec_key(spec)
            self._specs.setdefault(text, spec)
            key = (text, member.needs)
            self._counts[key] = self._counts.get(key, 0) + 1
            self._total += 1
            self._new += 1
        if len(self._counts) > KINDS_MAX or self._total >= REMEMBERED:
            self._fade()

    @property
    def latest(self) -> Workload | None:
        return self._workload

    def workload(self) -> Workload | None:
        if self._new >= self._due:
            self._new, self._due = 0, max(self._due, (GROWTH - 1) * self._total)
            counts = ((self._specs[text], needs, count) for (text, needs), count in self._counts.items())
            self._workload = mix(counts, self._cpu)
        return self._workload

    def _fade(self) -> None:
        """Kinds that came once are forgotten. Where very many remain, or many pods were seen, the others count half."""
        many = self._total >= REMEMBERED
        counts = {key: count for key, count in self._counts.items() if count > 1}
        if many or len(counts) > KINDS_MAX // 2:
            counts = {key: count // 2 for key, count in counts.items()}
        self._counts = counts
        self._specs = {text: self._specs[text] for text, _ in counts}
        before, self._total = self._total, sum(counts.values())
        self._cpu = self._cpu * self._total // before
        if many:
            self._due = 0


def mix(counts: Iterable[tuple[resource.ResourceClaimSpec, PodNeeds, int]], cpu: int) -> Workload:
    """The mix of what single kinds of pod request, and how many of each there were; kinds of equal number stay in their order.

    `cpu`: what all pods requested, thousandths of a core.
    """
    ranked = sorted((Demand(*each) for each in counts), key=lambda demand: -demand.count)
    rare = [demand for demand in ranked[DEMANDS_MAX:] if _particular(demand)]
    few = _FewSelectors()
    return Workload(
        tuple(filter(few.take, ranked[:DEMANDS_MAX])),
        rare=tuple(filter(few.take, rare[:RARE_MAX])),
        pods=sum(demand.count for demand in ranked),
        once=sum(demand.count == 1 for demand in ranked),
        cpu=cpu,
    )


class _FewSelectors:
    """Which kinds are in a mix of selectors that weigh SELECTORS_MAX together at most."""

    def __init__(self) -> None:
        self._left = SELECTORS_MAX
        self._known: set[str] = set()

    def take(self, demand: Demand) -> bool:
        requests = (request.exactly for request in demand.spec.devices.requests)
        texts = {each.cel.expression for request in requests if request for each in request.selectors if each.cel}
        weight = selector_weight(texts - self._known)
        if weight > self._left:
            return False
        self._left -= weight
        self._known |= texts
        return True


def _particular(demand: Demand) -> bool:
    """Whether it may be scarce: it requests more than one device, or does not run everywhere."""
    return demand.needs.constraints != Constraints() or any(
        request.exactly is not None and (request.exactly.count > 1 or request.exactly.selectors)
        for request in demand.spec.devices.requests
    )


def cpu_of(needs: PodNeeds) -> int:
    """Thousandths of a core that a pod requests."""
    for name, value in needs.requests:
        if name == CPU:
            return value
    return 0


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
