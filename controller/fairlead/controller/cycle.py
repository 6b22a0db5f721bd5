"""The scheduling cycle: build the snapshot, decide, record, start to commit, and remember the answers for reports.

One cycle at a time, without waiting for a write. `due_at` is when time alone may change the next decision.

A short decision is made in place, one that may be long beside the loop (`deciding`): a tenant may submit thousands of pods that
all differ. What comes in between is seen by the next decision; a write that it makes void is refused by the apiserver, as after
any decision.
"""

from __future__ import annotations

import logging

from fairlead.controller.autoscaling.awaited import AwaitedNodes
from fairlead.controller.commit.executor import Executor
from fairlead.controller.commit.queue_budgets import QueueBudgets
from fairlead.controller.deciding import Decide, decide_beside
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.pacing import Pacing
from fairlead.controller.report.flight import Flight, Unrecorded
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.report.traces import GangTraces
from fairlead.controller.snapshot import SnapshotBuilder
from fairlead.controller.spending.budgets import SpendingBudgets
from fairlead.controller.watch.caches import Caches
from fairlead.engine.queues.usage_history import UsageHistory
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan, QueueUse, Reservation, Waiting
from fairlead.engine.types.settings import Problem
from fairlead.kube import logs
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

LONG_GANGS = 50  # waiting gangs from which on a decision may be long
LONG_S = 0.05  # so is one after another that took this long


class Cycle:
    def __init__(
        self,
        caches: Caches,
        snapshots: SnapshotBuilder,
        executor: Executor,
        budgets: QueueBudgets,
        usage: UsageHistory,
        spending: SpendingBudgets,
        reporter: Reporter,
        metrics: Metrics,
        traces: GangTraces,
        awaited: AwaitedNodes,
        *,
        clock: Clock,
        decide: Decide | None = None,
        flight: Flight | None = None,
    ) -> None:
        self.waiting: dict[GangId, Waiting] = {}  # of the last decision
        self.reservations: dict[GangId, Reservation] = {}
        self.due_at: float | None = None  # unix seconds
        self.decisions = 0  # so far
        self.deciding = False  # a decision is being made in its thread
        self._last_s = 0.0  # what the last decision took
        self._decided_at = 0.0  # when it ended, of the clock
        self._caches = caches
        self._snapshots = snapshots
        self._executor = executor
        self._budgets = budgets
        self._usage = usage
        self._spending = spending
        self._reporter = reporter
        self._metrics = metrics
        self._traces = traces
        self._awaited = awaited
        self._clock = clock
        self._decide = decide or caches.tables.engine.decide
        self._flight = flight or Unrecorded()
        self._pacing = Pacing(clock)
        self.queues: tuple[QueueUse, ...] = ()  # of the last decision
        self._problems: set[Problem] = set()  # of Queues and Flavors, as last logged

    async def run(self, now: float) -> set[GangId]:
        """Returns the gangs of which there is something new to report."""
        self._caches.triggers.decided()
        began = self._clock()
        snapshot = self._snapshots.build(now)
        noted = self._flight.note(snapshot)  # before the decision: what changes while it is made is the next one's
        decided: Plan | None = None
        try:
            decided = await self._timed_decision(snapshot, now, began)
        finally:
            self._flight.decided(noted, decided, now, self._last_s)
            self._snapshots.decided(decided or Plan())
        self.decisions += 1
        self._snapshots.had_turns(decided)
        for name, text in decided.failures:
            self._metrics.failures.note("decision", f"gang {name}", text)
        awaiting = self._awaited.decided(decided, self._snapshots.pending, now)
        self._note_settings(decided, now)
        for admission in self._executor.start(decided, now):
            self._snapshots.admitted(admission, now)
            gang_id = (admission.namespace, admission.name)
            self._traces.decided(
                self._caches.gangs[gang_id], admission, self.waiting.get(gang_id),
                began=self._decided_at - self._last_s, ended=self._decided_at,
            )  # fmt: skip
        admitted = {(each.namespace, each.name) for each in decided.admissions}
        return self._note_answers(decided) | admitted | awaiting

    async def _timed_decision(self, snapshot: Snapshot, now: float, began: float) -> Plan:
        """`began`: when the snapshot was begun, of the clock."""
        decide_began = self._clock()
        with logs.operation(log, "decide", level=logging.DEBUG, clock=self._clock, gangs=len(snapshot.gangs)):
            if len(snapshot.gangs) < LONG_GANGS and self._last_s < LONG_S:
                decided = self._decide(snapshot, now)
            else:
                self.deciding = True
                try:
                    decided = await decide_beside(self._caches.tables, self._decide, snapshot, now)
                finally:
                    self.deciding = False
        ended = self._clock()
        self._last_s, self._decided_at = ended - decide_began, ended
        self._metrics.decide_seconds.observe(self._last_s)
        self._pacing.note(began=began, decide_began=decide_began, ended=ended, admitted=bool(decided.admissions))
        return decided

    def _note_settings(self, decided: Plan, now: float) -> None:
        """What the decision states of Queues and Flavors, and when it may change by itself."""
        scheduled = self._snapshots.scheduled(now)
        self._spending.note(decided.queues, now)
        due = (self._budgets.next_refill(now), scheduled.due, self._spending.due, decided.due)
        self.due_at = min((at for at in due if at is not None), default=None)
        settings = self._caches.settings()
        problems = {*settings.problems, *decided.problems}
        for problem in sorted(problems - self._problems):
            log.warning("%s", problem)
        self._problems = problems
        self._usage.note(settings.queues, decided.queues, decided.flavors, now)
        spent = self._spending.by_queue
        self._reporter.settings(decided, sorted(problems), scheduled.by_queue, spent, self._awaited.took)
        self.queues = decided.queues
        self._metrics.note_budgets(spent)

    def _note_answers(self, decided: Plan) -> set[GangId]:
        """Keeps what was decided of waiting gangs; returns those whose answer differs from the last."""
        waiting = {(each.namespace, each.name): each for each in decided.waiting}
        reserved = {(each.namespace, each.name): each for each in decided.reservations}
        changed = {gang_id for gang_id, each in waiting.items() if self.waiting.get(gang_id) != each}
        both = reserved.keys() | self.reservations.keys()
        changed |= {gang_id for gang_id in both if reserved.get(gang_id) != self.reservations.get(gang_id)}
        self.waiting, self.reservations = waiting, reserved
        return changed

    def wait_s(self) -> float:
        """For how long nothing is to be decided yet."""
        return self._pacing.wait_s(urgent=self._caches.triggers.urgent)

    def expire(self, now: float) -> None:
        """Asks for a decision when its time has come."""
        if self.due_at is not None and self.due_at <= now:
            self.due_at = None
            self._caches.triggers.decide(urgent=True)

    def gone(self, gang_id: GangId) -> None:
        """The gang has no members left."""
        self.waiting.pop(gang_id, None)
