"""Forecasters' knowledge that no controller has: the true distribution of each program's run times, each run's true length, what comes.

They take the place of `RunTimes` and `Arrivals`, so that what is else done with them is the same. A run of a program that fails lasts a
part of its time that is evenly spread between nothing and a tenth, as in `Days`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import exp, log
from statistics import NormalDist

from fairlead.engine.forecast.run_times import Draws, RunTimes, name_stem
from fairlead.engine.forecast.submissions import Arrivals
from fairlead.engine.types.gangs import GangRequest, RunningGang
from tests.support.forecast.days import FAILED_PART, SHORTEST_S, Program, Submission

_NORMAL = NormalDist()
_PARTS = 16  # of the time of a run that fails, where its distribution is summed up
_HALVINGS = 40


class ProgramRunTimes(RunTimes):
    """Draws from the true distribution of the gang's program, given what it has lasted."""

    def __init__(self, programs: Iterable[Program], *, failing: float) -> None:
        super().__init__(())
        self._programs = {(each.namespace, each.name): each for each in programs}
        self._failing = failing

    def ends_at(
        self, gang: GangRequest | RunningGang, started: float, now: float, draws: Draws, *, ends_by: float | None
    ) -> float:
        program = self._programs[gang.namespace, name_stem(gang.name)]
        wanted = self._left(program, max(0.0, now - started)) * draws.uniform("run", gang.id)
        low, high = log(SHORTEST_S), log(program.median_s) + 10.0 * program.spread
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._left(program, exp(middle)) > wanted else (low, middle)
        end = max(now, started + exp(high))
        return end if ends_by is None else min(end, max(now, ends_by))

    def _left(self, program: Program, seconds: float) -> float:
        """Share of its runs that last longer; limits aside."""
        if seconds < SHORTEST_S:
            return 1.0
        whole = self._whole(program, seconds)
        if not self._failing:
            return whole
        parts = ((number + 0.5) / _PARTS * FAILED_PART for number in range(_PARTS))
        failed = sum(self._whole(program, seconds / part) for part in parts) / _PARTS
        return (1.0 - self._failing) * whole + self._failing * failed

    def _whole(self, program: Program, seconds: float) -> float:
        return 1.0 - _NORMAL.cdf(log(seconds / program.median_s) / program.spread)


class ExactRunTimes(ProgramRunTimes):
    """Knows how long these runs last; others are drawn from their programs."""

    def __init__(self, known: Iterable[Submission], programs: Iterable[Program], *, failing: float) -> None:
        super().__init__(programs, failing=failing)
        self._run_s = {f"{each.program.namespace}/{each.name}": each.run_s for each in known}

    def ends_at(
        self, gang: GangRequest | RunningGang, started: float, now: float, draws: Draws, *, ends_by: float | None
    ) -> float:
        run_s = self._run_s.get(gang.id)
        if run_s is None:
            return super().ends_at(gang, started, now, draws, ends_by=ends_by)
        return max(now, started + run_s)


class FutureArrivals(Arrivals):
    """What will in truth be submitted, in order of time."""

    def __init__(self, requests: Iterable[GangRequest]) -> None:
        super().__init__((), since=0.0, now=0.0)
        self._requests = list(requests)

    def __bool__(self) -> bool:
        return bool(self._requests)

    def drawn(self, draws: Draws) -> Iterator[GangRequest]:
        """The same for every sample."""
        return iter(self._requests)

    def times(self, draws: Draws) -> Iterator[tuple[float, GangRequest]]:
        return ((each.created, each) for each in self._requests)
