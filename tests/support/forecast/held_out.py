"""Plays simulated days with the real `decide` and true run times, and holds every forecast against what came of it.

A gang's first forecast is made as the controller makes it: a moment after it began to wait. The forecaster knows what a controller
knows: what ended before, what runs since when, what was declared; and how far its earlier forecasts were off. First there are only
runs, then forecasts from which the calibration learns, then those that count. Gangs are submitted on after the last of these, so that
the ends of the days do not make waits shorter than any cluster's.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from statistics import median

import msgspec
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.forecast.calibration import KEPT_MAX, Calibration, Outcome
from fairlead.engine.forecast.cluster import SimulatedCluster
from fairlead.engine.forecast.forecast import SAMPLES, CpuBudget, GangForecast, forecast
from fairlead.engine.forecast.run_times import GangKey, Progress, RunRecord, RunTimes
from fairlead.engine.forecast.submissions import Arrivals, Submissions
from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube import core, resource
from tests.support.engine.objects import gpu, one_claim_each
from tests.support.engine.world import World
from tests.support.forecast.days import DAY_S, REPORTS_AFTER_S, Days, Submission
from tests.support.forecast.oracles import ExactRunTimes, FutureArrivals, ProgramRunTimes

REFRESH_S = 1800.0  # between two forecasts where nothing new waits; a controller's is a minute
SETTLE_S = 2.0  # from when a gang begins to wait to its first forecast, as the controller's
LEAST_S = 10.0  # between two forecasts, as the controller's
HISTORY_MAX = 2000
TAIL_DAYS = 0.5  # of submissions after the last forecast that counts
SUBMITTED_S = 60.0  # a first forecast is made within so long after the submission, else after an eviction
SHORTEST_S = 60.0  # waits count as this at least in relative errors: nobody plans by seconds


class Knows(StrEnum):
    """Of a forecaster, besides the cluster as it is."""

    HISTORY = "history"  # what a controller does
    PROGRAMS = "programs"  # the true distribution of each program's run times
    RUNS = "runs"  # how long each run lasts, of what was submitted so far
    ALL = "all"  # and what will be submitted when: then only the simulation itself can be off


@dataclass(frozen=True, slots=True)
class Spans:
    """In days since the beginning: forecasts are made from `learn` on, count from `count` on, and end with `until`."""

    learn: float = 0.5
    count: float = 1.0
    until: float = 2.0


@dataclass(frozen=True, slots=True)
class Start:
    """Of one gang that had to wait: `wait_s` from a forecast to its start, `whole_s` from its submission.

    `first`: the first forecast since it began to wait, be it after its submission or after an eviction.
    """

    gang: str
    wait_s: float
    whole_s: float
    said: GangForecast
    as_of: float
    first: bool

    @property
    def evicted(self) -> bool:
        """Whether this first forecast is of a wait that began with an eviction, rather than with the submission."""
        return self.whole_s - self.wait_s > SUBMITTED_S

    @property
    def before_p90(self) -> bool:
        return self.said.p90 is not None and self.as_of + self.wait_s <= self.said.p90 + 1.0

    @property
    def error(self) -> float | None:
        """Of p50, as a part of the wait from the forecast on; None where no p50 was given."""
        return self._error(self.wait_s)

    @property
    def error_of_whole(self) -> float | None:
        """As a part of the time since the submission: of an evicted gang it contains the run before."""
        return self._error(self.whole_s)

    def _error(self, part_of_s: float) -> float | None:
        if self.said.p50 is None:
            return None
        return abs(self.said.p50 - self.as_of - self.wait_s) / max(part_of_s, SHORTEST_S)


@dataclass(slots=True)
class HeldOut:
    starts: list[Start] = field(default_factory=list)  # one for each forecast that was given to a gang
    spent_s: list[float] = field(default_factory=list)

    def before_p90(self, *, first: bool) -> float:
        """Share of starts before p90, of those for which there was one; by every forecast, or each wait's first only."""
        given = [each for each in self.starts if each.said.p90 is not None and (each.first or not first)]
        return sum(each.before_p90 for each in given) / max(1, len(given))

    def median_error(self, *, first: bool, of_whole: bool = False, evicted: bool | None = None) -> float:
        """Of p50, as a part of the wait from the forecast on, or of the time since the submission. `evicted`: only of such waits."""
        chosen = [each for each in self.starts if each.first or not first]
        if evicted is not None:
            chosen = [each for each in chosen if each.evicted == evicted]
        errors = [each.error_of_whole if of_whole else each.error for each in chosen]
        known = [each for each in errors if each is not None]
        return median(known) if known else 0.0

    @property
    def given(self) -> float:
        """Share of forecasts with a p50."""
        return sum(each.said.p50 is not None for each in self.starts) / max(1, len(self.starts))


class Reality:
    def __init__(self, days: Days) -> None:
        self.days = days
        self._programs = days.programs()
        self._submissions = days.submissions()
        world = World()
        for number in range(days.nodes):
            world.add_node(f"node-{number:04d}", [gpu(minor) for minor in range(days.node_gpus)])
        deserved = days.devices // days.teams
        self._snapshot = Snapshot(
            inventory=world.inventory,
            nodes=world.nodes,
            classes=world.classes,
            queues=tuple(
                QueueSpec(
                    name=f"team-{team}", uid=f"team-{team}", quotas=(FlavorQuota(flavor="gpu", deserved=deserved),)
                )
                for team in range(days.teams)
            ),
            flavors=(FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"'),),
        )
        self._cluster = SimulatedCluster(self._snapshot)
        self.engine = Engine()
        self._needs = PodNeeds.of(core.Pod())
        self.waiting: dict[str, GangRequest] = {}
        self._requests: dict[str, GangRequest] = {}
        self._true: dict[str, Submission] = {}
        self._ends: list[tuple[float, str, float]] = []
        self._started: dict[str, float] = {}
        self._gone: list[tuple[float, str]] = []
        self._due: float | None = None  # when time alone may change the decision
        self.history: list[RunRecord] = []
        self.outcomes: dict[Knows, list[Outcome]] = {each: [] for each in Knows}

    def play(
        self,
        *,
        seed: int,
        spans: Spans = Spans(),
        calibrated: bool = True,
        samples: int = SAMPLES,
        knows: Sequence[Knows] = (Knows.HISTORY,),
    ) -> dict[Knows, HeldOut]:
        """`spans` within the days that are submitted; of forecasts that count every gang's start is awaited."""
        found = {each: HeldOut() for each in knows}
        said: dict[str, list[tuple[dict[Knows, GangForecast], float]]] = {}
        submissions = self._submissions[::-1]
        due, last, until = spans.learn * DAY_S, 0.0, spans.until * DAY_S
        while submissions or self.waiting:
            now = min(self._next(submissions), due)
            if now == float("inf") or (now > until and not said):
                break
            while submissions and submissions[-1].at <= now:
                self._submit(submissions.pop())
            self._end(now)
            for gang_id in self._decide(now):
                self._note_start(gang_id, now, said.pop(gang_id, []), spans, found)
            if now < spans.learn * DAY_S:
                continue
            if now >= due:
                last = now
                result = {
                    each: self._forecast(now, seed, calibrated, samples, each, found[each]) if self.waiting else {}
                    for each in knows
                }
                for gang_id in self.waiting:
                    said.setdefault(gang_id, []).append(({each: result[each][gang_id] for each in knows}, now))
            unsaid = any(gang_id not in said for gang_id in self.waiting)
            due = max(last + LEAST_S, now + SETTLE_S) if unsaid else last + REFRESH_S
            if due > until:
                due = float("inf")
        return found

    def _note_start(
        self,
        gang_id: str,
        now: float,
        said: list[tuple[dict[Knows, GangForecast], float]],
        spans: Spans,
        found: dict[Knows, HeldOut],
    ) -> None:
        whole_s = now - self._requests[gang_id].created
        for number, (each, as_of) in enumerate(said):
            for knows, forecasted in each.items():
                if as_of >= spans.count * DAY_S:
                    start = Start(gang_id, now - as_of, whole_s, forecasted, as_of, first=number == 0)
                    found[knows].starts.append(start)
                raw50, raw90 = forecasted.raw
                if number == 0 and raw50 is not None and raw90 is not None:
                    self.outcomes[knows].append(Outcome(now - as_of, raw50, raw90))

    def _forecast(
        self, now: float, seed: int, calibrated: bool, samples: int, knows: Knows, found: HeldOut
    ) -> dict[str, GangForecast]:
        arrivals = Arrivals(self._requests.values(), since=0.0, now=now)
        if knows is Knows.ALL:
            arrivals = FutureArrivals(self._request(each) for each in self._submissions if each.at > now)
        run_times = self._run_times(now, knows)
        began = time.process_time()
        calibration = Calibration(self.outcomes[knows][-KEPT_MAX:]) if calibrated else Calibration()
        result = forecast(
            self.snapshot(),
            now,
            run_times,
            seed=seed,
            samples=samples,
            budget=CpuBudget(1.0, lambda: time.process_time() - began),
            submissions=Submissions(self._requests, arrivals),
            calibration=calibration,
        )
        found.spent_s.append(time.process_time() - began)
        return dict(result.gangs)

    def _run_times(self, now: float, knows: Knows) -> RunTimes:
        if knows is Knows.HISTORY:
            return RunTimes(self.records(now), dict(self.progress(now)))
        known = self._submissions if knows is Knows.ALL else list(self._true.values())
        if knows is Knows.PROGRAMS:
            return ProgramRunTimes(self._programs, failing=self.days.failing)
        return ExactRunTimes(known, self._programs, failing=self.days.failing)

    def progress(self, now: float) -> Iterator[tuple[str, Progress]]:
        """What running gangs report, by id."""
        for gang in self._cluster.running.values():
            true, elapsed_s = self._true[gang.id], now - gang.started
            if true.program.reports and elapsed_s >= REPORTS_AFTER_S:
                yield gang.id, Progress((true.run_s - elapsed_s) * true.said, now)

    def records(self, now: float) -> Iterator[RunRecord]:
        """What a controller knows of run times."""
        yield from self.history[-HISTORY_MAX:]
        for gang in self._cluster.running.values():
            limit_s = None if gang.ends_by is None else gang.ends_by - gang.started
            yield RunRecord(GangKey.of(gang), now - gang.started, False, limit_s)

    def snapshot(self) -> Snapshot:
        gangs = tuple(self.waiting[gang_id] for gang_id in sorted(self.waiting))
        return replace(self._snapshot, gangs=gangs, running=self._cluster.sequence())

    def _next(self, submissions: list[Submission]) -> float:
        times = [each[0][0] for each in (self._ends, self._gone) if each]
        times += [] if self._due is None else [self._due]
        return min([*times, *(each.at for each in submissions[-1:])], default=float("inf"))

    def _submit(self, each: Submission) -> None:
        request = self._request(each)
        self.waiting[request.id] = self._requests[request.id] = request
        self._true[request.id] = each

    def _request(self, each: Submission) -> GangRequest:
        program = each.program
        pods = [f"{each.name}-{number}" for number in range(program.size)]
        members, claims = one_claim_each(program.namespace, pods, self._needs, _spec(program.devices))
        return GangRequest(
            namespace=program.namespace,
            name=each.name,
            uid=each.name,
            size=program.size,
            queue=program.namespace,
            priority=program.priority,
            created=each.at,
            members=members,
            claims=claims,
            run_s=each.limit_s,
        )

    def _end(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, gang_id, started = heapq.heappop(self._ends)
            if self._started.get(gang_id) == started and gang_id in self._cluster.running:
                gang = self._cluster.running[gang_id]
                self._cluster.remove(gang_id)
                del self._started[gang_id]
                self.history.append(RunRecord(GangKey.of(gang), now - started, True, self._true[gang_id].limit_s))
        while self._gone and self._gone[0][0] <= now:
            _, gang_id = heapq.heappop(self._gone)
            self._cluster.remove(gang_id)
            self.waiting[gang_id] = self._requests[gang_id]

    def _decide(self, now: float) -> list[str]:
        plan = self.engine.decide(self.snapshot(), now)
        self._due = plan.due if plan.due is not None and plan.due > now else None
        started = []
        for admission in plan.admissions:
            self._cluster.start(admission, self.waiting.pop(admission.id), now)
            self._started[admission.id] = now
            heapq.heappush(self._ends, (now + self._true[admission.id].run_s, admission.id, now))
            started.append(admission.id)
        for eviction in plan.evictions:
            self._cluster.leave(eviction.id, {pod.uid for pod in eviction.pods})
            self._started.pop(eviction.id, None)
            heapq.heappush(self._gone, (now + 30.0, eviction.id))
            if eviction.beneficiary in self.waiting:
                self.waiting[eviction.beneficiary] = replace(self.waiting[eviction.beneficiary], preemptor=True)
        return started


@cache
def _spec(devices: int) -> resource.ResourceClaimSpec:
    request = {"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS, "count": devices}}
    return msgspec.convert({"devices": {"requests": [request]}}, resource.ResourceClaimSpec)
