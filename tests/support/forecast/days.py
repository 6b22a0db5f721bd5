"""Arrivals and true run times of a cluster over days: who submits what, when, and how long it runs.

Each user has a few programs; runs of one program are alike (lognormal, spread of a fifth to a half), and programs differ from
minutes to hours. Arrivals come by day more than by night. Some users declare limits, as users do: far too long. Where programs
report, a run says from `REPORTS_AFTER_S` on what it has left, off by the same factor as long as it runs, as of a job that counts its
steps and knows the pace of those that it made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, pi, sin
from random import Random

DAY_S = 86_400.0
SHORTEST_S = 30.0  # of runs
FAILED_PART = 0.1  # of its time that a run lasts which fails, at most
REPORTS_AFTER_S = 300.0  # images, data and the first steps come before a pace is known


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
    reports: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    at: float
    name: str
    program: Program
    run_s: float
    limit_s: float | None
    said: float = 1.0  # times what is left, where the program reports


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
    steady: float = 0.0  # share of programs that have the first of the two spreads, and the others the second
    reporting: float = 0.0  # share of programs that report what they have left
    reporting_spread: float = 0.15  # of what they report, in its logarithm
    failing: float = 0.0  # share of runs that end early, within a `FAILED_PART` of their time

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
        return self._unlike(found)

    def _unlike(self, programs: list[Program]) -> list[Program]:
        """Steady ones and those that report; from draws of their own, so that the days are else the same."""
        random = Random(f"kinds of programs {self.seed}")  # a simulation
        found = []
        for each in programs:
            steady, reports = random.random() < self.steady, random.random() < self.reporting
            of_kind = self.spreads[0] if steady else self.spreads[1]
            found.append(replace(each, reports=reports, spread=of_kind if self.steady else each.spread))
        return found

    def submissions(self) -> list[Submission]:
        """In order of time, from 0 to the last day's end."""
        random = Random(f"arrivals {self.seed}")  # a simulation
        said = Random(f"reports {self.seed}")  # a simulation
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
            run_s = max(SHORTEST_S, each.median_s * exp(random.gauss(0.0, each.spread)))
            if self.failing and random.random() < self.failing:
                run_s = max(SHORTEST_S, run_s * random.uniform(0.0, FAILED_PART))
            limit_s = None if each.limit is None else each.median_s * each.limit
            if limit_s is not None:
                run_s = min(run_s, limit_s)
            off = exp(said.gauss(0.0, self.reporting_spread))
            found.append(Submission(at, f"{each.name}-{count}", each, run_s, limit_s, off))


_WORDS = ("bert", "resnet", "llama", "whisper", "diffuse", "eval", "sweep", "tune", "embed", "rank")
