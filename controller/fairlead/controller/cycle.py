"""The scheduling cycle: build the snapshot, decide, record, start to commit, and note the answers in the book.

One cycle at a time, without waiting for a write: each gang's part is committed in a task of its own. What two gangs would write at once
is left to the next decision: a claim that another admission is writing, and an eviction of a gang whose task still runs.

A short decision is made in place, one that may be long beside the loop: a tenant may submit thousands of pods that all differ. What
comes in between is seen by the next decision; a write that it makes void is refused by the apiserver, as after any decision.

After any decision the loop pauses as long as it took, up to `PAUSE_MAX_S`: writes, lease renewals and watches get half
of the core however long decisions take. Without that, decisions of seconds one after the other let every write time out.
After a decision that admitted no gang, the next one that is not urgent waits `IDLE_FACTOR` times as long as that one
took, up to `IDLE_MAX_S`: other gangs' changes cost at most a fiftieth of a core, and delay no gang by more than a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from fairlead.controller.book.book import GangState
from fairlead.controller.commit.admitter import Admitter, Span
from fairlead.controller.commit.evictor import Evictor
from fairlead.controller.commit.gang_tasks import GangTasks
from fairlead.controller.commit.part import Part, Shared
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.queue_inputs import QueueInputs
from fairlead.controller.report.flight import Flight
from fairlead.controller.snapshot import SnapshotBuilder
from fairlead.controller.watch.tables import Tables
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Admission, Eviction, Plan
from fairlead.kube import logs
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

Decide = Callable[[Snapshot, float], Plan]
LONG_GANGS = 50  # waiting gangs from which on a decision may be long
LONG_S = 0.05  # so is one after another that took this long
PAUSE_MAX_S = 10.0
IDLE_FACTOR = 50
IDLE_MAX_S = 1.0


class Cycle(Part):
    def __init__(
        self,
        shared: Shared,
        snapshots: SnapshotBuilder,
        queues: QueueInputs,
        admitter: Admitter,
        evictor: Evictor,
        gang_tasks: GangTasks,
        *,
        decide: Decide | None = None,
        flight: Flight | None = None,
    ) -> None:
        super().__init__(shared)
        self.plan = Plan()  # the last decision's
        self.decisions = 0  # so far
        self.deciding = False  # a decision is being made in its thread
        self._made: Span = (0.0, 0.0)  # when the last decision was
        self._snapshots = snapshots
        self._queues = queues
        self._admitter = admitter
        self._evictor = evictor
        self._gang_tasks = gang_tasks
        self._decide = decide or shared.caches.tables.engine.decide
        self._flight = flight
        self._pacing = Pacing(self._clock)

    async def decide(self, now: float) -> set[GangId]:
        """Makes `plan`. Returns the gangs whose demand for nodes changed."""
        self._caches.triggers.decided()
        began = self._clock()
        snapshot = self._snapshots.build(now)
        if self._flight is not None:
            self._flight.note(snapshot)
        decided: Plan | None = None
        try:
            decided = await self._timed_decision(snapshot, now, began)
        finally:
            if self._flight is not None:
                self._flight.decided(decided, now, self.took_s)
            self._snapshots.decided(decided or Plan())
        self.decisions += 1
        self.plan = decided
        self._queues.note(decided, now)
        return self._snapshots.note(decided, now)

    def carry_out(self, now: float) -> set[GangId]:
        """Starts what the plan says. Returns the gangs of which there is something new to report."""
        started: list[Admission] = []
        writing = self._gang_tasks.writing()
        for admission in self.plan.admissions:
            keys = {claim.key for claim in admission.claims}
            if keys & writing:
                self._gang_tasks.awaited()
                continue
            writing |= keys
            self._start_admission(admission)
            started.append(admission)
        times = eviction_marks.eviction_times(self.plan.evictions, now)
        for eviction in self.plan.evictions:
            self._start_eviction(eviction, times[eviction.id])
        for admission in started:
            self._snapshots.admitted(admission, now)
        admitted = {(each.namespace, each.name) for each in self.plan.admissions}
        return self._note_answers(self.plan) | admitted

    def _start_admission(self, admission: Admission) -> None:
        gang_id = (admission.namespace, admission.name)
        gang = self._caches.gangs[gang_id]
        self._admitter.assume(gang, admission, self._made)
        self._gang_tasks.start(gang_id, self._admit(gang, admission), admission)

    async def _admit(self, gang: Gang, admission: Admission) -> None:
        why = await self._admitter.admit(gang, admission)
        if why:
            self._gang_tasks.backoffs.note_failure(gang.id, why, now=self._wall())
        else:
            self._evictor.admitted(gang.id)
            if gang.plain and self._caches.gang_object(gang.id) is None:  # else its status is to follow
                self._gang_tasks.settle_later(gang.id)

    def _start_eviction(self, eviction: Eviction, at: float) -> None:
        gang_id = (eviction.namespace, eviction.name)
        gang = self._caches.gangs.get(gang_id)
        if gang is None or self._book[gang_id].busy:
            return
        self._evictor.assume(gang_id, eviction)
        self._gang_tasks.start(gang_id, self._evictor.begin(gang, eviction, at))
        self._caches.triggers.gang(gang_id, first=True)
        namespace, _, name = eviction.beneficiary.partition("/")
        if name:
            self._caches.triggers.gang((namespace, name), first=True)

    @property
    def took_s(self) -> float:
        """What the last decision took."""
        return self._made[1] - self._made[0]

    async def _timed_decision(self, snapshot: Snapshot, now: float, began: float) -> Plan:
        """`began`: when the snapshot was begun, of the clock."""
        decide_began = self._clock()
        with logs.operation(log, "decide", level=logging.DEBUG, clock=self._clock, gangs=len(snapshot.gangs)):
            if len(snapshot.gangs) < LONG_GANGS and self.took_s < LONG_S:
                decided = self._decide(snapshot, now)
            else:
                self.deciding = True
                try:
                    decided = await decide_beside(self._caches.tables, self._decide, snapshot, now)
                finally:
                    self.deciding = False
        ended = self._clock()
        self._made = (decide_began, ended)
        self._pacing.note(began=began, decide_began=decide_began, ended=ended, admitted=bool(decided.admissions))
        return decided

    def _note_answers(self, decided: Plan) -> set[GangId]:
        """Keeps what was decided of waiting gangs; returns those whose answer differs from the last."""
        waiting = {(each.namespace, each.name): each for each in decided.waiting}
        reserved = {(each.namespace, each.name): each for each in decided.reservations}
        before, kept = self._book.all(GangState.waiting), self._book.all(GangState.reservation)
        changed = {gang_id for gang_id, each in waiting.items() if before.get(gang_id) != each}
        changed |= {gang_id for gang_id in reserved.keys() | kept.keys() if reserved.get(gang_id) != kept.get(gang_id)}
        self._book.replace(GangState.waiting, waiting)
        self._book.replace(GangState.reservation, reserved)
        return changed

    @property
    def due_at(self) -> float | None:
        """When time alone may change the next decision; unix seconds."""
        return self._queues.due

    def wait_s(self) -> float:
        """For how long nothing is to be decided yet."""
        return self._pacing.wait_s(urgent=self._caches.triggers.urgent)

    def expire(self, now: float) -> None:
        """Asks for a decision when its time has come."""
        if self._queues.take_due(now):
            self._caches.triggers.decide(urgent=True)


async def decide_beside(tables: Tables, decide: Decide, snapshot: Snapshot, now: float) -> Plan:
    """Cancelled, it waits for the thread's end: the tables are not to change before."""
    with tables.at_rest():
        deciding = asyncio.ensure_future(asyncio.to_thread(decide, snapshot, now))
        try:
            return await asyncio.shield(deciding)
        finally:
            while not deciding.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({deciding})


class Pacing:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._urgent_at = 0.0  # of the clock: nothing is decided before
        self._normal_at = 0.0  # nor before this, unless it is urgent

    def wait_s(self, *, urgent: bool) -> float:
        """For how long nothing is to be decided yet."""
        return max(0.0, (self._urgent_at if urgent else self._normal_at) - self._clock())

    def note(self, *, began: float, decide_began: float, ended: float, admitted: bool) -> None:
        """A decision ended; times are of the clock. `began`: its snapshot, `decide_began`: the engine."""
        self._urgent_at = self._normal_at = ended + min(PAUSE_MAX_S, ended - began)
        if not admitted:
            self._normal_at = max(self._urgent_at, ended + min(IDLE_MAX_S, IDLE_FACTOR * (ended - decide_began)))
