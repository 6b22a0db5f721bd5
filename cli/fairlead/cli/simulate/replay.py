"""One run by the published experiment's rules: a policy, one seed's arrivals, one order of nodes. The same for all policies.

Pods only arrive; one that fits nowhere fails at once. Arrivals are the recorded ones of a seed, or drawn here by the same protocol: the
list sorted by name and shuffled, then pods drawn with replacement until demand would pass 130 % of the cluster's GPUs. The published runs
used another generator, so drawn arrivals of a seed are not the recorded ones.
Source: Weng et al., USENIX ATC 2023, and its simulator: the stop test adds a pod's demand per GPU, not of all its GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from time import process_time
from typing import Protocol

from fairlead.cli.simulate.cluster import Cluster
from fairlead.cli.simulate.trace import WHOLE, Node, Pod, PodRequest, Trace

COVERED = 0.95  # of the pods, by FGD's target workload


Score = Callable[["Machine", PodRequest], tuple[int, int]]
"""0 to 100, and the GPU for a share. The request fits."""


class Placing(Protocol):
    def place(self, request: PodRequest) -> bool: ...


class Machine:
    """A node as it fills."""

    __slots__ = ("changes", "cpu", "free", "memory", "model")

    def __init__(self, node: Node) -> None:
        self.cpu = node.cpu_milli
        self.memory = node.memory_mib
        self.free = [WHOLE] * node.gpus
        self.model = node.model
        self.changes = 0

    def fits(self, request: PodRequest) -> bool:
        if self.cpu < request.cpu_milli or self.memory < request.memory_mib:
            return False
        if not request.gpus:
            return True
        if request.models and self.model not in request.models:
            return False
        return sum([free >= request.gpu_milli for free in self.free]) >= request.gpus

    def take(self, request: PodRequest, gpu: int) -> None:
        """A share from this GPU; whole GPUs as they come."""
        self.changes += 1
        self.cpu -= request.cpu_milli
        self.memory -= request.memory_mib
        if request.gpus == 1:
            self.free[gpu] -= request.gpu_milli
            return
        wanted = request.gpus
        for place, free in enumerate(self.free):
            if wanted and free == WHOLE:
                self.free[place] = 0
                wanted -= 1

    def tightest(self, request: PodRequest) -> int:
        """The GPU with least room that holds the share."""
        fitting = [(free, place) for place, free in enumerate(self.free) if free >= request.gpu_milli]
        return min(fitting)[1] if request.gpus and fitting else 0


class RandomPolicy:
    """Any feasible node, and any GPU of it that fits."""

    def __init__(self, machines: Sequence[Machine], seed: int) -> None:
        self._machines = machines
        self._random = Random(f"policy {seed}")  # noqa: S311  # a simulation

    def place(self, request: PodRequest) -> bool:
        feasible = [machine for machine in self._machines if machine.fits(request)]
        if not feasible:
            return False
        machine = self._random.choice(feasible)
        gpus = [place for place, free in enumerate(machine.free) if free >= request.gpu_milli]
        machine.take(request, self._random.choice(gpus) if request.gpus else 0)
        return True


class ScoringPolicy:
    """The best score wins. Scores are remembered until their node changes."""

    def __init__(self, machines: Sequence[Machine], score: Score) -> None:
        self._machines = machines
        self._score = score
        self._known: dict[PodRequest, list[tuple[int, int, int]]] = {}  # per machine: its changes then, score, GPU

    def place(self, request: PodRequest) -> bool:
        known = self._known.get(request)
        if known is None:
            known = self._known[request] = [(-1, -1, 0)] * len(self._machines)
        best, chosen, gpu = -1, -1, 0
        for place, machine in enumerate(self._machines):
            seen, score, on = known[place]
            if seen != machine.changes:
                score, on = self._score(machine, request) if machine.fits(request) else (-1, 0)
                known[place] = (machine.changes, score, on)
            if score > best:
                best, chosen, gpu = score, place, on
        if chosen < 0:
            return False
        self._machines[chosen].take(request, gpu)
        return True


def best_fit(machine: Machine, request: PodRequest) -> tuple[int, int]:
    """Least CPU and GPU left, on the scale of the largest node."""
    cpu_left = (machine.cpu - request.cpu_milli) / 128_000
    gpu_left = (sum(machine.free) - request.demand) / 8_000
    return int(100 * (1 - (0.5 * cpu_left + 0.5 * gpu_left))), machine.tightest(request)


@dataclass(frozen=True, slots=True)
class Target:
    cpu_milli: int
    gpu_milli: int
    gpus: int
    models: tuple[str, ...]
    frequency: float


class Fgd:
    """Fragmentation gradient descent: the least growth of the room that the target workload can't use."""

    def __init__(self, trace: Trace) -> None:
        self._targets = target_workload(trace)
        self._known: dict[tuple[str, int, tuple[int, ...]], float] = {}

    def score(self, machine: Machine, request: PodRequest) -> tuple[int, int]:
        before = self._fragments(machine.model, machine.cpu, machine.free)
        left = machine.cpu - request.cpu_milli
        if request.gpus == 1 and request.gpu_milli < WHOLE:
            best, chosen = -1, 0
            tried: set[int] = set()
            for place, free in enumerate(machine.free):
                if free >= request.gpu_milli and free not in tried:
                    tried.add(free)
                    after = [*machine.free[:place], free - request.gpu_milli, *machine.free[place + 1 :]]
                    score = _sigmoid(before - self._fragments(machine.model, left, after))
                    if score > best:
                        best, chosen = score, place
            return best, chosen
        wanted, after, chosen = request.gpus, list(machine.free), 0
        for place, free in enumerate(after):
            if wanted and free == WHOLE:
                after[place] = 0
                chosen = place
                wanted -= 1
        return _sigmoid(before - self._fragments(machine.model, left, after)), chosen

    def _fragments(self, model: str, cpu: int, free: Sequence[int]) -> float:
        key = (model, cpu, tuple(sorted(free)))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = sum(
                target.frequency * _unusable(target, model, cpu, free) for target in self._targets
            )
        return found


def _unusable(target: Target, model: str, cpu: int, free: Sequence[int]) -> int:
    fitting = sum([room >= target.gpu_milli for room in free])
    able = target.gpus > 0 and cpu >= target.cpu_milli and (not target.models or model in target.models)
    if not able or fitting < target.gpus:
        return sum(free)
    return sum([room for room in free if room < target.gpu_milli])


def _sigmoid(gain: float) -> int:
    return int(100 / (1 + math.exp(-gain / 1000)))


def target_workload(trace: Trace) -> tuple[Target, ...]:
    """The list's most frequent kinds of pod, memory aside, until they are 95 % of it."""
    counts: dict[tuple[int, int, int, tuple[str, ...]], int] = {}
    for pod in trace.pods:
        request = pod.request
        key = (request.cpu_milli, request.gpu_milli, request.gpus, request.models)
        counts[key] = counts.get(key, 0) + 1
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    chosen: list[tuple[tuple[int, int, int, tuple[str, ...]], int]] = []
    covered = 0
    for key, number in ranked:
        chosen.append((key, number))
        covered += number
        if covered >= COVERED * len(trace.pods):
            break
    return tuple(Target(*key, number / covered) for key, number in chosen)


STEP = 100  # arrivals between two reports of progress


@dataclass(frozen=True, slots=True)
class Run:
    seed: int
    curve: dict[int, float]  # allocation ratio by arrived load, percent
    pods: int
    failed: int
    unplaceable: int  # of the failed: pods that fit on no node even when all are empty
    seconds: float  # of processor time


def replay(trace: Trace, arrivals: Sequence[int], policy: str, seed: int, progress: Callable[[int], None]) -> Run:
    """`progress` is called with the number of further arrivals that were decided."""
    began = process_time()
    placing = _policy(policy, trace, seed)
    counter = Counter(trace.capacity)
    unplaceable = frozenset(trace.unplaceable)
    for number, row in enumerate(arrivals, 1):
        pod = trace.pods[row]
        counter.note(pod, placed=placing.place(pod.request), placeable=row not in unplaceable)
        if number % STEP == 0:
            progress(STEP)
    progress(len(arrivals) % STEP)
    return Run(seed, counter.curve(), counter.pods, counter.failed, counter.unplaceable, process_time() - began)


def _policy(name: str, trace: Trace, seed: int) -> Placing:
    order = node_order(trace, seed)
    if name == "fairlead":
        return Cluster(order)
    machines = [Machine(node) for node in order]
    if name == "random":
        return RandomPolicy(machines, seed)
    return ScoringPolicy(machines, best_fit if name == "best-fit" else Fgd(trace).score)


INFLATED_TO = 1.3
POINTS = (80, 90, 100, 110, 120, 130)  # percent of the cluster's GPUs that have been requested


def drawn_arrivals(trace: Trace, seed: int) -> tuple[int, ...]:
    """Rows of the pod list, in order of arrival."""
    random = Random(f"arrivals {seed}")  # noqa: S311  # a simulation
    by_name = sorted(range(len(trace.pods)), key=lambda row: trace.pods[row].name)
    order = list(by_name)
    random.shuffle(order)
    target = INFLATED_TO * trace.capacity
    total = float(sum(trace.pods[row].request.demand for row in order))
    while total > target:
        total -= trace.pods[order.pop(random.randrange(len(order)))].request.demand
    if not any(pod.request.demand for pod in trace.pods):
        return tuple(order)
    while True:
        row = random.choice(by_name)
        request = trace.pods[row].request
        if total + request.gpu_milli > target:
            return tuple(order)
        total += request.demand
        order.append(row)


def node_order(trace: Trace, seed: int) -> tuple[Node, ...]:
    """The run's order of nodes, by which ties are broken: random, the same for every policy."""
    nodes = list(trace.nodes)
    Random(f"nodes {seed}").shuffle(nodes)  # noqa: S311  # a simulation
    return tuple(nodes)


class Counter:
    """Allocation ratio by arrived load: for each whole percent, the mean over all arrivals that round to it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._sums: dict[int, float] = {}
        self._numbers: dict[int, int] = {}
        self.arrived = 0
        self.allocated = 0
        self.pods = 0
        self.failed = 0
        self.unplaceable = 0

    def note(self, pod: Pod, *, placed: bool, placeable: bool = True) -> None:
        """`placeable`: whether some node could take the pod if it were empty."""
        self.pods += 1
        self.arrived += pod.request.demand
        if placed:
            self.allocated += pod.request.demand
        else:
            self.failed += 1
            self.unplaceable += not placeable
        point = int(100 * self.arrived / self._capacity + 0.5)
        self._sums[point] = self._sums.get(point, 0.0) + 100 * self.allocated / self._capacity
        self._numbers[point] = self._numbers.get(point, 0) + 1

    def curve(self) -> dict[int, float]:
        """Percent of the cluster's GPUs in use, by percent requested."""
        return {point: total / self._numbers[point] for point, total in sorted(self._sums.items())}


def mean_and_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """The sample's; no sd of one value."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5


def parse_seeds(texts: Iterable[str]) -> tuple[int, ...]:
    """`42`, or `42-51`; each seed once, in order. Raises ValueError."""
    seeds: dict[int, None] = {}
    for text in texts:
        first, dash, last = text.strip().partition("-")
        try:
            low = int(first)
            high = int(last) if dash else low
        except ValueError:
            raise ValueError(f"{text!r} is neither a number, such as 42, nor a range, such as 42-51") from None
        if high < low or high - low >= 1000:
            raise ValueError(f"{text!r}: a range goes upwards, over at most 1000 seeds")
        seeds.update(dict.fromkeys(range(low, high + 1)))
    return tuple(seeds)
