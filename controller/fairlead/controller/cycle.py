"""What lies before the core: who asks, who runs, what was last answered; and when to ask it again.

Exists so that the loop keeps to looking and carrying out. Builds the snapshot, has it decided, and remembers the answer in the
form that reports want. Carries nothing out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from fairlead.controller.commit.evicting import Evictor
from fairlead.controller.gangs.gangs import GangId
from fairlead.controller.metrics import Metrics
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.watch.caches import Caches
from fairlead.engine.placement.workload import WorkloadCounter
from fairlead.engine.queues.usage_history import UsageHistory
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Plan, Reservation, Waiting
from fairlead.engine.types.settings import Problem
from fairlead.kube import logs
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

# After a decision that let nobody in, the next one that nobody asked for waits this many times as long as it took: others'
# comings and goings may cost no more than a fiftieth of a core, as far as that delays nobody by more than a second.
PATIENCE = 50
PATIENCE_MAX_S = 1.0
# After any decision there is as much time for all else as it took: writes, renewals and watches get half of the core, however
# long decisions get. Without it, decisions of seconds one after the other let every write run into its timeout.
REST_MAX_S = 10.0

Decide = Callable[[Snapshot, float], Plan]


class Cycle:
    def __init__(
        self,
        state: Caches,
        evictor: Evictor,
        reporter: Reporter,
        memory: UsageHistory,
        metrics: Metrics,
        *,
        usage_weight: float,
        clock: Clock,
        decide: Decide,
    ) -> None:
        self.requests: dict[GangId, GangRequest] = {}
        self.running: dict[GangId, RunningGang] = {}
        self.waiting: dict[GangId, Waiting] = {}
        self.reservations: dict[GangId, Reservation] = {}
        self._rested_at = 0.0  # of the clock: nothing is decided before
        self._patient_at = 0.0  # nor before this, unless somebody just asked
        self.turn_at: float | None = None  # then time alone may change a decision
        self._state = state
        self._evictor = evictor
        self._reporter = reporter
        self._memory = memory
        self._metrics = metrics
        self._usage_weight = usage_weight
        self._clock = clock
        self._decide = decide
        self._learner = WorkloadCounter()
        self._problems: set[Problem] = set()  # about Queues and Flavors, as last logged

    def ask(self, gang_id: GangId, asked: GangRequest, before: GangRequest | None) -> None:
        """The gang waits for this; `before` is what it asked for until now."""
        self.requests[gang_id] = asked
        if asked.whole and not (before and before.whole):
            self._learner.note(asked)

    def waits_s(self, *, urgent: bool) -> float:
        """For how long nothing is to be decided yet; `urgent` when somebody just asked."""
        return max(0.0, (self._rested_at if urgent else self._patient_at) - self._clock())

    def decide(self, asking: Iterable[GangRequest], holding: Iterable[RunningGang], now: float) -> Plan:
        entered = self._clock()
        read = self._state.settings()
        self._memory.restore(read.remembered)
        snapshot = Snapshot(
            inventory=self._state.inventory,
            nodes=self._state.nodes,
            classes=self._state.classes,
            gangs=tuple(sorted(asking, key=lambda asked: asked.id)),
            running=tuple(sorted(holding, key=lambda held: held.id)),
            queues=self._evictor.with_budgets(self._memory.with_past_usage(read.queues, now), now),
            flavors=read.flavors,
            budgets=self._evictor.budgets(),
            usage_weight=self._usage_weight,
            workload=self._learner.workload(),
        )
        began = self._clock()
        with logs.operation(log, "decide", level=logging.DEBUG, clock=self._clock, gangs=len(snapshot.gangs)):
            decided = self._decide(snapshot, now)
        took_s = self._clock() - began
        self._metrics.decide_seconds.observe(took_s)
        ended = began + took_s
        self._rested_at = self._patient_at = ended + min(REST_MAX_S, ended - entered)
        if not decided.admissions:
            self._patient_at = max(self._rested_at, ended + min(PATIENCE_MAX_S, PATIENCE * took_s))
        turns = [*self._evictor.refills(now), *(() if decided.due is None else (decided.due,))]
        self.turn_at = min(turns, default=None)
        problems = {*read.problems, *decided.problems}
        for problem in sorted(problems - self._problems):
            log.warning("%s", problem)
        self._problems = problems
        self._memory.note(read.queues, decided.queues, decided.flavors, now)
        self._reporter.settings(decided, sorted(problems))
        self._metrics.note_queues(decided.queues)
        return decided

    def news(self, decided: Plan) -> set[GangId]:
        """Takes in what is said of waiting gangs; returns those of which something else was said before."""
        waiting = {(entry.namespace, entry.name): entry for entry in decided.waiting}
        reserved = {(entry.namespace, entry.name): entry for entry in decided.reservations}
        news = {gang_id for gang_id, entry in waiting.items() if self.waiting.get(gang_id) != entry}
        both = reserved.keys() | self.reservations.keys()
        news |= {key for key in both if reserved.get(key) != self.reservations.get(key)}
        self.waiting, self.reservations = waiting, reserved
        return news

    def gone(self, gang_id: GangId) -> None:
        self.waiting.pop(gang_id, None)
