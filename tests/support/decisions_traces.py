"""Placement traces replayed through `fairlead simulate`'s cluster: the recorded one where its files are, and one made up here.

The made-up trace follows from a seed: nodes of a few kinds, pods that ask for parts of a GPU, whole ones or several.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from benchmarks.simulate import FILES
from fairlead.cli.simulate.replay import drawn_arrivals, replay
from fairlead.cli.simulate.trace import Node, Pod, PodRequest, Trace, read_arrivals, read_trace

POLICY = "fairlead"
_NODES = (
    (2, "T4", 32_000, 131_072),
    (4, "G2", 96_000, 393_216),
    (8, "G3", 128_000, 786_432),
    (0, "CPU", 96_000, 393_216),
)
_PARTS = (1000, 1000, 500, 500, 250, 330, 100, 870)


def has_files(directory: Path) -> bool:
    return all((directory / name).is_file() for name in FILES)


def recorded(directory: Path, seed: int) -> Callable[[], object]:
    """One seed's arrivals as they were recorded."""

    def run() -> None:
        nodes, pods, arrivals = (directory / name for name in FILES)
        trace = read_trace(nodes, pods)
        order = read_arrivals(arrivals, (seed,), len(trace.pods))[seed]
        replay(trace, order, POLICY, seed, lambda _more: None)

    return run


def made_up(seed: int, *, nodes: int, pods: int) -> Callable[[], object]:
    """Arrivals drawn by the published protocol, from a trace of so many nodes and pods."""

    def run() -> None:
        trace = _trace(Random(f"trace {seed}"), nodes, pods)
        replay(trace, drawn_arrivals(trace, seed), POLICY, seed, lambda _more: None)

    return run


def _trace(random: Random, nodes: int, pods: int) -> Trace:
    machines = [Node("node-00", 128_000, 786_432, 8, "G3")]  # every request below fits here
    for number in range(1, nodes):
        gpus, model, cpu, memory = random.choice(_NODES)
        machines.append(Node(f"node-{number:02}", cpu, memory, gpus, model))
    return Trace(tuple(machines), tuple(Pod(f"pod-{number:04}", _shape(random)) for number in range(pods)))


def _shape(random: Random) -> PodRequest:
    cpu, memory = random.choice((1, 4, 8, 16)) * 1000, random.choice((2, 8, 32)) * 1024
    models = random.choice(((), (), (), ("G3",), ("G2", "G3")))
    kind = random.randrange(10)
    if kind == 0:
        return PodRequest(cpu, memory, 0, 0)
    if kind <= 2:
        return PodRequest(cpu, memory, random.choice((2, 4, 8)), 1000, models)
    return PodRequest(cpu, memory, 1, random.choice(_PARTS), models)
