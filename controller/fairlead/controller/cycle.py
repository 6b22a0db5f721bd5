"""The scheduling cycle: build the snapshot, decide, record, start to commit, and note the answers in the book.

One cycle at a time, without waiting for a write.

A short decision is made in place, one that may be long beside the loop (`deciding`): a tenant may submit thousands of pods that
all differ. What comes in between is seen by the next decision; a write that it makes void is refused by the apiserver, as after
any decision.
"""

from __future__ import annotations

import logging

from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState
from fairlead.controller.commit.admitter import Span
from fairlead.controller.commit.executor import Executor
from fairlead.controller.deciding import Decide, decide_beside
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.pacing import Pacing
from fairlead.controller.queue_inputs import QueueInputs
from fairlead.controller.report.flight import Flight
from fairlead.controller.snapshot import SnapshotBuilder
from fairlead.controller.watch.caches import Caches
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.kube import logs
from fairlead.kube.timing import Time

log = logging.getLogger(__name__)

LONG_GANGS = 50  # waiting gangs from which on a decision may be long
LONG_S = 0.05  # so is one after another that took this long


class Cycle:
    def __init__(
        self,
        caches: Caches,
        book: Book,
        snapshots: SnapshotBuilder,
        executor: Executor,
        queues: QueueInputs,
        time: Time,
        *,
        decide: Decide | None = None,
        flight: Flight | None = None,
    ) -> None:
        self.plan = Plan()  # the last decision's
        self.decisions = 0  # so far
        self.deciding = False  # a decision is being made in its thread
        self._made: Span = (0.0, 0.0)  # when the last decision was
        self._caches = caches
        self._book = book
        self._snapshots = snapshots
        self._executor = executor
        self._queues = queues
        self._clock = time.clock
        self._decide = decide or caches.tables.engine.decide
        self._flight = flight
        self._pacing = Pacing(time.clock)

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
        for admission in self._executor.start(self.plan, now, self._made):
            self._snapshots.admitted(admission, now)
        admitted = {(each.namespace, each.name) for each in self.plan.admissions}
        return self._note_answers(self.plan) | admitted

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
