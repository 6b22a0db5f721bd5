"""Simulated days for recordings: three queues, gangs of several sizes that come, run, are reclaimed for others and come back.

Everything follows from the seed. `python -m tests.support.days DIR` makes the corpus under tests/history/data anew: only after a change
that is meant to change decisions, and then the commit says which.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World
from tests.support.history import record

HOUR = 3600.0
BEGIN = 1_790_000_000.0
CORPUS = Path(__file__).resolve().parents[1] / "history" / "data"


@dataclass(frozen=True)
class Shape:
    seed: int
    nodes: int = 6
    gangs: int = 60
    hours: float = 24.0
    run_hours: float = 3.0
    failures: int = 1  # nodes that go, and come back later
    strict: bool = False


SHAPES = {
    "quiet": Shape(1, nodes=4, gangs=30),
    "busy": Shape(2, nodes=4, gangs=60, run_hours=1.5),
    "strict": Shape(3, nodes=4, gangs=50, run_hours=1.5, strict=True),
    "failing": Shape(4, gangs=40, failures=4),
}
QUEUES = (("research", 16, 1.0), ("vision", 24, 2.0), ("batch", 0, 1.0))
SIZES = ((1, 1), (1, 2), (1, 8), (2, 8), (4, 4), (4, 8))  # pods, GPUs of each
SPREAD = 0.8  # of the logarithm of how long a gang runs
GPUS = 8  # of a node


def drawn(seed: int) -> Shape:
    """A day of another seed and size, with 20 to 70 % of the GPUs in use on average.

    Gangs that come faster than they can run would pile up, and every decision looks at each gang that waits.
    """
    random = Random(seed)
    nodes, gangs, load = random.randint(4, 8), random.randint(40, 400), random.uniform(0.2, 0.7)
    shape = Shape(seed, nodes=nodes, gangs=gangs, failures=random.randint(0, 3), strict=random.random() < 0.25)
    gpus = sum(pods * each for pods, each in SIZES) / len(SIZES)
    runs = load * nodes * GPUS * shape.hours / (gangs * gpus)
    return dataclasses.replace(
        shape, run_hours=runs / math.exp(SPREAD**2 / 2)
    )  # the mean of a log-normal draw is above its median


class SimulatedDay:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.random = Random(shape.seed)
        self.world = World()
        self.world.now = BEGIN
        for number in range(shape.nodes):
            self._add_node(f"node-{number:02}")
        self.world.flavors = (FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"'),)
        self.world.queues = tuple(
            QueueSpec(
                name=name,
                uid=f"uid-{name}",
                quotas=(FlavorQuota(flavor="gpu", deserved=deserved, weight=weight),),
                min_runtime_s=600.0,
                ordering="StrictFIFO" if shape.strict else "BestEffortFIFO",
            )
            for name, deserved, weight in sorted(QUEUES)
        )
        self.waiting: list[GangRequest] = []
        self.runs: dict[str, float] = {}  # seconds, by gang
        self.ends: list[tuple[float, str, float]] = []  # when, gang, its start
        self.evicted = 0

    def _add_node(self, name: str) -> None:
        self.world.add_node(
            name,
            [gpu(minor) for minor in range(GPUS)],
            labels={"kubernetes.io/hostname": name, "topology/rack": name[-1]},
        )

    def run(self) -> None:
        shape, random = self.shape, self.random
        events = [
            (BEGIN + random.uniform(0, shape.hours * HOUR), number, "arrive", f"train-{number:04}")
            for number in range(shape.gangs)
        ]
        for number in range(shape.failures):
            at, node = BEGIN + random.uniform(0.1, 0.8) * shape.hours * HOUR, f"node-{number % shape.nodes:02}"
            events += [(at, number, "fail", node), (at + 2 * HOUR, number, "repair", node)]
        events.sort()
        while events or self.ends:
            at = min([each[0] for each in events[:1]] + [each[0] for each in self.ends[:1]])
            if at > BEGIN + shape.hours * HOUR:
                break
            self.world.now = at
            while self.ends and self.ends[0][0] <= at:
                self._end(*heapq.heappop(self.ends))
            while events and events[0][0] <= at:
                _, _, what, name = events.pop(0)
                self._happen(what, name)
            self.decide()

    def _happen(self, what: str, name: str) -> None:
        random, world = self.random, self.world
        if what == "arrive":
            pods, gpus = random.choice(SIZES)
            made = gang(
                name, pods, claim_spec(device_request(gpus)), created=world.now, cpu="2",
                queue=random.choice(QUEUES)[0], priority=random.choice([0, 0, 0, 10]),
            )  # fmt: skip
            self.waiting.append(replace(made, namespace_labels={"kubernetes.io/metadata.name": "ml"}))
            self.runs[made.id] = random.lognormvariate(0, SPREAD) * self.shape.run_hours * HOUR
        elif what == "fail" and name in world.node_json:
            world.drop_node(name)
            for gang_id in [g for g, held in world.running.items() if any(m.node == name for m in held.members)]:
                self.waiting.append(replace(world.requests[gang_id], preemptor=False))
                world.end(gang_id)
        elif what == "repair" and name not in world.node_json:
            self._add_node(name)

    def _end(self, _: float, gang_id: str, started: float) -> None:
        running = self.world.running.get(gang_id)
        if running is not None and running.started == started:
            self.world.end(gang_id)

    def decide(self) -> None:
        """Until nothing more happens: evicted gangs go at once, and those they go for start."""
        for _ in range(10):
            plan = self.world.decide(*self.waiting)
            self.waiting = self.world.carry_out(plan, self.waiting)
            for admission in plan.admissions:
                started = self.world.running[admission.id].started
                heapq.heappush(self.ends, (started + self.runs[admission.id], admission.id, started))
            if not plan.evictions:
                return
            self.evicted += len(plan.evictions)
            self.waiting += [replace(each, preemptor=False) for each in self.world.gone()]


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else CORPUS
    for name, shape in SHAPES.items():
        directory = target / name
        for old in directory.glob("*") if directory.exists() else ():
            old.unlink()
        (made,) = record(SimulatedDay(shape).run, directory)
        for path in sorted(made.iterdir()):
            if path.suffix == ".gz":
                path.replace(directory / path.name)
            else:
                path.unlink()
        made.rmdir()
        print(directory, sum(path.stat().st_size for path in directory.iterdir()), "bytes")


if __name__ == "__main__":
    main()
