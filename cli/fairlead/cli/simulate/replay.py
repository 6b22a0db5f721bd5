"""One run: a policy, one seed's arrivals, one order of nodes; counted as published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time

from fairlead.cli.simulate.cluster import Cluster
from fairlead.cli.simulate.policies import BestFit, Fgd, Machine, Placing, RandomPolicy, ScoringPolicy
from fairlead.cli.simulate.protocol import Counter, node_order
from fairlead.cli.simulate.trace import Trace

POLICIES = ("fairlead", "best-fit", "fgd", "random")
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
    return ScoringPolicy(machines, BestFit() if name == "best-fit" else Fgd(trace))
