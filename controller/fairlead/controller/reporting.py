"""Reports after each run of the loop: every gang with something new, Queues and Flavors, and gangs by phase.

What of a gang is shown is collected from where it is known: the book, its pods and claims, the cluster's tables, and Events.

One more gang changes the positions of all that wait behind it: so namespaces take turns (`triggers.Turns`), and gangs that have started have
none to wait for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from fairlead.controller.autoscaling.awaited import AwaitedNodes
from fairlead.controller.book.book import GangState, Wait
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.commit.part import Part, Shared
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.gangs.claims.allocations import held_claims
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.held import leaving
from fairlead.controller.gangs.held.idleness import IdleNotice, notice
from fairlead.controller.gangs.held.placement import HeldModels, held_models, placement
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.queue_inputs import QueueInputs
from fairlead.controller.report.forecasts import ShownForecasts
from fairlead.controller.report.kubelet_events import KubeletEvents
from fairlead.controller.report.queue_series import HeldFlavors
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.snapshot import queued_since
from fairlead.controller.watch.triggers import Turns
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import Problem

log = logging.getLogger(__name__)

IGNORED_LOGGED_MAX = 20  # slices of one report
LONG_S = 60.0  # pods that take longer to end are named, with what bounds that


class Reporting(Part):
    """Waits last from the creation of a gang to its start, or until it is gone."""

    def __init__(
        self,
        shared: Shared,
        queues: QueueInputs,
        awaited: AwaitedNodes,
        reporter: Reporter,
        forecasts: ShownForecasts,
        kubelet_events: KubeletEvents,
    ) -> None:
        super().__init__(shared)
        self._queues = queues
        self._awaited = awaited
        self._reporter = reporter
        self.forecasts = forecasts
        self._kubelet_events = kubelet_events
        self._turns = Turns()
        self._ignored_slices: frozenset[str] = frozenset()
        self._problems: set[Problem] = set()  # of Queues and Flavors, as last logged
        self._flavors = HeldFlavors(shared.caches)

    def decided(self, plan: Plan, took_s: float, now: float) -> None:
        """What the decision of that time states of Queues and Flavors, and what it could not decide."""
        self._metrics.decide_seconds.observe(took_s)
        for name, text in plan.failures:
            self._metrics.failures.note("decision", f"gang {name}", text)
        problems = {*self._caches.rules.settings().problems, *plan.problems}
        for problem in sorted(problems - self._problems):
            log.warning("%s", problem)
        self._problems = problems
        scheduled, spent = self._queues.scheduled(now).by_queue, self._queues.spent
        self._reporter.settings(plan, sorted(problems), scheduled, spent, self._awaited.took)
        self._metrics.note_budgets(spent)

    def failed(self) -> None:
        """A run of the loop did."""
        self._metrics.errors.labels("cycle").inc()

    def report(self, changed: Iterable[GangId], now: float, looked: float | None = None) -> None:
        """`looked`: since when these changes are known, where a decision was made in between; unix seconds."""
        self._turns.add(changed)
        for gang_id in sorted(self._turns.take(self._pods, self._has_started)):
            gang = self._caches.gangs.get(gang_id)
            if gang is None or not gang.members:
                continue
            with self._metrics.failures.contained("report", "gang {}/{}".format(*gang_id)):
                self._note_start(gang, now)
                self._note_wait(gang, now)
                self._traces.seen(gang, now if looked is None else looked)
                self._reporter.gang(gang, self._state(gang, now))
        for queue in self._queues.used_otherwise(now):
            self._reporter.usage_changed(queue)
        self._metrics.note_phases(self._reporter.phases)
        self._report_slices()

    @property
    def behind(self) -> bool:
        """Whether gangs are left to report."""
        return bool(self._turns)

    def _pods(self, gang_id: GangId) -> int:
        gang = self._caches.gangs.get(gang_id)
        return 0 if gang is None else len(gang.members)

    def _has_started(self, gang_id: GangId) -> bool:
        gang = self._caches.gangs.get(gang_id)
        return gang is None or self._book[gang_id].admitting or bool(gang.released)

    def _report_slices(self) -> None:
        """Those that do not count: how many, and each once in the log."""
        texts = self._caches.tables.inventory.ignored_slices()
        self._metrics.ignored_slices.set(len(texts))
        for text in [each for each in texts if each not in self._ignored_slices][:IGNORED_LOGGED_MAX]:
            log.warning("%s", text)
        self._ignored_slices = frozenset(texts)

    def gone(self, gang_id: GangId, now: float) -> None:
        """The gang has no members left."""
        self._turns.discard(gang_id)
        self._traces.gone(gang_id)
        self._reporter.gone(gang_id)
        self._note_withdrawal(gang_id, now)

    def _note_start(self, gang: Gang, now: float) -> None:
        """How far the gang's forecast was off, once it starts."""
        if not (gang.started or self._book[gang.id].admitting):
            return
        error_s, before_p90 = self.forecasts.started(gang.id, now)
        if error_s is not None:
            self._metrics.forecast_error_seconds.observe(error_s)
        if before_p90 is not None:
            self._metrics.forecast_starts.labels("true" if before_p90 else "false").inc()

    def _note_wait(self, gang: Gang, now: float) -> None:
        if gang.started or gang.released:
            waited = self._book.take(gang.id, GangState.wait)
            if waited is not None:
                flavor = self._flavors.of(held_claims(gang.members).values())
                queue = self._caches.rules.queue_of(gang.id)
                series = self._metrics.queue_wait_seconds.labels(queue, flavor, "admitted")
                series.observe(max(0.0, now - waited.at))
        elif not gang.gated:
            self._note_withdrawal(gang.id, now)
        elif self._book[gang.id].wait is None:
            created = queued_since(self._caches, self._book, gang, now)
            self._book[gang.id].wait = Wait(self._caches.rules.queue_of(gang.id), created)

    def _note_withdrawal(self, gang_id: GangId, now: float) -> None:
        waited = self._book.take(gang_id, GangState.wait)
        if waited is not None:
            series = self._metrics.queue_wait_seconds.labels(waited.queue, "", "withdrawn")
            series.observe(max(0.0, now - waited.at))

    # -- what of a gang is shown -----------------------------------------------------------------------------------

    def _state(self, gang: Gang, now: float) -> SchedulingState:
        state = self._book[gang.id]
        return SchedulingState(
            waiting=state.waiting,
            admitting=state.admitting,
            queue=self._caches.rules.queue_of(gang.id),
            last_failure=state.backoff.why if state.backoff else "",
            eviction=eviction_marks.progress(gang, state.attempts.refused if state.attempts else ""),
            victims=tuple(sorted("/".join(victim) for victim in state.victims or ())),
            reservation=state.reservation,
            leaving=self._leaving(gang, now),
            forecast=state.forecast,
            idle=self._idle(gang, now),
            placement=placement(gang, self._level_of) if gang.released else (),
            models=self._models(gang) if gang.released else None,
            hold="" if (held := self._caches.rules.held_by(gang)) is None else str(held),
            nodes=self._awaited.of(gang.id, now) if gang.gated else None,
            untried=recovery.untried(gang, now)[0],
            lost=self._caches.lookup.lost_nodes(gang) if gang.released else (),
            refused=self._kubelet_events.of(gang, now) if gang.released else None,
        )

    def _leaving(self, gang: Gang, now: float) -> str:
        """Names pods that take longer than usual to end: most are gone before anyone reads of them."""
        bound_s = (
            self._caches.rules.bounds(gang).termination_grace_s
            if any(each.terminating for each in gang.released)
            else 0
        )
        found = [
            member
            for member in leaving.holding(gang)
            if (member.pod.metadata.deletion_grace_period_seconds or 0) > min(bound_s, LONG_S)
            or (leaving.leaving_since(member.pod) or now) + LONG_S < now
        ]
        return leaving.description(found, bound_s)

    def _idle(self, gang: Gang, now: float) -> IdleNotice | None:
        found = self._caches.rules.idle(gang, now) if gang.released else None
        return None if found is None else notice(gang, *found, now)

    def _level_of(self, label: str, node: str) -> str | None:
        """What the node is labelled with, else the one value that its devices have of such an attribute."""
        tables = self._caches.tables
        info = tables.nodes.get(node)
        if info is None:
            return None
        if label in info.labels:
            return info.labels[label]
        devices = tables.inventory.on_node(node, info.labels).devices
        values = {str(value) for device in devices for _, value in device.values(label)}
        return values.pop() if len(values) == 1 else None

    def _models(self, gang: Gang) -> HeldModels | None:
        caches = self._caches
        return held_models(held_claims(gang.members).values(), caches.tables.inventory, caches.rules.models_of(gang))
