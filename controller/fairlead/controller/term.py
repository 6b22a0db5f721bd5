"""One term of leadership: the parts put together, the caches taken over, the loop run until the lease is lost.

The caches are the replica's (`standby`); all else is the term's, and the next term knows nothing of it. The first
decision rests on what the cluster holds after the last leader stopped (`commit.takeover`). At the end, writes under way
are finished before the lease is released; if they do not finish, it is left to expire, so that no other replica leads
while one of them may arrive.
"""

from __future__ import annotations

import asyncio
import logging
import time
from random import Random
from typing import Protocol

from fairlead.controller.accounting.decisions import GangDecisions
from fairlead.controller.accounting.feed import Known
from fairlead.controller.accounting.ledger import LedgerTerm
from fairlead.controller.accounting.spending import LedgerSpending
from fairlead.controller.autoscaling.awaited import AwaitedNodes, recorded_since
from fairlead.controller.background import background, first
from fairlead.controller.commit.admitter import Admitter
from fairlead.controller.commit.backoff import GangBackoffs
from fairlead.controller.commit.claim_reconciler import ClaimReconciler
from fairlead.controller.commit.committer import Committer
from fairlead.controller.commit.evictor import Evictor
from fairlead.controller.commit.executor import Executor
from fairlead.controller.commit.gang_tasks import SETTLE_S, GangTasks
from fairlead.controller.commit.move_places import Moves
from fairlead.controller.commit.node_requests import NodeRequests
from fairlead.controller.commit.nominated_nodes import NominatedNodes
from fairlead.controller.commit.queue_budgets import QueueBudgets
from fairlead.controller.commit.recoverer import Recoverer
from fairlead.controller.commit.takeover import Takeover
from fairlead.controller.commit.tasks import Tasks
from fairlead.controller.commit.writer import Writer
from fairlead.controller.commit.writes import LeaseLostError
from fairlead.controller.cycle import Cycle
from fairlead.controller.forecasting.checkpoint import Checkpoint
from fairlead.controller.forecasting.forecaster import Forecaster
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.health import Health
from fairlead.controller.loop import Controller
from fairlead.controller.options import ControllerOptions
from fairlead.controller.reconcile import GangReconciler
from fairlead.controller.replacements import Replacements
from fairlead.controller.report.events import Events
from fairlead.controller.report.flight import Recorded
from fairlead.controller.report.forecasts import ShownForecasts
from fairlead.controller.report.kubelet_events import KubeletEvents
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.queue_series import QueueFacts
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.report.status_writer import StatusWriter
from fairlead.controller.report.traces import GangTraces
from fairlead.controller.reporting import Reporting
from fairlead.controller.snapshot import SnapshotBuilder
from fairlead.controller.spending.budgets import SpendingBudgets
from fairlead.controller.spending.source import NotKnown, Spending
from fairlead.controller.standby import Watched, watching
from fairlead.controller.watch.caches import Caches
from fairlead.engine.queues.usage_history import UsageHistory
from fairlead.history.cost.report import wait_targets
from fairlead.history.recording.writer import Bounds
from fairlead.kube import core
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder
from fairlead.kube.tracing import OFF, Tracing
from fairlead.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

COMPONENT = "fairlead-controller"


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
    recorded where the options say so. `spending`: where the sums of spent GPU-hours come from; None: nowhere, they are not known.
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
        spending: Spending | None = None,
        tracing: Tracing = OFF,
    ) -> None:
        def guard() -> None:
            if not lease.held:
                raise LeaseLostError("the lease is lost")

        clock, wall, random = time.monotonic, time.time, Random(options.seed)  # noqa: S311
        guarded = client.guarded(guard, timeout_s=options.lease_s / 3)
        usage = UsageHistory(options.usage_half_life_s)
        self._caches = caches
        self.recorder = EventRecorder(client, COMPONENT, instance=lease.identity)
        decisions = GangDecisions(wall) if record and options.ledger is not None else None
        noted = None if decisions is None else decisions.note
        events = Events(self.recorder, caches, (options.namespace, COMPONENT), noted)
        self.flight: Recorded | None = None
        if record and options.record is not None:
            bounds = Bounds(bytes_max=options.record_bytes_max, age_max_s=options.record_age_max_s)
            self.flight = Recorded(options.record, bounds, lease.identity, metrics, events)
        statuses = StatusWriter(client, caches, usage, events, wall=wall)
        self.reporter = Reporter(statuses, caches, WorkQueue(), metrics.failures, clock=clock)
        self.tasks = Tasks(metrics, clock)

        writer = Writer(guarded, caches, concurrent=options.concurrent_writes, clock=clock, wall=wall, random=random)
        self.takeover = Takeover(
            guarded, caches, concurrent=options.concurrent_writes, clock=clock, wall=wall, random=random
        )
        backoffs = GangBackoffs(random)
        settle_s = min(SETTLE_S, options.gang_timeout_s)
        gang_tasks = GangTasks(self.tasks, backoffs, caches.triggers, wall=wall, settle_s=settle_s)
        budgets = QueueBudgets(writer, caches)
        self.spending: LedgerSpending | None = None
        if spending is None and record and options.ledger is not None:
            spending = self.spending = LedgerSpending(
                options.ledger, lambda: bool(caches.settings().flavors), sleep=asyncio.sleep
            )
        spent = SpendingBudgets(spending or NotKnown())
        traces = GangTraces(tracing, caches, ratio=options.trace_ratio, clock=clock, wall=wall)
        committer = Committer(writer, caches, wall=wall)
        awaited = AwaitedNodes(lambda gang: recorded_since(caches.gang_object(gang)), caches.scale_ups)
        awaited.on_scale_up = metrics.note_scale_up
        nominated = NominatedNodes(
            writer, caches, self.tasks,
            busy=gang_tasks.running, demand=lambda: awaited.demand, enabled=options.nominate_nodes, wall=wall,
        )  # fmt: skip
        admitter = Admitter(committer, caches, events, metrics, traces, nominated, clock=clock)
        moves = Moves(caches.tables)
        moves.landed, moves.expired = metrics.note_move("landed"), metrics.note_move("expired")
        evictor = Evictor(writer, caches, budgets, events, metrics, traces, wall=wall, moves=moves)
        executor = Executor(caches, admitter, evictor, gang_tasks, backoffs, wall=wall)
        self._claims = claims = ClaimReconciler(guarded, caches, writer, self.tasks, metrics)
        recoverer = Recoverer(committer, admitter, backoffs, events, metrics, wall=wall)

        replacements = Replacements(caches.tables, timeout_s=options.replace_timeout_s)
        self.snapshots = snapshots = SnapshotBuilder(
            caches, evictor, gang_tasks, backoffs, budgets, usage, spent, replacements, moves, awaited,
            usage_weight=options.usage_weight,
        )  # fmt: skip
        self.nodes = nodes = NodeRequests(
            writer,
            guarded,
            caches,
            self.tasks,
            awaited,
            metrics,
            busy=gang_tasks.running,
            namespace=options.namespace,
            wall=wall,
            sleep=asyncio.sleep,
        )
        reconciler = GangReconciler(
            caches, snapshots, claims, recoverer, evictor, gang_tasks, backoffs, replacements, moves,
            failures=metrics.failures, gang_timeout_s=options.gang_timeout_s, now=wall(),
        )  # fmt: skip
        caches.triggers.put_off, caches.triggers.holds = reconciler.put_off, snapshots.holds
        cycle = Cycle(
            caches, snapshots, executor, budgets, usage, spent, self.reporter, metrics, traces, awaited,
            clock=clock, flight=self.flight,
        )  # fmt: skip
        forecasts = ShownForecasts()
        reporting = Reporting(
            caches, cycle, evictor, gang_tasks, backoffs, usage, self.reporter, metrics, forecasts,
            traces, awaited, created=self._created, wall=wall,
        )  # fmt: skip
        self._cycle, self._waits, self._wall = cycle, reporting.waits, wall
        checkpoint = Checkpoint(guarded, options.namespace, clock=clock)
        self.forecaster = Forecaster(
            caches, snapshots, cycle, forecasts, reporting.report, checkpoint, metrics,
            clock=clock, wall=wall, sleep=asyncio.sleep,
        )  # fmt: skip
        reporting.on_start = self.forecaster.history.note_start

        def wake(pod: core.Pod) -> None:
            self.tasks.start(f"sync of {pod.metadata.uid}", writer.wake_kubelet(pod))

        self.kubelet_events = KubeletEvents(
            client, caches.gangs.get, reporting.report, wake, wall=wall, sleep=asyncio.sleep
        )
        reporting.events_of = self.kubelet_events.of
        snapshots.restarts.history = self.forecaster.history
        self.ledger: LedgerTerm | None = None
        if decisions is not None and options.ledger is not None:
            known = Known(
                workload=lambda: snapshots.workload,
                reserved=lambda: {node for each in cycle.reservations.values() for node in each.nodes},
                queued_since=self._queued_since,
            )
            self.ledger = LedgerTerm(
                options.ledger, options, caches, known, metrics, events, decisions,
                identity=lease.identity, lease_transitions=lease.transitions, wall=wall, sleep=asyncio.sleep,
            )  # fmt: skip
        self.controller = Controller(
            caches, reconciler, cycle, reporting, nodes, nominated, metrics,
            clock=clock, wall=wall, sleep=asyncio.sleep,
        )  # fmt: skip

    def _queued_since(self, gang_id: GangId) -> float | None:
        """Unix seconds."""
        gang = self._caches.gangs.get(gang_id)
        if gang is None or not gang.members:
            return None
        return self._created(gang, self._wall())

    def _created(self, gang: Gang, now: float) -> float:
        """Since when it is queued, unix seconds: as of its oldest pod, or of the gang that was evicted before it."""
        return self.snapshots.record(gang, now).created(gang)

    def queue_facts(self) -> QueueFacts:
        return QueueFacts(
            uses=self._cycle.queues,
            waiting=self._cycle.waiting.values(),
            waits=self._waits,
            targets_s=wait_targets(self._caches.queues.all()),
            wall=self._wall(),
        )

    def close(self) -> None:
        """The caches forget what this term assumed and held."""
        self._claims.close()
        self._caches.triggers.resume()
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
    spending: Spending | None = None,
    tracing: Tracing = OFF,
) -> None:
    """Returns when the lease is lost, or the caches are of no use.

    `spending`: see `Term`. `watched`: caches that are kept from term to term; without them this term has its own. `ready` is set once decisions are made.
    """
    if watched is None:
        async with watching(client, options.managed_drivers, forecasts=options.forecast) as own:
            await lead(
                options, client, lease, watched=own, health=health, metrics=metrics, ready=ready, spending=spending,
                tracing=tracing,
            )  # fmt: skip
            return
    health, metrics = health or Health(), metrics or Metrics()
    term = Term(options, client, lease, metrics, watched.caches, record=True, spending=spending, tracing=tracing)
    health.caches, health.controller = watched.caches, term.controller
    metrics.begin(watched.caches, term.queue_facts, wall=time.time)
    try:
        work = [term.recorder.run(), term.reporter.run(), term.nodes.run(), term.kubelet_events.run()]
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
