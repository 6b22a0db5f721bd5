"""When forecasts are made, and what becomes of them: shown in Gang status, counted in metrics, and learned from.

Made anew a moment after something changed, and each minute while gangs wait. One at a time, never while a decision is made in its
thread, and not again before `PAUSE_FACTOR` times as long as the last one took on the loop's own time. Their processes together take
`CPU_PART` of a core at most, and `IDLE_CPU_PART` while nothing changes. None is made where the container has too little memory left
(`forked`). What keeps forecasts from being made is logged when it begins, and shown with those that are older than `STALE_S`.

What running gangs report of their own progress, by an annotation on a pod or by their TrainJob's status, counts. Not believed: what is
no time or no number, what was said before the gang's present run began, and an end that is `OVERDUE_S` past, as of a program that
stopped reporting.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from time import process_time

from fairlead.api import names
from fairlead.controller.cycle import Cycle
from fairlead.controller.forecasting.forked import HEADROOM_MIN_BYTES, Failure, Forked, Memory, bound_bytes
from fairlead.controller.forecasting.history import Checkpoint, RunHistory
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.reporting import Reporting
from fairlead.controller.snapshot import SnapshotBuilder
from fairlead.controller.watch.caches import Caches
from fairlead.engine.forecast.forecast import CpuBudget, Forecast, forecast
from fairlead.engine.forecast.run_times import Progress, RunTimes
from fairlead.engine.forecast.submissions import Submissions
from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import RunningGang
from fairlead.engine.types.plan import Plan
from fairlead.kube import timestamps
from fairlead.kube.timing import Time

log = logging.getLogger(__name__)

REFRESH_S = 60.0
SETTLE_S = 2.0  # changes come in bursts
LEAST_S = 10.0  # between two forecasts
PAUSE_FACTOR = 50
CPU_PART = 0.02  # of a core
IDLE_CPU_PART = 0.005  # that a gang waits, and nothing else happens, is to cost less than a hundredth of a core
BUDGET_S = 1.0  # of CPU
TIMEOUT_S = 30.0
STALE_S = 300.0  # without a new forecast, before the old ones say so
REST_S = 300.0  # after one that took too much memory: the next one would, too
MADE, NO_MEMORY = "made", "no_memory"
USER_DIGITS = 12  # of a hash: enough for two of thousands of users hardly ever to be taken for one
SEED = 17  # the same for every forecast: they differ in what has changed, not in their draws


class Forecaster:
    """One per term of leadership."""

    def __init__(
        self,
        caches: Caches,
        snapshots: SnapshotBuilder,
        cycle: Cycle,
        reporting: Reporting,
        checkpoint: Checkpoint,
        metrics: Metrics,
        time: Time,
        memory: Memory | None = None,
    ) -> None:
        self._history = checkpoint.history
        self._caches = caches
        self._snapshots = snapshots
        self._cycle = cycle
        self._shown = reporting.forecasts
        self._report = reporting.report
        self._checkpoint = checkpoint
        self._metrics = metrics
        self._clock, self._wall, self._sleep = time.clock, time.wall, time.sleep
        self._memory = memory or Memory()
        self._outcome = MADE  # of the last one
        self._made_at = time.clock()
        self._cpu_s = 0.0  # what the process of the last one took
        self._waiting = True  # any gang, when it was last looked

    async def run(self) -> None:
        """Never returns."""
        await self._checkpoint.read()
        last, at = -1, self._clock()
        while True:
            await self._sleep(SETTLE_S)
            if self._cycle.deciding or not self._cycle.decisions:
                continue
            unchanged = self._cycle.decisions == last
            if unchanged and self._clock() - at < max(REFRESH_S, self._cpu_s / IDLE_CPU_PART):
                continue
            last, at = self._cycle.decisions, self._clock()
            try:
                busy_s = await self.refresh(self._wall())
            except Exception:  # a forecast that fails must not end the term
                log.exception("a forecast failed; the next one is made in a minute")
                self._metrics.errors.labels("forecast").inc()
                busy_s = 0.0
            await self._checkpoint.write()
            if not self._waiting:  # the first gang that waits is forecast soon
                await self._sleep(PAUSE_FACTOR * busy_s)
                continue
            rest_s = REST_S if self._outcome == Failure.MEMORY else LEAST_S
            await self._sleep(max(rest_s, PAUSE_FACTOR * busy_s, self._cpu_s / CPU_PART))

    async def refresh(self, now: float) -> float:
        """One forecast. Returns for how long it held the loop."""
        began = self._clock()
        snapshot = self._snapshots.build(now)
        try:
            left_out = self._history.note(snapshot.gangs, snapshot.running, now, self._evicted, self._user)
            for gang_id, text in left_out.items():
                self._metrics.failures.note("history", f"gang {gang_id}", text)
            self._waiting = bool(snapshot.gangs)
            if not snapshot.gangs:
                self._made_at = began
                return self._clock() - began
            headroom = self._memory.headroom()
            bound = bound_bytes(headroom)
            if headroom is not None and bound is None:
                self._without(NO_MEMORY, _too_little(headroom))
                return self._clock() - began
            times, engine = self._run_times(snapshot.running, now), self._caches.tables.engine
            work = partial(compute, snapshot, now, times, self._history, engine)
            # Now, while the tables are as the snapshot says.
            simulating = Forked(work, bound_bytes=bound, memory=self._memory)
        finally:
            self._snapshots.decided(Plan())
        busy_s = self._clock() - began
        found = await simulating.answer(TIMEOUT_S)
        self._cpu_s = simulating.cpu_s
        self._metrics.forecast_memory_bytes.set(simulating.peak_bytes)
        if found is None:
            self._without(simulating.failure or Failure.DIED, simulating.text)
        else:
            self._made(found, now)
        return busy_s

    def _made(self, found: Forecast, now: float) -> None:
        for gang_id, text in found.failures.items():
            self._metrics.failures.note("forecast", f"gang {gang_id}", text)
        if self._outcome != MADE:
            log.info("forecasts are made again")
        self._outcome, self._made_at = MADE, self._clock()
        self._metrics.forecasts.labels(MADE).inc()
        self._metrics.forecast_seconds.observe(found.spent_s)
        waits = self._snapshots.waiting
        waiting = {gang: said for gang, said in found.gangs.items() if tuple(gang.split("/", 1)) in waits}
        self._report(self._shown.set(waiting, now), self._wall())

    def _without(self, outcome: str, why: str) -> None:
        """None was made. The same cause is logged once."""
        log.log(logging.DEBUG if outcome == self._outcome else logging.WARNING, "no forecast: %s", why)
        self._outcome = outcome
        self._metrics.forecasts.labels(outcome).inc()
        if self._clock() - self._made_at >= STALE_S:
            self._report(self._shown.not_renewed(why), self._wall())

    def _run_times(self, running: Iterable[RunningGang], now: float) -> RunTimes:
        reported = progress(running, self._caches.gangs, self._caches.train_jobs.report, now)
        return RunTimes(self._history.records(now), dict(reported), self._history.users())

    def _user(self, gang: str) -> str:
        """As the webhook wrote it on the pods, hashed: users are told apart, and the history of runs has none of their names."""
        namespace, _, name = gang.partition("/")
        known = self._caches.gangs.get((namespace, name))
        said = (
            () if known is None else (member.pod.metadata.annotations.get(names.USER, "") for member in known.members)
        )
        user = next(filter(None, said), "")
        return user and hashlib.sha256(user.encode()).hexdigest()[:USER_DIGITS]

    def _evicted(self, gang: str) -> bool:
        """Whether a gang that holds nothing any more waits again, or is to be recreated."""
        namespace, _, name = gang.partition("/")
        known = self._caches.gangs.get((namespace, name))
        return known is not None and (
            bool(known.gated) or self._caches.records.past_eviction(known, self._wall()) is not None
        )


def _too_little(headroom: int) -> str:
    return (
        f"the controller's container has {headroom >> 20:,} MiB of memory left, and a forecast is made from "
        f"{HEADROOM_MIN_BYTES >> 20:,} MiB on; raise its limit"
    )


def compute(snapshot: Snapshot, now: float, run_times: RunTimes, history: RunHistory, engine: Engine) -> Forecast:
    """In the child, which has a copy of the engine's caches."""
    began = process_time()
    return forecast(
        snapshot,
        now,
        run_times,
        seed=SEED,
        budget=CpuBudget(BUDGET_S, lambda: process_time() - began),
        submissions=Submissions(history.requests(), history.arrivals(now)),
        calibration=history.calibration,
        engine=engine,
    )


OVERDUE_S = 600.0

Reported = Callable[[str, Mapping[str, str]], Progress | None]
"""What the TrainJob of a pod says, by the pod's namespace and labels."""


def progress(
    running: Iterable[RunningGang], gangs: Mapping[GangId, Gang], reported: Reported, now: float
) -> Iterator[tuple[str, Progress]]:
    """By gang id, of those of which it is known."""
    for each in running:
        gang = gangs.get((each.namespace, each.name))
        found = None if gang is None else _annotated(gang, now) or _of_train_job(gang, reported, each.started, now)
        if found is not None and found.at + found.left_s >= now - OVERDUE_S:
            yield each.id, Progress(max(0.0, found.left_s), found.at)


def _annotated(gang: Gang, now: float) -> Progress | None:
    """The latest end that a pod names."""
    texts = (member.pod.metadata.annotations.get(names.EXPECTED_END) for member in gang.released)
    ends = [end for text in texts if (end := timestamps.parsed(text)) is not None]
    return Progress(max(ends) - now, now) if ends else None


def _of_train_job(gang: Gang, reported: Reported, started: float, now: float) -> Progress | None:
    said = (reported(gang.namespace, member.pod.metadata.labels) for member in gang.released)
    found = next(filter(None, said), None)
    if found is None or found.at < started:
        return None
    return Progress(found.left_s, min(found.at, now))  # a clock that is ahead
