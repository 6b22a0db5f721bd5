"""One run by the published experiment's rules: a policy, one seed's arrivals, one order of nodes. The same for all policies.

Pods only arrive; one that fits nowhere fails at once. Arrivals are the recorded ones of a seed, or drawn here by the same protocol: the
list sorted by name and shuffled, then pods drawn with replacement until demand would pass 130 % of the cluster's GPUs. The published runs
used another generator, so drawn arrivals of a seed are not the recorded ones.
Source: Weng et al., USENIX ATC 2023, and its simulator: the stop test adds a pod's demand per GPU, not of all its GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from time import process_time

from fairlead.cli.simulate.cluster import Cluster
from fairlead.cli.simulate.policies import Fgd, Machine, Placing, RandomPolicy, ScoringPolicy, best_fit
from fairlead.cli.simulate.trace import Node, Pod, Trace

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
