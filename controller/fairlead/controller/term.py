"""One term of leadership: the parts put together, the caches taken over, the loop run until the lease is lost.

The caches are the replica's (`standby`); all else is the term's, and the next term knows nothing of it. The first
decision rests on what the cluster holds after the last leader stopped (`commit.takeover`). At the end, writes under way
are finished before the lease is released; if they do not finish, it is left to expire, so that no other replica leads
while one of them may arrive. `Health`: what the probes answer of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from random import Random
from typing import Protocol

from fairlead.controller.accounting.feed import GangDecisions, Known
from fairlead.controller.accounting.ledger import LedgerSpending, LedgerTerm
from fairlead.controller.autoscaling.awaited import AwaitedNodes
from fairlead.controller.book.book import Book, GangState
from fairlead.controller.book.shown import NODES_CONDITION
from fairlead.controller.commit.admitter import Admitter
from fairlead.controller.commit.evictor import Evictor, QueueBudgets
from fairlead.controller.commit.gang_tasks import GangTasks
from fairlead.controller.commit.node_requests import NodeRequests
from fairlead.controller.commit.nominated_nodes import NominatedNodes
from fairlead.controller.commit.part import Shared, Tasks
from fairlead.controller.commit.places import Places
from fairlead.controller.commit.takeover import Takeover
from fairlead.controller.commit.writer import Writer
from fairlead.controller.commit.writes import LeaseLostError
from fairlead.controller.cycle import Cycle
from fairlead.controller.forecasting.forecaster import Forecaster
from fairlead.controller.forecasting.history import Checkpoint, RunHistory
from fairlead.controller.gangs.conditions import holds_since
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.loop import Controller
from fairlead.controller.options import ControllerOptions
from fairlead.controller.queue_inputs import QueueInputs
from fairlead.controller.reconcile import GangReconciler
from fairlead.controller.report.events import Events
from fairlead.controller.report.flight import Flight
from fairlead.controller.report.forecasts import ShownForecasts
from fairlead.controller.report.kubelet_events import KubeletEvents
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.queue_series import QueueFacts
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.report.status_writer import StatusWriter
from fairlead.controller.report.telemetry import Telemetry
from fairlead.controller.report.traces import GangTraces
from fairlead.controller.reporting import Reporting
from fairlead.controller.snapshot import SnapshotBuilder, queued_since
from fairlead.controller.spending import Spending, SpendingBudgets, not_known
from fairlead.controller.standby import Watched, background, first, watching
from fairlead.controller.watch.caches import Caches
from fairlead.engine.queues.usage_history import UsageHistory
from fairlead.history.cost.report import wait_targets
from fairlead.history.recording.writer import Bounds
from fairlead.kube import core
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder
from fairlead.kube.timing import Time
from fairlead.kube.tracing import OFF, Tracing
from fairlead.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

COMPONENT = "fairlead-controller"
BLIND_AFTER = 5  # failures in a row of one watch
STUCK_S = 120.0
DECISION_STUCK_S = 900.0  # a decision that takes this long does not end


class Leadership(Protocol):
    """What a term needs of a LeaderLease."""

    @property
    def held(self) -> bool: ...
    @property
    def lost(self) -> asyncio.Event: ...
    @property
    def identity(self) -> str: ...
    @property
    def transitions(self) -> int | None: ...
    def abandon(self) -> None: ...


class Term:
    """The parts of the controller, but for the caches, which are there already.

    `client` is not guarded by the lease: status and events may be written a moment longer. `record`: decisions of this term are
    recorded where the options say so.
    """

    def __init__(
        self,
        options: ControllerOptions,
        client: Client,
        lease: Leadership,
        metrics: Metrics,
        caches: Caches,
        *,
        record: bool = False,
        tracing: Tracing = OFF,
    ) -> None:
        def guard() -> None:
            if not lease.held:
                raise LeaseLostError("the lease is lost")

        time = Time(random=Random(options.seed))  # noqa: S311
        guarded = client.guarded(guard, timeout_s=options.lease_s / 3)
        self._caches, self._wall = caches, time.wall
        self.book = book = Book()
        self.recorder = EventRecorder(client, COMPONENT, instance=lease.identity)

        # What is said.
        decisions = GangDecisions(time.wall) if record and options.ledger is not None else None
        noted = None if decisions is None else decisions.note
        events = Events(self.recorder, caches, (options.namespace, COMPONENT), noted)
        traces = GangTraces(tracing, caches, book, ratio=options.trace_ratio, time=time)
        self.flight: Flight | None = None
        if record and options.record is not None:
            bounds = Bounds(bytes_max=options.record_bytes_max, age_max_s=options.record_age_max_s)
            self.flight = Flight(options.record, bounds, lease.identity, metrics, events)
        usage = UsageHistory(options.usage_half_life_s)
        statuses = StatusWriter(client, caches, book, usage, events, wall=time.wall)
        self.reporter = Reporter(statuses, caches, book, WorkQueue(), metrics.failures, clock=time.clock)
        self.kubelet_events = KubeletEvents(client, book, caches.gangs.get, time)

        # What is written.
        self._writer = writer = Writer(guarded, caches, concurrent=options.concurrent_writes, time=time)
        self.takeover = Takeover(guarded, caches, concurrent=options.concurrent_writes, time=time)
        self.tasks = Tasks(metrics, time.clock)
        shared = Shared(
            client=guarded, caches=caches, book=book, writer=writer, tasks=self.tasks,
            telemetry=Telemetry(events, metrics, traces), time=time, options=options,
        )  # fmt: skip
        gang_tasks = GangTasks(shared)
        budgets = QueueBudgets(writer, caches)
        nominated = NominatedNodes(shared)
        admitter = Admitter(shared, gang_tasks.backoffs, nominated)
        places = Places(shared)
        evictor = Evictor(shared, budgets, places.moves)
        self.nodes = NodeRequests(shared)

        # What is decided.
        self.spending: LedgerSpending | None = None
        spent: Spending = not_known
        if record and options.ledger is not None:
            self.spending = LedgerSpending(
                options.ledger, lambda: bool(caches.rules.settings().flavors), sleep=time.sleep
            )
            spent = self.spending.spent
        queues = QueueInputs(caches, budgets, usage, SpendingBudgets(spent))
        awaited = AwaitedNodes(
            book,
            lambda gang: holds_since(caches.gang_object(gang), NODES_CONDITION),
            caches.rules.scale_ups,
            metrics.note_scale_up,
        )
        history = RunHistory()
        self.snapshots = SnapshotBuilder(shared, gang_tasks, queues, places, awaited, history)
        self._reconciler = GangReconciler(shared, self.snapshots, gang_tasks, admitter, evictor, places)
        caches.triggers.begin(self._reconciler)
        self._cycle = cycle = Cycle(shared, self.snapshots, queues, admitter, evictor, gang_tasks, flight=self.flight)
        forecasts = ShownForecasts(book, history.note_start)
        self.reporting = Reporting(shared, queues, awaited, self.reporter, forecasts, self.kubelet_events)
        checkpoint = Checkpoint(guarded, options.namespace, history, clock=time.clock)
        self.forecaster = Forecaster(caches, self.snapshots, cycle, self.reporting, checkpoint, metrics, time)
        self.ledger: LedgerTerm | None = None
        if decisions is not None:
            known = Known(
                workload=lambda: self.snapshots.workload,
                reserved=lambda: {node for each in book.all(GangState.reservation).values() for node in each.nodes},
                queued_since=self._queued_since,
            )
            self.ledger = LedgerTerm(options, caches, known, metrics, events, decisions, lease, time)
        self.controller = Controller(shared, self._reconciler, cycle, self.reporting, self.nodes, nominated)

    def wake_kubelet(self, pod: core.Pod) -> None:
        """Have it sync the pod."""
        self.tasks.start(f"sync of {pod.metadata.uid}", self._writer.wake_kubelet(pod))

    def _queued_since(self, gang_id: GangId) -> float | None:
        """Unix seconds: as of its oldest pod, or of the gang that was evicted before it."""
        gang = self._caches.gangs.get(gang_id)
        if gang is None or not gang.members:
            return None
        return queued_since(self._caches, self.book, gang, self._wall())

    def queue_facts(self) -> QueueFacts:
        return QueueFacts(
            uses=self._cycle.plan.queues,
            waiting=self.book.all(GangState.waiting).values(),
            waits=self.book.all(GangState.wait),
            targets_s=wait_targets(self._caches.queues.all()),
            wall=self._wall(),
        )

    def close(self) -> None:
        """The caches forget what this term assumed and held."""
        self._reconciler.close()
        self._caches.triggers.end()
        self._caches.tables.forget_all()


async def lead(
    options: ControllerOptions,
    client: Client,
    lease: Leadership,
    *,
    watched: Watched | None = None,
    health: Health | None = None,
    metrics: Metrics | None = None,
    ready: asyncio.Event | None = None,
    tracing: Tracing = OFF,
) -> None:
    """Returns when the lease is lost, or the caches are of no use.

    `watched`: caches that are kept from term to term; without them this term has its own. `ready` is set once decisions are made.
    """
    if watched is None:
        async with watching(
            client, options.managed_drivers, options.shared_claim_drivers, forecasts=options.forecast
        ) as own:
            await lead(
                options, client, lease, watched=own, health=health, metrics=metrics, ready=ready, tracing=tracing,
            )  # fmt: skip
            return
    health, metrics = health or Health(), metrics or Metrics()
    term = Term(options, client, lease, metrics, watched.caches, record=True, tracing=tracing)
    health.caches, health.controller = watched.caches, term.controller
    metrics.begin(watched.caches, term.queue_facts, wall=time.time)
    try:
        work = [
            term.recorder.run(),
            term.reporter.run(),
            term.nodes.run(),
            term.kubelet_events.run(term.reporting.report, term.wake_kubelet),
        ]
        if options.forecast:
            work.append(term.forecaster.run())
        if term.ledger is not None:
            work.append(term.ledger.run())
        if term.spending is not None:
            work.append(term.spending.run())
        async with background(*work, ignore=LeaseLostError) as failed:
            ends = (lease.lost.wait, failed.wait, watched.failed.wait)
            takeover = asyncio.create_task(term.takeover.run())
            await first(takeover, *(each() for each in ends), ignore=LeaseLostError)
            if takeover.cancelled() or takeover.exception() is not None:
                return
            if ready is not None:
                ready.set()
            try:
                await first(term.controller.run(), *(each() for each in ends), ignore=LeaseLostError)
            finally:
                if not await term.tasks.finish(options.lease_s):
                    log.warning("writes are still under way; the lease is left to expire")
                    lease.abandon()
    finally:
        if term.flight is not None:
            await asyncio.to_thread(term.flight.close)
        if term.ledger is not None:
            await asyncio.to_thread(term.ledger.close)
        term.close()
        health.caches = health.controller = None
        metrics.end()


@dataclass
class Health:
    """Both are None on a standby."""

    caches: Caches | None = None
    controller: Controller | None = None

    def ready(self) -> str | None:
        """None when ready, else why not. A standby is ready; a leader is while its caches are synced and watched."""
        if self.caches is None:
            return None
        if not self.caches.synced:
            return "leading, but the caches are not filled"
        blind = [str(each.resource) for each in self.caches.required() if each.failures >= BLIND_AFTER]
        return f"cannot watch {', '.join(blind)}" if blind else None

    def healthy(self) -> str | None:
        """None when healthy. The loop runs at least every `reconcile.SWEEP_S`, but for a long decision beside it."""
        if self.controller is None:
            return None
        idle_s = time.monotonic() - self.controller.last_run_at
        if idle_s > (DECISION_STUCK_S if self.controller.deciding else STUCK_S):
            doing = "a decision has not ended" if self.controller.deciding else "the loop has not turned"
            return f"{doing} for {idle_s:.0f} s"
        return None
