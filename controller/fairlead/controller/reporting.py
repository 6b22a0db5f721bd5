"""Reports after each run of the loop: every gang with something new, Queues and Flavors, and gangs by phase.

One more gang changes the positions of all that wait behind it: so namespaces take turns (`turns`), and gangs that have started have
none to wait for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from fairlead.controller.autoscaling.awaited import AwaitedNodes
from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState, Wait
from fairlead.controller.gangs.claims.allocations import held_claims
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.queue_inputs import QueueInputs
from fairlead.controller.report.forecasts import ShownForecasts
from fairlead.controller.report.queue_series import HeldFlavors
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.report.telemetry import Telemetry
from fairlead.controller.shown_states import ShownStates
from fairlead.controller.snapshot import queued_since
from fairlead.controller.turns import Turns
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import Problem

log = logging.getLogger(__name__)

IGNORED_LOGGED_MAX = 20  # slices of one report


class Outlets(NamedTuple):
    """Where what is reported goes: statuses, the forecasts that they show, events, metrics and traces."""

    reporter: Reporter
    forecasts: ShownForecasts
    telemetry: Telemetry


class Reporting:
    """Waits last from the creation of a gang to its start, or until it is gone."""

    def __init__(
        self,
        caches: Caches,
        book: Book,
        queues: QueueInputs,
        awaited: AwaitedNodes,
        states: ShownStates,
        outlets: Outlets,
    ) -> None:
        self._caches = caches
        self._book = book
        self._queues = queues
        self._awaited = awaited
        self._states = states
        self._reporter = outlets.reporter
        self.forecasts = outlets.forecasts
        self._metrics, self._traces = outlets.telemetry.metrics, outlets.telemetry.traces
        self._turns = Turns()
        self._ignored_slices: frozenset[str] = frozenset()
        self._problems: set[Problem] = set()  # of Queues and Flavors, as last logged
        self._flavors = HeldFlavors(caches)

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
                self._reporter.gang(gang, self._states.of(gang, now))
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
