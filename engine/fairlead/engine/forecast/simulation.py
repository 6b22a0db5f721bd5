"""One sample: `decide`, then on to when the next gangs end, and `decide` again, until all have started or the horizon is reached.

What ends close together is decided on together, in the middle of its times: within `Resolution.part` of the time since the beginning (2 % is half an hour in a
day). So a simulation of a day costs a few hundred decisions however many gangs end in it, and near starts are exact.
Evicted pods hold their devices for their checkpoint grace and `LEAVING_S`; then their gang queues again, if what it requests is known,
and runs for what it had left where it had time for a checkpoint, else all over again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import dropwhile, islice
from math import inf
from typing import TypeVar

from msgspec.structs import replace

from fairlead.engine.forecast.cluster import SimulatedCluster, pods_of
from fairlead.engine.forecast.pending_window import Kinds, PendingWindow, at_pace
from fairlead.engine.forecast.run_times import Draws, RunTimes
from fairlead.engine.forecast.submissions import Submissions
from fairlead.engine.inventory.device import Device
from fairlead.engine.plan.decide import Engine
from fairlead.engine.queues.limits import gangs_on_hold
from fairlead.engine.reclaim.releasing import awaited_until
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest, RunningGang, RunningMember
from fairlead.engine.types.plan import Admission, Eviction, Plan
from fairlead.kube.containment import contained, described

T = TypeVar("T")

LEAVING_S = 30.0  # a deleted pod, until its devices are free
TURNS_MAX = 12  # decisions at one instant
COMING_MAX = 1_000  # submissions after the horizon


@dataclass(frozen=True, slots=True)
class Resolution:
    """How fine a simulation is. `window`: waiting gangs that a decision looks at."""

    part: float = 0.02
    least_s: float = 1.0
    window: int = 400

    def gap_s(self, since_s: float) -> float:
        return max(self.least_s, self.part * since_s)


@dataclass(slots=True)
class Sample:
    """`starts`: unix seconds by gang id, of those that started before `until`. `evicted`: gangs, in order, with when and for which gang."""

    until: float
    starts: dict[str, float] = field(default_factory=dict)
    after: dict[str, tuple[str, ...]] = field(default_factory=dict)  # gangs whose end came just before the start
    evicted: list[tuple[float, str, str]] = field(default_factory=list)
    used: list[tuple[float, int]] = field(default_factory=list)  # when, and devices in use from then on
    decisions: int = 0


class Simulation:
    """Simulates from one snapshot, whose tables are used for nothing else meanwhile; each sample leaves them as they were."""

    def __init__(
        self,
        snapshot: Snapshot,
        now: float,
        run_times: RunTimes,
        *,
        horizon_s: float,
        resolution: Resolution | None = None,
        submissions: Submissions | None = None,
        engine: Engine | None = None,
    ) -> None:
        """`engine`: one that has decided on the tables before, where there is one.

        Gangs that are on hold stay so: they start in no future, and hold up none.
        """
        self.on_hold = gangs_on_hold(snapshot)
        if self.on_hold:
            held = {gang.id for gang in self.on_hold}
            snapshot = replace(snapshot, gangs=tuple(gang for gang in snapshot.gangs if gang.id not in held))
        self._kinds = Kinds()
        self.failures: dict[str, str] = {}  # gangs that cannot be computed, left out: what was raised
        for gang in snapshot.gangs:
            with contained(partial(self._failed, gang.id)):
                self._kinds.of(gang)
        if self.failures:
            snapshot = replace(snapshot, gangs=tuple(gang for gang in snapshot.gangs if gang.id not in self.failures))
        self.snapshot = snapshot
        self.now = now
        self.run_times = run_times
        self.horizon_s = horizon_s
        self.resolution = resolution or Resolution()
        self.engine = engine or Engine()
        self.submissions = submissions or Submissions()
        self.queues: Mapping[str, str] = {}  # by gang id, where known; for `at_pace`
        self.paced_until = 0.0  # unix seconds: starts between the horizon and this time are those of `at_pace`
        self.first_plans: dict[int, Plan] = {}  # the first decision, which no draw changes, by `Resolution.window`
        self.stay = frozenset[str]()  # ids of gangs that do not start, as is known: no sample waits for them
        self._cluster = SimulatedCluster(snapshot)
        self._requests = {gang.id: gang for gang in snapshot.gangs}

    def _failed(self, gang_id: str, error: Exception) -> None:
        self.failures[gang_id] = described(error)

    def sample(self, draws: Draws, out_of_budget: Callable[[], bool] = lambda: False) -> Sample:
        """`out_of_budget` ends it early, at a time that the sample states."""
        try:
            return _Run(self, self._cluster, draws, out_of_budget).run()
        finally:
            self._cluster.restore()

    @cached_property
    def default_queues(self) -> dict[str, str]:
        """By namespace, of the gangs that wait and name none."""
        return {gang.namespace: self.queues.get(gang.id, "") for gang in self.snapshot.gangs if not gang.queue}

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset(gang.id for gang in self.snapshot.gangs if gang.whole and gang.id not in self.stay)

    def for_alike(self, found: Mapping[str, T]) -> dict[str, T]:
        """For each waiting gang that is of the kind of one of these, what is found for that, by id."""
        kinds = {self._kinds.of(gang): found[gang.id] for gang in self.snapshot.gangs if gang.id in found}
        return {gang.id: kinds[kind] for gang in self.snapshot.gangs if (kind := self._kinds.of(gang)) in kinds}

    def window(self) -> PendingWindow:
        return PendingWindow(
            (gang for gang in self.snapshot.gangs if gang.whole), self._kinds, most=self.resolution.window
        )


def requested_devices(gang: GangRequest) -> int:
    """At least; `All` and alternatives count as one device each."""
    return sum(
        (request.exactly.count or 1) if request.exactly is not None else 1
        for claim in gang.claims
        for request in claim.spec.devices.requests
    )


Event = tuple[float, int, str, int]  # when, what, gang, its how manieth run
_END, _GONE, _RELEASED, _DUE = range(4)  # of a released device there is its name instead of a gang's


def _gone_at(leaving: Iterable[RunningMember], now: float) -> float:
    """When the last of these pods has gone. One that has been leaving for longer than usual takes as long again."""
    times = [now]
    for each in leaving:
        since = each.leaving_since if each.evicted_at is None else each.evicted_at
        asked = now if since is None else since
        times.append(_ended_at(asked, now))
    return max(times)


def _ended_at(asked: float, now: float) -> float:
    return asked + LEAVING_S if asked + LEAVING_S > now else now + (now - asked)


class _Run:
    def __init__(
        self, simulation: Simulation, cluster: SimulatedCluster, draws: Draws, out_of_budget: Callable[[], bool]
    ) -> None:
        self._of = simulation
        self._cluster = cluster
        self._draws = draws
        self._out_of_budget = out_of_budget
        self._window = simulation.window()
        self._requests = {**simulation.submissions.again, **{gang.id: gang for gang in simulation.snapshot.gangs}}
        self._left = set(simulation.wanted)  # gangs that have not started yet
        self._run_number: dict[str, int] = {}
        self._ends: dict[str, float] = {}
        self._left_s: dict[str, float] = {}  # of evicted gangs that had time for a checkpoint
        self._leaving: dict[str, set[str]] = {}  # pods by gang
        self._releasing: dict[str, Device] = {}  # by name, those that their nodes are releasing
        self._evicted: set[str] = set()  # gangs whose eviction was under way
        self._events: list[Event] = []
        self._charged: dict[tuple[str, str], int] = {}  # to ResourceQuotas, by namespace and resource
        self._started: set[str] = set()  # gangs that run and started in this sample
        self._sample = Sample(until=simulation.now + simulation.horizon_s)
        arrivals = simulation.submissions.new
        self._arriving = iter(()) if arrivals is None else arrivals.drawn(draws)
        self._next_arrival = next(self._arriving, None)

    def run(self) -> Sample:
        now = self._of.now
        for gang in self._of.snapshot.running:
            leaving = [member for member in gang.members if member.leaving]
            if leaving:
                self._leaving[gang.id] = pods_of(leaving)
                self._push(_gone_at(leaving, now), _GONE, gang.id)
            if leaving and len(leaving) == len(gang.members):
                if any(member.evicted_at is not None for member in leaving):
                    self._evicted.add(gang.id)
                continue
            end = self._of.run_times.ends_at(gang, gang.started, now, self._draws, ends_by=gang.ends_by)
            self._ends[gang.id] = end
            self._push(end, _END, gang.id)
        for device in self._of.snapshot.inventory.releasing():
            if awaited_until(device, now) > now:
                self._releasing[str(device.ref)] = device
                self._push(_ended_at(device.kind.releasing_since or now, now), _RELEASED, str(device.ref))
        self._decide(now, ())
        while self._left and self._events:
            if self._out_of_budget():
                self._sample.until = now
                break
            before, first = now, max(now, self._next())
            if first > self._sample.until:
                break
            last, latest = first, min(first + self._of.resolution.gap_s(first - self._of.now), self._sample.until)
            ended: list[str] = []
            while self._events and self._events[0][0] <= latest:
                at, what, gang_id, number = heapq.heappop(self._events)
                if self._happen(what, gang_id, number):
                    last = max(last, at)
                    if what not in {_DUE, _RELEASED}:
                        ended.append(gang_id)
            last = max(last, self._arrive(latest))
            now = max(before, (first + last) / 2)
            if self._window:
                self._decide(now, tuple(ended))
        else:
            return self._sample  # all have started, or nothing is left that ends: the others never start
        if self._of.paced_until > self._sample.until:
            self._extrapolate(self._sample.until)
        return self._sample

    def _extrapolate(self, now: float) -> None:
        running: dict[str, list[tuple[float, int]]] = {}
        for gang in self._cluster.running.values():
            end = max(now, self._ends.get(gang.id, now))
            running.setdefault(self._queue_of(self._requests.get(gang.id) or gang), []).append(
                (end, self._cluster.devices_of(gang))
            )
        times = self._of.run_times

        def run_s(gang: GangRequest) -> float:
            limit = None if gang.run_s is None else now + gang.run_s
            return times.ends_at(gang, now, now, self._draws, ends_by=limit) - now

        starts = at_pace(
            [gang for gang in self._window.all() if gang.id not in self._of.stay],
            now=now,
            until=self._of.paced_until,
            queue_of=self._queue_of,
            devices_of=requested_devices,
            run_s_of=run_s,
            running=running,
            coming=self._coming(),
        )
        self._sample.starts |= {gang: at for gang, at in starts.items() if gang in self._left}

    def _coming(self) -> Iterator[tuple[float, GangRequest]]:
        """What is submitted in this sample after what it has taken in: so much of it that the budget of CPU holds."""
        arrivals, first = self._of.submissions.new, self._next_arrival
        if arrivals is None or first is None:
            return iter(())
        return islice(dropwhile(lambda each: each[0] < first.created, arrivals.times(self._draws)), COMING_MAX)

    def _queue_of(self, gang: GangRequest | RunningGang) -> str:
        of = self._of
        return of.queues.get(gang.id) or gang.queue or of.default_queues.get(gang.namespace, "")

    def _next(self) -> float:
        """When something happens next. An arrival counts, as it may fit, or evict others."""
        arrival = self._next_arrival
        return self._events[0][0] if arrival is None else min(self._events[0][0], arrival.created)

    def _arrive(self, latest: float) -> float:
        """What comes until then; when the last of it does."""
        last = 0.0
        while (gang := self._next_arrival) is not None and gang.created <= latest:
            last = gang.created
            self._requests[gang.id] = gang
            self._window.add(gang)
            self._next_arrival = next(self._arriving, None)
        return last

    def _push(self, at: float, what: int, gang_id: str) -> None:
        heapq.heappush(self._events, (at, what, gang_id, self._run_number.get(gang_id, 0)))

    def _happen(self, what: int, gang_id: str, number: int) -> bool:
        """Whether it did: what was planned for an earlier run of the gang does not."""
        if what == _DUE:
            return True
        if what == _RELEASED:
            self._cluster.release(self._releasing[gang_id])
            return True
        if number != self._run_number.get(gang_id, 0) or gang_id not in self._cluster.running:
            return False
        if what == _END:
            self._remove(gang_id)
            return True
        gang, leaving = self._cluster.running[gang_id], self._leaving.pop(gang_id, set())
        if pods_of(gang.members) - leaving:
            self._cluster.remove(gang_id, leaving)
            return True
        self._remove(gang_id)
        self._run_number[gang_id] = number + 1
        request = self._requests.get(gang_id)
        if request is not None and request.whole and (gang_id in self._ends or gang_id in self._evicted):
            self._requests[gang_id] = request = replace(request, preemptor=False, hold=gang.hold)
            self._window.add(request)
        return True

    def _remove(self, gang_id: str) -> None:
        self._cluster.remove(gang_id)
        if gang_id in self._started:
            self._started.remove(gang_id)
            self._charge(gang_id, -1)

    def _decide(self, now: float, ended: tuple[str, ...]) -> None:
        """As often as it takes until no more of the kinds that start wait."""
        due: float | None = None
        for _ in range(TURNS_MAX):
            shown = self._window.shown()
            plan = self._plan(shown, now)
            self._sample.decisions += 1
            for admission in plan.admissions:
                self._start(admission, now, ended)
            again = self._window.started(shown, {each.id for each in plan.admissions})
            for eviction in plan.evictions:
                self._evict(eviction, now)
            due = plan.due
            if not again or self._out_of_budget():
                break
        self._sample.used.append((now, self._cluster.devices_in_use))
        if due is not None and due > now and self._window:
            self._push(due, _DUE, "")

    def _plan(self, shown: tuple[GangRequest, ...], now: float) -> Plan:
        if self._sample.decisions:
            return self._of.engine.decide_unexplained(self._snapshot(shown), now)
        window, known = self._of.resolution.window, self._of.first_plans
        if window not in known:
            known[window] = self._of.engine.decide_unexplained(self._snapshot(shown), now)
        return known[window]

    def _snapshot(self, gangs: tuple[GangRequest, ...]) -> Snapshot:
        quotas = self._of.snapshot.namespace_quotas
        if quotas and self._charged:
            quotas = tuple(
                replace(each, used=each.used + self._charged.get((each.namespace, each.resource), 0)) for each in quotas
            )
        return replace(self._of.snapshot, gangs=gangs, running=self._cluster.sequence(), namespace_quotas=quotas)

    def _charge(self, gang_id: str, sign: int) -> None:
        """ResourceQuotas count what starts here, and no longer what ends that started here; what ran before they count on."""
        request = self._requests[gang_id]
        for resource, count in request.quota_charge:
            key = (request.namespace, resource)
            self._charged[key] = self._charged.get(key, 0) + sign * count

    def _start(self, admission: Admission, now: float, ended: tuple[str, ...]) -> None:
        gang_id = admission.id
        request = self._requests[gang_id]
        joins = gang_id in self._cluster.running
        self._cluster.start(admission, request, now)
        self._started.add(gang_id)
        self._charge(gang_id, 1)
        if gang_id in self._left:
            self._left.remove(gang_id)
            self._sample.starts[gang_id] = now
            self._sample.after[gang_id] = ended
        if joins:
            return
        gang = self._cluster.running[gang_id]
        left_s = self._left_s.pop(gang_id, None)
        if left_s is not None:
            end = now + left_s
        else:
            end = self._of.run_times.ends_at(gang, now, now, self._draws, ends_by=gang.ends_by)
        self._ends[gang_id] = end
        self._push(end, _END, gang_id)

    def _evict(self, eviction: Eviction, now: float) -> None:
        gang_id = eviction.id
        if eviction.kind == "Replace" or gang_id not in self._cluster.running:
            return
        pods = {pod.uid for pod in eviction.pods}
        self._sample.evicted.append((now, gang_id, eviction.beneficiary))
        self._cluster.leave(gang_id, pods)
        self._leaving[gang_id] = self._leaving.get(gang_id, set()) | pods
        gone = now + eviction.checkpoint_grace_s + LEAVING_S
        if eviction.whole:
            if eviction.checkpoint_grace_s:
                self._left_s[gang_id] = max(0.0, self._ends.get(gang_id, inf) - gone)
            self._run_number[gang_id] = self._run_number.get(gang_id, 0) + 1
        self._push(gone, _GONE, gang_id)
        beneficiary = self._requests.get(eviction.beneficiary)
        if beneficiary is not None and not beneficiary.preemptor and beneficiary in self._window:
            changed = self._requests[beneficiary.id] = replace(beneficiary, preemptor=True)
            self._window.replace(beneficiary, changed)
