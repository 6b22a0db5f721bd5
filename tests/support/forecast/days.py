"""Arrivals and true run times of a cluster over days: who submits what, when, and how long it runs.

Each user has a few programs; runs of one program are alike (lognormal, spread of a fifth to a half), and programs differ from
minutes to hours. Arrivals come by day more than by night. Some users declare limits, as users do: far too long.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, pi, sin
from random import Random

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Program:
    """What a user runs again and again. `median_s` of its run times, `spread` in their logarithm."""

    namespace: str
    name: str
    size: int
    devices: int  # of each pod
    median_s: float
    spread: float
    limit: float | None  # times the median
    priority: int


@dataclass(frozen=True, slots=True)
class Submission:
    at: float
    name: str
    program: Program
    run_s: float
    limit_s: float | None


@dataclass(frozen=True, slots=True)
class Days:
    """`load`: of the cluster's devices, on average."""

    seed: int
    nodes: int = 16
    node_gpus: int = 8
    teams: int = 4
    users: int = 5  # of each team
    load: float = 1.0
    days: float = 3
    spreads: tuple[float, float] = (0.2, 0.5)  # of a program's run times, in their logarithm
    failing: float = 0.0  # share of runs that end early, within a tenth of their time

    @property
    def devices(self) -> int:
        return self.nodes * self.node_gpus

    def programs(self) -> list[Program]:
        random = Random(f"programs {self.seed}")  # a simulation
        found = []
        for team in range(self.teams):
            for user in range(self.users):
                for number in range(random.randint(1, 3)):
                    size, devices = random.choices(
                        [(1, 1), (1, 2), (1, 8), (2, 8), (4, 8), (3, 4)], [25, 15, 25, 20, 8, 7]
                    )[0]
                    found.append(
                        Program(
                            namespace=f"team-{team}",
                            name=f"{_WORDS[user % len(_WORDS)]}-{_WORDS[(number + 5) % len(_WORDS)]}",
                            size=size,
                            devices=devices,
                            median_s=exp(random.uniform(6.2, 9.6)),  # 8 min to 4 h
                            spread=random.uniform(*self.spreads),
                            limit=random.choice([None, None, 2.0, 4.0]),
                            priority=random.choice([0, 0, 0, 10]),
                        )
                    )
        return found

    def submissions(self) -> list[Submission]:
        """In order of time, from 0 to the last day's end."""
        random = Random(f"arrivals {self.seed}")  # a simulation
        programs = self.programs()
        popular = [random.uniform(0.3, 1.0) for _ in programs]
        work = sum(
            weight * each.size * each.devices * each.median_s * exp(each.spread**2 / 2)
            for each, weight in zip(programs, popular, strict=True)
        ) / sum(popular)
        rate = self.load * self.devices / work  # gangs a second
        found: list[Submission] = []
        at, count = 0.0, 0
        while True:
            at += random.expovariate(rate * 1.6)
            if at >= self.days * DAY_S:
                return found
            if random.random() * 1.6 > 1.0 + 0.6 * sin(2 * pi * (at / DAY_S - 0.35)):
                continue
            each = random.choices(programs, popular)[0]
            count += 1
            run_s = max(30.0, each.median_s * exp(random.gauss(0.0, each.spread)))
            if self.failing and random.random() < self.failing:
                run_s = max(30.0, run_s * random.uniform(0.0, 0.1))
            limit_s = None if each.limit is None else each.median_s * each.limit
            if limit_s is not None:
                run_s = min(run_s, limit_s)
            found.append(Submission(at, f"{each.name}-{count}", each, run_s, limit_s))


_WORDS = ("bert", "resnet", "llama", "whisper", "diffuse", "eval", "sweep", "tune", "embed", "rank")
