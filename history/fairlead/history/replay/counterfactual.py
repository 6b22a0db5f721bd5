"""A recorded span of time lived again in virtual time, under the recorded policy or another one, with the controller's `decide`.

Gangs come when they came, with what they asked for, and run as long as their last recorded run; nodes, slices and classes change as
recorded. An evicted gang starts from the beginning. Decisions take no time; writes, image pulls and binding take none either, so compare two lives of the same
day, not a life with the record. Not known from a recording, and so assumed: how long a gang runs that never ran (the median of its
queue, else of all), and what a gang asked for that ran when the recording began (evicted, it does not come back).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from fairlead.engine.inventory.allocated import AllocatedClaim, AllocatedDevice
from fairlead.engine.plan.decide import decide as decide_now
from fairlead.engine.queues.usage_history import RememberedUsage, UsageHistory
from fairlead.engine.types.amounts import amount, qualified
from fairlead.engine.types.gangs import RunningGang, RunningMember
from fairlead.engine.types.neighbours import PodIdentity
from fairlead.history.facts import form, read
from fairlead.history.facts.state import State
from fairlead.history.replay.totals import Totals, size_of

if TYPE_CHECKING:
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.plan import Admission, ClaimAllocation, Eviction, Plan
    from fairlead.engine.types.settings import FlavorSpec, QueueSpec
    from fairlead.history.replay.day import Day, Job, Key

DUE_LEAST_S = 1.0  # between two decisions that time alone asks for
EVENTS_MAX = 5_000_000


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What differs from the recording; `queues` and `flavors` replace those of their names.

    `changes` are in order (unix seconds, `queues` from then on): quotas by the time of day.
    """

    queues: tuple[QueueSpec, ...] = ()
    changes: tuple[tuple[float, tuple[QueueSpec, ...]], ...] = ()
    flavors: tuple[FlavorSpec, ...] = ()
    usage_weight: float | None = None
    half_life_s: float = 7 * 86_400.0


@dataclass(slots=True)
class Life:
    """What became of one gang."""

    started: float | None = None  # the first time
    ended: float | None = None
    evicted: int = 0
    queue: str = ""
    devices: float = 0.0


@dataclass(slots=True)
class Outcome:
    lives: dict[Key, Life] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    decisions: int = 0
    evictions: int = 0
    lost_s: float = 0.0  # device-seconds of runs that an eviction ended
    assumed: int = 0  # gangs whose run time is assumed
    lost_gangs: int = 0  # evicted gangs that could not come back


@dataclass(slots=True)
class _Run:
    job: Job
    running: RunningGang
    started: float
    token: int
    devices: float
    claims: tuple[str, ...]  # its own, in the inventory
    pods: tuple[str, ...]


def live(day: Day, policy: Policy, *, decide: Callable[[Snapshot, float], Plan] = decide_now) -> Outcome:
    """From the first recorded decision to the last."""
    return _Life(day, policy, decide).run()


class _Life:
    def __init__(self, day: Day, policy: Policy, decide: Callable[[Snapshot, float], Plan]) -> None:
        self.day = day
        self.policy = policy
        self.decide = decide
        self.now = day.began
        self.outcome = Outcome()
        self.state = State()
        self.queues: tuple[QueueSpec, ...] = ()
        self.ours = policy.queues  # the policy's, as they are now
        self.spent: dict[str, int] = {}  # evictions by queue
        self.waiting: dict[str, tuple[Job, GangRequest]] = {}
        self.runs: dict[str, _Run] = {}
        self.usage = UsageHistory(policy.half_life_s)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.due: float | None = None
        self.run_s = _run_times(day.jobs.values())

    # -- the day ---------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        self._begin()
        for number, (at, _, act) in enumerate(iter(self._next, None)):
            if at > self.day.ended or number >= EVENTS_MAX:
                break
            self._pass(at)
            act()
            if not self.events or self.events[0][0] > at:
                self._decide()
        self._pass(self.day.ended)
        return self.outcome

    def _next(self) -> tuple[float, int, Callable[[], None]] | None:
        return heapq.heappop(self.events) if self.events else None

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.events, (max(when, self.now), next(self.numbers), act))

    def _begin(self) -> None:
        day = self.day
        self._cluster(day.cluster[0][1])
        self.state.workload = read.workload(day.workload, day.mix)
        self.usage.restore({q.uid or q.name: RememberedUsage(dict(q.past_usage), day.began) for q in self.queues})
        for at, facts in day.cluster[1:]:
            self._at(at, lambda facts=facts: self._cluster(facts))  # type: ignore[misc]
        for at, queues in self.policy.changes:
            self._at(at, lambda queues=queues: self._set_ours(queues))  # type: ignore[misc]
        for key, job in day.jobs.items():
            self.outcome.lives[key] = Life()
            if job.initial:
                self._resume(job)
            elif job.request is not None:
                self._at(job.arrived, lambda job=job: self._arrive(job))  # type: ignore[misc]
        for at, key in day.withdrawn:
            self._at(at, lambda key=key: self._withdraw(key))  # type: ignore[misc]
        self._at(day.began, lambda: None)

    def _pass(self, at: float) -> None:
        self.outcome.totals.pass_time(at - self.now, len(self.waiting))
        self.now = at
        self.usage.tick(at)

    def _cluster(self, facts: form.Facts) -> None:
        self.state.apply(facts)
        self._set_queues()
        self.outcome.totals.set_capacity(self.state.inventory)

    def _set_ours(self, queues: tuple[QueueSpec, ...]) -> None:
        self.ours = queues
        self._set_queues()

    def _set_queues(self) -> None:
        ours = {queue.name: queue for queue in self.ours}
        self.queues = tuple(
            queue if queue.uid else replace(queue, uid=queue.name)
            for _, queue in sorted({**self.state.queues.by_key, **ours}.items())
        )

    def _arrive(self, job: Job) -> None:
        assert job.request is not None
        self.waiting[job.id] = (job, replace(job.request, preemptor=False))

    def _withdraw(self, key: Key) -> None:
        """It was deleted before it ran; here it may run: then it is deleted as well."""
        if key[0] in self.waiting and self.waiting[key[0]][0].created == key[1]:
            del self.waiting[key[0]]
        elif key[0] in self.runs and self.runs[key[0]].job.created == key[1]:
            self._end(key[0], self.runs[key[0]].token)

    # -- runs ------------------------------------------------------------------------------------------------------

    def _resume(self, job: Job) -> None:
        """It ran when the recording began; its pods and claims are there."""
        assert job.running is not None
        claims = [self.state.inventory.claim(uid) for uid in job.running.claims]
        devices = size_of(
            self.state.inventory, (each.ref for claim in claims if claim for each in claim.devices if not each.admin)
        )
        pods = tuple(member.pod.uid for member in job.running.members)
        run = _Run(job, job.running, job.running.started, next(self.numbers), devices, job.running.claims, pods)
        self._begin_run(run, job.running.started + (job.run_s or 0.0))

    def _begin_run(self, run: _Run, ends: float) -> None:
        job = run.job
        self.runs[job.id] = run
        life = self.outcome.lives[job.id, job.created]
        life.started = run.started if life.started is None else life.started
        life.queue, life.devices, life.ended = run.running.queue or "", run.devices, None
        self.outcome.totals.take(run.devices)
        if not job.open or not job.initial:
            self._at(ends, lambda: self._end(job.id, run.token))

    def _end(self, gang_id: str, token: int) -> None:
        """Finished, or gone after its eviction; a run of an earlier token has ended already."""
        run = self.runs.get(gang_id)
        if run is None or run.token != token:
            return
        del self.runs[gang_id]
        for uid in run.claims:
            self.state.inventory.drop_claim(uid)
        for uid in run.pods:
            self.state.nodes.drop_pod(uid)
        self.outcome.totals.take(-run.devices)
        self.outcome.lives[run.job.id, run.job.created].ended = self.now

    # -- decisions -------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        if self.now >= self.day.ended:
            return
        plan = self.decide(self._snapshot(), self.now)
        self.outcome.decisions += 1
        for eviction in plan.evictions:
            self._evict(eviction)
        for admission in plan.admissions:
            self._admit(admission)
        self.usage.note(self.queues, plan.queues, plan.flavors, self.now)
        self.outcome.totals.note(plan)
        if plan.due is not None and (self.due is None or not self.now < self.due <= plan.due):
            self.due = max(plan.due, self.now + DUE_LEAST_S)
            self._at(self.due, lambda: None)
        if plan.admissions or plan.evictions:
            self._at(
                self.now + 0.001, lambda: None
            )  # what is left over is decided on the outcome, as the controller does

    def _snapshot(self) -> Snapshot:
        queues = self.usage.with_past_usage(self.queues, self.now)
        left = tuple(
            queue
            if queue.evictions_left is None
            else replace(queue, evictions_left=max(0, queue.evictions_left - self.spent.get(queue.name, 0)))
            for queue in queues
        )
        flavors = {**self.state.flavors.by_key, **{flavor.name: flavor for flavor in self.policy.flavors}}
        settings = self.day.settings
        weight = settings.usage_weight if self.policy.usage_weight is None else self.policy.usage_weight
        return replace(
            self.state.snapshot(),
            gangs=tuple(self.waiting[gang_id][1] for gang_id in sorted(self.waiting)),
            running=tuple(run.running for _, run in sorted(self.runs.items(), key=lambda entry: entry[0])),
            queues=left,
            flavors=tuple(flavor for _, flavor in sorted(flavors.items())),
            namespace_quotas=(),
            usage_weight=weight,
            reserve_after_s=settings.reserve_after_s,
            search_steps=settings.search_steps,
            namespace_steps=settings.namespace_steps,
        )

    def _admit(self, admission: Admission) -> None:
        job, request = self.waiting.pop(admission.id)
        inventory, nodes = self.state.inventory, self.state.nodes
        node_of = {assigned.pod: assigned.node for assigned in admission.assignments}
        for member in request.members:
            identity = PodIdentity(namespace=member.pod.namespace, labels=dict(member.labels))
            nodes.set_needs(member.pod.uid, node_of[member.pod], member.needs, identity)
        own = [claim for claim in admission.claims if not claim.already_allocated]
        for claim in own:
            inventory.set_allocated(_allocated(claim))
        devices = size_of(
            inventory, (each.device for claim in own for each in claim.allocation.results if not each.admin_access)
        )
        before = job.running
        running = RunningGang(
            namespace=request.namespace,
            name=request.name,
            uid=request.uid,
            queue=admission.queue or None,
            claims=tuple(claim.key for claim in admission.claims),
            namespace_labels=request.namespace_labels,
            priority=request.priority,
            created=request.created,
            started=self.now,
            size=request.size,
            members=tuple(
                RunningMember(pod=member.pod, node=node_of[member.pod], claims=member.claims, started=self.now)
                for member in request.members
            ),
            ends_by=None if request.run_s is None else self.now + request.run_s,
            **({} if before is None else _of_its_own(before)),
        )
        run_s = job.run_s
        if run_s is None:
            run_s = self.run_s(job)
            self.outcome.assumed += 1
        pods = tuple(member.pod.uid for member in request.members)
        run = _Run(job, running, self.now, next(self.numbers), devices, tuple(claim.key for claim in own), pods)
        self._begin_run(run, self.now + run_s)

    def _evict(self, eviction: Eviction) -> None:
        """Its pods leave after their grace; the gang for which they go waits for that."""
        run = self.runs.get(eviction.id)
        if run is None:
            return
        if eviction.beneficiary in self.waiting:
            job, request = self.waiting[eviction.beneficiary]
            self.waiting[eviction.beneficiary] = (job, replace(request, preemptor=True))
        going = set(eviction.pods)
        members = tuple(replace(m, leaving=True) if m.pod in going else m for m in run.running.members)
        run.running = replace(run.running, members=members)
        if eviction.whole and eviction.beneficiary:
            self.spent[eviction.queue] = self.spent.get(eviction.queue, 0) + 1
        self.outcome.evictions += 1
        grace_s = max(eviction.checkpoint_grace_s, 0.001)
        if eviction.whole:
            self._at(self.now + grace_s, lambda: self._gone(eviction.id, run.token))
        else:
            self._at(self.now + grace_s, lambda: self._shrink(eviction.id, run.token))

    def _gone(self, gang_id: str, token: int) -> None:
        run = self.runs.get(gang_id)
        if run is None or run.token != token:
            return
        self.outcome.lost_s += run.devices * (self.now - max(run.started, self.day.began))
        self.outcome.lives[run.job.id, run.job.created].evicted += 1
        self._end(gang_id, token)
        if run.job.request is None:
            self.outcome.lost_gangs += 1
        else:
            self._arrive(run.job)

    def _shrink(self, gang_id: str, token: int) -> None:
        """Members of its surplus are gone."""
        run = self.runs.get(gang_id)
        if run is None or run.token != token:
            return
        stay = [member for member in run.running.members if not member.leaving]
        kept = {uid for member in stay for uid in member.claims}
        freed = [uid for uid in run.claims if uid not in kept]
        claims = [self.state.inventory.claim(uid) for uid in freed]
        less = size_of(
            self.state.inventory, (each.ref for claim in claims if claim for each in claim.devices if not each.admin)
        )
        for uid in freed:
            self.state.inventory.drop_claim(uid)
        for member in run.running.members:
            if member.leaving:
                self.state.nodes.drop_pod(member.pod.uid)
        run.devices -= less
        self.outcome.totals.take(-less)
        run.claims = tuple(uid for uid in run.claims if uid in kept)
        run.running = replace(
            run.running, members=tuple(stay), claims=tuple(uid for uid in run.running.claims if uid in kept)
        )


def _of_its_own(before: RunningGang) -> dict[str, Any]:
    """What its annotations and its namespace set."""
    return {
        "min_runtime_s": before.min_runtime_s,
        "checkpoint_grace_s": before.checkpoint_grace_s,
        "bounds": before.bounds,
    }


def _allocated(claim: ClaimAllocation) -> AllocatedClaim:
    devices = tuple(
        AllocatedDevice(
            ref=each.device,
            admin=each.admin_access,
            whole=each.share_id is None,
            consumed=tuple(
                (qualified(name, each.device.driver), amount(value)) for name, value in each.consumed_capacity
            ),
            tolerations=each.tolerations,
        )
        for each in claim.allocation.results
    )
    return AllocatedClaim(claim.key, claim.namespace, claim.name, devices, sum(not each.admin for each in devices))


def _run_times(jobs: Iterable[Job]) -> Callable[[Job], float]:
    """How long a gang runs that never ran: the median of its queue, else of all, else an hour."""
    by_queue: dict[str | None, list[float]] = {}
    for job in jobs:
        if job.run_s is not None and job.running is not None:
            by_queue.setdefault(job.running.queue, []).append(job.run_s)
    whole = [run_s for each in by_queue.values() for run_s in each]
    overall = median(whole) if whole else 3600.0

    def assumed(job: Job) -> float:
        known = by_queue.get(job.request.queue if job.request else None)
        return median(known) if known else overall

    return assumed
