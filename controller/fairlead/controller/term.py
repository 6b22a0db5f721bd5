"""One term of leadership: the parts put together, the caches filled, the loop run until the lease is lost.

The informers start only once the lease is held, so the first decision rests on what the cluster holds after the last
leader stopped. At the end, writes under way are finished before the lease is released; if they do not finish, it is left
to expire, so that no other replica leads while one of them may arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from random import Random
from typing import Any, Protocol

from fairlead.controller.commit.admitter import Admitter
from fairlead.controller.commit.backoff import GangBackoffs
from fairlead.controller.commit.claim_reconciler import ClaimReconciler
from fairlead.controller.commit.committer import Committer
from fairlead.controller.commit.evictor import Evictor
from fairlead.controller.commit.executor import Executor
from fairlead.controller.commit.gang_tasks import GangTasks
from fairlead.controller.commit.queue_budgets import QueueBudgets
from fairlead.controller.commit.recoverer import Recoverer
from fairlead.controller.commit.tasks import Tasks
from fairlead.controller.commit.writer import Writer
from fairlead.controller.commit.writes import LeaseLostError
from fairlead.controller.cycle import Cycle
from fairlead.controller.gc_tuning import frozen_heap
from fairlead.controller.health import Health
from fairlead.controller.loop import Controller
from fairlead.controller.options import ControllerOptions
from fairlead.controller.reconcile import GangReconciler
from fairlead.controller.replacements import Replacements
from fairlead.controller.report.events import Events
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.report.status_writer import StatusWriter
from fairlead.controller.reporting import Reporting
from fairlead.controller.snapshot import SnapshotBuilder
from fairlead.controller.watch.caches import Caches
from fairlead.engine.queues.usage_history import UsageHistory
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder
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
    def abandon(self) -> None: ...


class Term:
    """The parts of the controller. `client` is not guarded by the lease: status and events may be written a moment longer."""

    def __init__(self, options: ControllerOptions, client: Client, lease: Leadership, metrics: Metrics) -> None:
        def guard() -> None:
            if not lease.held:
                raise LeaseLostError("the lease is lost")

        clock, wall, random = time.monotonic, time.time, Random(options.seed)  # noqa: S311
        guarded = client.guarded(guard, timeout_s=options.lease_s / 3)
        usage = UsageHistory(options.usage_half_life_s)
        self.caches = caches = Caches(client, options.managed_drivers)
        self.recorder = EventRecorder(client, COMPONENT, instance=lease.identity)
        events = Events(self.recorder, caches)
        statuses = StatusWriter(client, caches, usage, events, wall=wall)
        self.reporter = Reporter(statuses, caches, WorkQueue(), clock=clock)
        self.tasks = Tasks(metrics, clock)

        writer = Writer(guarded, caches, concurrent=options.concurrent_writes, clock=clock, wall=wall, random=random)
        backoffs = GangBackoffs(random)
        gang_tasks = GangTasks(self.tasks, backoffs, caches.triggers, wall=wall)
        budgets = QueueBudgets(writer, caches)
        committer = Committer(writer, caches, wall=wall)
        admitter = Admitter(committer, caches, events, metrics, clock=clock)
        evictor = Evictor(writer, caches, budgets, events, metrics, wall=wall)
        executor = Executor(caches, admitter, evictor, gang_tasks, backoffs, wall=wall)
        claims = ClaimReconciler(guarded, caches, writer, self.tasks, metrics)
        recoverer = Recoverer(committer, admitter, backoffs, events, metrics, wall=wall)

        replacements = Replacements(caches.tables, timeout_s=options.replace_timeout_s)
        snapshots = SnapshotBuilder(
            caches, evictor, gang_tasks, backoffs, budgets, usage, replacements, usage_weight=options.usage_weight
        )
        reconciler = GangReconciler(
            caches, snapshots, claims, recoverer, evictor, gang_tasks, backoffs, replacements,
            gang_timeout_s=options.gang_timeout_s, now=wall(),
        )  # fmt: skip
        cycle = Cycle(caches, snapshots, executor, budgets, usage, self.reporter, metrics, clock=clock)
        reporting = Reporting(caches, cycle, executor, evictor, gang_tasks, backoffs, usage, self.reporter, metrics)
        self.controller = Controller(
            caches, reconciler, cycle, reporting, metrics, clock=clock, wall=wall, sleep=asyncio.sleep
        )


async def lead(
    options: ControllerOptions,
    client: Client,
    lease: Leadership,
    *,
    health: Health | None = None,
    metrics: Metrics | None = None,
    ready: asyncio.Event | None = None,
) -> None:
    """Returns when the lease is lost. `ready` is set once the caches are filled."""
    health, metrics = health or Health(), metrics or Metrics()
    term = Term(options, client, lease, metrics)
    caches = term.caches
    await caches.discover(client)
    health.caches, health.controller = caches, term.controller
    metrics.leader.set(1)
    try:
        informers = caches.all()
        background = (*(each.run() for each in informers), term.recorder.run(), term.reporter.run())
        async with _background(*background) as failed:
            synced = asyncio.gather(*(each.synced.wait() for each in informers))
            await _first(synced, lease.lost.wait(), failed.wait())
            if not caches.synced:
                return
            log.info(
                "caches are filled: %d nodes, %d slices, %d claims, %d pods",
                len(caches.nodes), len(caches.slices), len(caches.claims), len(caches.pods),
            )  # fmt: skip
            if ready is not None:
                ready.set()
            try:
                with frozen_heap():
                    await _first(term.controller.run(), lease.lost.wait(), failed.wait())
            finally:
                if not await term.tasks.finish(options.lease_s):
                    log.warning("writes are still under way; the lease is left to expire")
                    lease.abandon()
    finally:
        health.caches = health.controller = None
        metrics.leader.set(0)


@contextlib.asynccontextmanager
async def _background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Event]:
    """Runs these beside the body. The event is set when one of them ends, which none of them should."""
    failed = asyncio.Event()
    tasks = [asyncio.create_task(each) for each in work]

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, LeaseLostError):
            log.error("a background task ended: %r", error, exc_info=error)
        failed.set()

    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield failed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(*waits: Any) -> None:
    """Until the first of them ends; the others are cancelled and awaited. Raises its exception, but for LeaseLostError."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if (error := task.exception()) is not None and not isinstance(error, LeaseLostError):
                raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
