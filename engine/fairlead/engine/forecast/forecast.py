"""When each gang that waits will start: quantiles over samples of the simulated future.

A forecast, no promise: run times are drawn, and so is what will be submitted later; `Calibration` corrects it by how far earlier
forecasts were off. The budget bounds what it costs: first the simulation gets coarser, then its horizon nearer, then there are
fewer samples; the result says so. With the budget unused up the same arguments give the same result.
Forecasts, what-if and Gang status all go by `no_time` and `GangForecast.within`, what is known for certain: no time for a gang that cannot
start, none before or after a known end. A simulation looks at a cluster of a minute ago, and the reason of the gang is newer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, exp, floor, inf, log, sqrt
from statistics import NormalDist

from fairlead.engine.forecast.calibration import NOT_CALIBRATED, Calibration
from fairlead.engine.forecast.run_times import Draws, RunTimes
from fairlead.engine.forecast.simulation import Resolution, Sample, Simulation
from fairlead.engine.forecast.submissions import Submissions
from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import RunningGang
from fairlead.engine.types.plan import Waiting
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube import timestamps


@dataclass(frozen=True, slots=True)
class CpuBudget:
    """`total_s`, in the measure of `spent_s`: seconds of CPU since the call."""

    total_s: float = inf
    spent_s: Callable[[], float] = lambda: 0.0

    def over(self, end_s: float) -> bool:
        return self.spent_s() > end_s


NO_BUDGET = CpuBudget()  # without bounds


@dataclass(frozen=True, slots=True)
class GangForecast:
    """`p50`, `p90`: unix seconds by which it starts with that probability; None: beyond the horizon. `never`: it cannot start at all."""

    p50: float | None
    p90: float | None
    because: str
    never: bool = False
    raw: tuple[float | None, float | None] = (None, None)  # the two before they were calibrated

    def within(self, waiting: Waiting) -> GangForecast:
        """As this one where what is known of the gang allows its times."""
        found = no_time(waiting.reason)
        if found is not None:
            return found
        return _not_beyond(_not_before(self, waiting.reason.due), waiting.ends_by)


def _not_before(said: GangForecast, due: float | None) -> GangForecast:
    """A forecast that was made before the eviction was set names it, too: on a quiet cluster none follows it."""
    if due is None or said.p50 is None:
        return said
    because = said.because if goes_at(due) in said.because else f"{goes_at(due)}; {said.because}"
    late = None if said.p90 is None else max(said.p90, due)
    return replace(said, p50=max(said.p50, due), p90=late, because=because)


def _not_beyond(said: GangForecast, end: float | None) -> GangForecast:
    """No time that the workload does not live to see."""
    if end is None or (said.p90 is not None and said.p90 <= end):
        return said
    early = said.p50 if said.p50 is not None and said.p50 <= end else None
    when = f"before it starts, at {timestamps.seconds(end)}: activeDeadlineSeconds counts while it waits"
    likely = "ends" if early is None and said.p50 is not None else "may end"
    because = said.because if when in said.because else f"its workload {likely} {when}; {said.because}"
    return replace(said, p50=early, p90=None, because=because)


def no_time(reason: Reason) -> GangForecast | None:
    """What is said of a gang instead of a time; None where a time may be given."""
    if reason.never:
        return GangForecast(None, None, f"cannot run: {reason.message}", never=True)
    if reason.code is Code.ON_HOLD:  # nothing foretells when a user resumes it
        return GangForecast(None, None, f"none while it does not compete: {reason.message}")
    return None


def goes_at(due: float) -> str:
    """What a forecast says of a set eviction; `due` in unix seconds."""
    return f"what is evicted for it goes at {timestamps.seconds(due)}"


HORIZON_S = 86_400.0
SAMPLES = 32
SAMPLES_MIN = 12  # before there are fewer, the simulation looks less far ahead
FINE = 2  # so many of the resolutions are only for where the budget has room for every sample, with the whole horizon
ENOUGH = 0.75  # of the gangs have started when the budget of a sample ends: the horizon is drawn in to there
HOPEFUL = 0.4  # of the gangs have started when a sample is given up: the next resolution will do
RESOLUTIONS = (Resolution(0.02), Resolution(0.07, 5.0, 200), Resolution(0.15, 15.0, 100), Resolution(0.3, 30.0, 50))
FEW = 10  # samples; of fewer the quantiles are those of a lognormal distribution
NAMED_PART = 0.5  # of the samples: a gang whose end comes before so many of the starts is named


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of all gangs that waited at `as_of` (unix seconds), by id. `cut`: what the budget cost, "" where nothing."""

    as_of: float
    gangs: Mapping[str, GangForecast] = field(default_factory=dict)
    samples: int = 0
    horizon_s: float = HORIZON_S
    cut: str = ""
    spent_s: float = 0.0
    failures: Mapping[str, str] = field(default_factory=dict)  # gangs that cannot be computed: what was raised


def forecast(
    snapshot: Snapshot,
    now: float,
    run_times: RunTimes,
    *,
    seed: int,
    samples: int = SAMPLES,
    horizon_s: float = HORIZON_S,
    budget: CpuBudget = NO_BUDGET,
    submissions: Submissions | None = None,
    calibration: Calibration = NOT_CALIBRATED,
    engine: Engine | None = None,
) -> Forecast:
    """The snapshot's tables must not be used otherwise meanwhile; they are left as they were.

    `engine`: one that has decided on these tables before, where there is one. Raises ValueError for a horizon or a number of samples that is not positive.
    """
    if horizon_s <= 0 or samples <= 0:
        raise ValueError(f"a forecast needs a horizon and samples: {horizon_s:g} s and {samples} were asked for")
    snapshot = snapshot.simulated()
    engine = engine or Engine()
    first = engine.decide(snapshot, now)
    whole = {gang.id for gang in snapshot.gangs if gang.whole}
    found = {each.id: said for each in first.waiting if (said := _without_samples(each, whole)) is not None}
    if len(found) == len(snapshot.gangs):
        return Forecast(now, found, 0, horizon_s)
    simulation = Simulation(snapshot, now, run_times, horizon_s=horizon_s, submissions=submissions, engine=engine)
    simulation.stay = frozenset(found)
    simulation.queues = {each.id: each.queue or "" for each in first.waiting}
    simulation.paced_until = now + horizon_s
    drawn, resolution = _samples(simulation, seed, samples, budget)
    until = min(each.until for each in drawn)
    waiting = {each.id: each for each in first.waiting}
    running = _sources(snapshot.running, run_times)
    at_latest = _at_latest(simulation, seed, budget)
    context = _Context(now, until, now + horizon_s, drawn, running, calibration, at_latest)
    for gang in snapshot.gangs:
        if gang.id in simulation.failures:
            found[gang.id] = GangForecast(None, None, "no forecast: it cannot be computed")
        elif gang.id not in found:
            found[gang.id] = context.of(gang.id, waiting.get(gang.id))
    cut = _cut(len(drawn), samples, resolution, until - now, horizon_s)
    return Forecast(now, found, len(drawn), until - now, cut, budget.spent_s(), simulation.failures)


def _samples(simulation: Simulation, seed: int, wanted: int, budget: CpuBudget) -> tuple[list[Sample], Resolution]:
    """At least one. A resolution at which the first sample takes too much of the budget is given up for a coarser one.

    Steps of 15 % put starts a few percent off; fewer samples, and a horizon after which gangs start at their queue's pace, do more harm.
    """
    wanted_s, total_s, spent_s = simulation.horizon_s, budget.total_s, budget.spent_s
    place = 0
    while True:
        resolution = simulation.resolution = RESOLUTIONS[place]
        began = spent_s()
        end = began + (total_s - began) / (wanted if place < FINE else SAMPLES_MIN)
        drawn = [simulation.sample(Draws(seed, 0), partial(budget.over, end))]
        first = drawn[0]
        started = sum(at <= first.until for at in first.starts.values()) / max(1, len(simulation.wanted))
        whole = drawn[0].until - simulation.now >= wanted_s
        if whole or (place >= FINE and started >= ENOUGH) or place + 1 == len(RESOLUTIONS):
            break
        if started >= HOPEFUL:
            place += 1
        else:  # where one decision takes most of the budget it is not made at every resolution
            fair = spent_s() - began <= (total_s - began) / SAMPLES_MIN
            place = max(FINE, place + 1) if fair else len(RESOLUTIONS) - 1
    horizon_s = simulation.horizon_s
    simulation.horizon_s = max(drawn[0].until - simulation.now, 1.0)
    try:
        while len(drawn) < wanted and spent_s() < total_s:
            sample = simulation.sample(Draws(seed, len(drawn)), partial(budget.over, total_s))
            if spent_s() <= total_s:
                drawn.append(sample)
    finally:
        simulation.horizon_s = horizon_s
    return drawn, resolution


def _at_latest(simulation: Simulation, seed: int, budget: CpuBudget) -> Mapping[str, float]:
    """When gangs start at the latest, unix seconds by id, where the deadlines of others say so: in a sample in which nothing else ends."""
    if budget.over(budget.total_s) or all(gang.ends_by is None for gang in simulation.snapshot.running):
        return {}
    sample = simulation.sample(Draws(seed, 0, longest=True), partial(budget.over, budget.total_s))
    return {gang: at for gang, at in sample.starts.items() if at <= sample.until}


def _without_samples(waiting: Waiting, whole: Container[str]) -> GangForecast | None:
    """What is known of a gang without a simulation; None where its start is to be simulated. `whole`: gangs all of whose pods exist."""
    said = no_time(waiting.reason)
    if said is not None or waiting.id in whole:
        return said
    return GangForecast(None, None, f"no forecast yet: {waiting.reason.message}")


def _sources(running: Sequence[RunningGang], run_times: RunTimes) -> str:
    counts = Counter(
        str(run_times.source(gang, None if gang.ends_by is None else gang.ends_by - gang.started)) for gang in running
    )
    listed = ", ".join(f"{source} ({count})" for source, count in sorted(counts.items(), key=lambda pair: -pair[1]))
    total = counts.total()
    return f"run times of {total} running gang{'s' if total != 1 else ''} from {listed}" if counts else "nothing runs"


def _cut(got: int, wanted: int, resolution: Resolution, horizon_s: float, wanted_s: float) -> str:
    parts = []
    if got < wanted:
        parts.append(f"{got} of {wanted} samples")
    if resolution is not RESOLUTIONS[0]:
        parts.append(f"steps of {resolution.part:.0%}")
    if horizon_s < wanted_s:
        parts.append(f"looks {duration(horizon_s)} ahead instead of {duration(wanted_s)}")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class _Context:
    now: float
    until: float  # simulated up to here
    horizon: float
    drawn: Sequence[Sample]
    running: str
    calibration: Calibration
    at_latest: Mapping[str, float]

    def of(self, gang_id: str, waiting: Waiting | None) -> GangForecast:
        waits = sorted(self._wait(each.starts.get(gang_id, inf)) for each in self.drawn)
        raw = (quantile(waits, 0.5), quantile(waits, 0.9))
        due = None if waiting is None else waiting.reason.due
        waits_s = self.calibration.corrected(raw) if due is None else raw  # nothing of the wait is drawn
        last = self.at_latest.get(gang_id, inf)
        p50, p90 = (_capped(wait, last - self.now, drawn) for wait, drawn in zip(waits_s, raw, strict=True))
        count = f"{len(self.drawn)} sample{'s' if len(self.drawn) != 1 else ''}"
        parts = [f"{count}; {self.running}"]
        at_pace = sum(self.until - self.now < wait < inf for wait in waits)
        if at_pace:
            beyond = duration(self.until - self.now)
            parts.append(f"beyond {beyond} from now, as in {at_pace} of them, from the work ahead of it in its queue")
        late = sum(wait == inf for wait in waits)
        if late:
            parts.append(f"later than {duration(self.horizon - self.now)} from now in {late} of them")
            if waiting is not None and late == len(waits):
                parts.append(f"it waits: {waiting.reason.message}")
        cause = self._cause(gang_id) if due is None or due < self.now else goes_at(due)
        if cause:
            parts.append(cause)
        if last < inf:
            parts.append(f"by {timestamps.seconds(last)} at the latest, as deadlines of what runs say")
        if waits[0] == waits[-1] == 0.0:
            parts = ["it can start now"]
        at = [None if wait is None else self.now + wait for wait in (p50, p90)]
        said = GangForecast(at[0], at[1], "; ".join(parts), raw=raw)
        return said if waiting is None else said.within(waiting)

    def _wait(self, start: float) -> float:
        return start - self.now if start <= self.horizon else inf

    def _cause(self, gang_id: str) -> str:
        """The gang whose end most often comes just before the start."""
        counts: Counter[str] = Counter()
        for sample in self.drawn:
            counts.update(set(sample.after.get(gang_id, ())))
        best = min(counts, key=lambda each: (-counts[each], each), default="")
        if not best or counts[best] < NAMED_PART * len(self.drawn):
            return ""
        return f"starts when {best} ends in {counts[best]} of them"


def _capped(wait: float | None, most: float, drawn: float | None) -> float | None:
    """A corrected wait, no longer than what is certain; what was drawn is within that but for the steps of the simulation."""
    return wait if wait is None or drawn is None else min(wait, max(most, drawn))


def quantile(waits: Sequence[float], part: float) -> float | None:
    """The wait, from sorted ones, that a further one is under with this probability; None where that is infinite.

    Of few waits: that of the lognormal distribution with their mean and spread.
    """
    if not waits or waits[-1] == 0.0:
        return 0.0 if waits else None
    count = len(waits)
    if count < FEW and waits[0] > 0 and waits[-1] < inf:
        logs = [log(wait) for wait in waits]
        mean = sum(logs) / count
        spread = sqrt(sum((each - mean) ** 2 for each in logs) / max(1, count - 1))
        return exp(mean + NormalDist().inv_cdf(part) * spread * sqrt(1 + 1 / count))
    place = min(max(part * (count + 1) - 1, 0.0), count - 1.0)
    low, high = waits[floor(place)], waits[ceil(place)]
    if high == inf:
        return None
    return low + (place - floor(place)) * (high - low)


def duration(seconds: float) -> str:
    """Two units at most: `3 d 4 h`, `25 min`, `40 s`."""
    whole = round(max(0.0, seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours + (minutes >= 30), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
