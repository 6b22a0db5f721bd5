"""Published policies to compare with, as their authors' simulator has them: random, best fit, and FGD.

For comparison with the controller's placement on the same arrivals and nodes. Written from the paper and the
simulator's rules, on plain lists; shares nothing with the controller. Each policy scores feasible nodes in whole numbers from 0
to 100; the highest wins; ties go to the first node in the run's order.
Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, and its simulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from fairlead.cli.simulate.trace import WHOLE, Node, PodRequest, Trace

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
