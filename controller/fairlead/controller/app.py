"""The controller as a program: connect, wait for the lease, watch, decide, until told to stop.

Exists to start and stop things in the right order. The watches begin only once the lease is ours, so that the first
decision rests on what the cluster holds after the last leader stopped; on the way out what is being written is finished,
then the lease is given back. Loses the lease: stops at once, and stands by again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

from fairlead.api import names
from fairlead.controller.commit.writer import Writer
from fairlead.controller.commit.writes import LeaseLostError
from fairlead.controller.gc_tuning import settled
from fairlead.controller.loop import Controller
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.watch.caches import Caches
from fairlead.engine.queues.usage_history import UsageHistory
from fairlead.kube import probes
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import LeaderLease
from fairlead.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

COMPONENT = "fairlead-controller"
BLIND_AFTER = 5  # failures in a row of one watch
STUCK_S = 120.0


@dataclass(frozen=True, kw_only=True)
class ControllerOptions:
    """`lease_s` is how long a dead leader is waited for; a third of it bounds each write."""

    kubeconfig: Path | None = None
    namespace: str = names.NAMESPACE
    identity: str | None = None
    metrics_bind: str | None = None
    managed_drivers: tuple[str, ...] = (names.DRIVER,)
    gang_timeout_s: float = 120.0
    usage_half_life_s: float = 7 * 86_400.0  # after this long, past use of a queue counts half
    usage_weight: float = 1.0  # how strongly past use corrects weights; 0: not at all
    lease_s: float = 15.0
    concurrent_writes: int = 64
    qps: float | None = None
    seed: int | None = None


@dataclass
class Standing:
    """For the probes: what this replica is doing."""

    state: Caches | None = None
    controller: Controller | None = None

    def ready(self) -> str | None:
        """A standby is ready; a leader is once it sees the cluster, and while it does."""
        if self.state is None:
            return None
        if not self.state.synced:
            return "leading, but the caches are not filled"
        blind = [str(watch.resource) for watch in self.state.watches() if watch.failures >= BLIND_AFTER]
        return f"cannot watch {', '.join(blind)}" if blind else None

    def healthy(self) -> str | None:
        """The loop turns at least every half minute, whatever happens."""
        if self.controller is not None and (idle_s := time.monotonic() - self.controller.cycled_at) > STUCK_S:
            return f"the loop has not turned for {idle_s:.0f} s"
        return None


async def run(options: ControllerOptions, *, ready: asyncio.Event | None = None) -> None:
    """Runs until cancelled. `ready` is set when this replica leads and its caches are filled for the first time."""
    identity = options.identity or f"{socket.gethostname()}_{Random().getrandbits(32):08x}"  # noqa: S311
    standing = Standing()
    metrics = Metrics()
    async with (
        Client.connect(options.kubeconfig, user_agent=COMPONENT, qps=options.qps, burst=200) as client,
        # Renewals have their own connection: they must not wait behind a thousand writes.
        Client.connect(options.kubeconfig, user_agent=f"{COMPONENT}-lease") as leasing,
        probes.serve(options.metrics_bind, health=standing.healthy, ready=standing.ready, registry=metrics.registry),
    ):
        while True:
            lease = LeaderLease(
                leasing,
                namespace=options.namespace,
                name=COMPONENT,
                identity=identity,
                duration_s=options.lease_s,
                renew_deadline_s=options.lease_s * 2 / 3,
                retry_s=options.lease_s / 8,
            )
            async with lease:
                await lead(options, client, lease, standing=standing, metrics=metrics, ready=ready)
            log.warning("the lease is lost; standing by")


class Leadership(Protocol):
    """What one term needs of a LeaderLease."""

    @property
    def held(self) -> bool: ...
    @property
    def lost(self) -> asyncio.Event: ...
    @property
    def identity(self) -> str: ...
    def abandon(self) -> None: ...


async def lead(
    options: ControllerOptions,
    client: Client,
    lease: Leadership,
    *,
    standing: Standing | None = None,
    metrics: Metrics | None = None,
    ready: asyncio.Event | None = None,
) -> None:
    """One term: returns when the lease is lost."""
    standing = standing or Standing()
    metrics = metrics or Metrics()

    def guard() -> None:
        if not lease.held:
            raise LeaseLostError("the lease is lost")

    random = Random(options.seed)  # noqa: S311
    state = Caches(client, options.managed_drivers)
    writing = client.guarded(guard, timeout_s=options.lease_s / 3)
    writer = Writer(
        writing, state, concurrent=options.concurrent_writes, clock=time.monotonic, wall=time.time, random=random
    )
    recorder = EventRecorder(client, COMPONENT, instance=lease.identity)
    memory = UsageHistory(options.usage_half_life_s)
    reporter = Reporter(client, state, memory, recorder, WorkQueue(), clock=time.monotonic, wall=time.time)
    controller = Controller(
        writing,
        state,
        writer,
        reporter,
        memory,
        metrics,
        gang_timeout_s=options.gang_timeout_s,
        usage_weight=options.usage_weight,
        clock=time.monotonic,
        wall=time.time,
        sleep=asyncio.sleep,
        random=random,
    )
    await state.begin(client)
    standing.state, standing.controller = state, controller
    metrics.leader.set(1)
    try:
        async with _background(*(each.run() for each in state.copies()), recorder.run(), reporter.run()) as failed:
            synced = asyncio.gather(*(each.synced.wait() for each in state.copies()))
            await _first(synced, lease.lost.wait(), failed.wait())
            if not state.synced:
                return
            log.info(
                "caches are filled: %d nodes, %d slices, %d claims, %d pods",
                len(state.cluster_nodes), len(state.slices), len(state.claims), len(state.pods),
            )  # fmt: skip
            if ready is not None:
                ready.set()
            try:
                with settled():
                    await _first(controller.run(), lease.lost.wait(), failed.wait())
            finally:
                if not await controller.settle(options.lease_s):
                    log.warning("writes are still under way; the lease is left to expire")
                    lease.abandon()
    finally:
        standing.state = standing.controller = None
        metrics.leader.set(0)


@contextlib.asynccontextmanager
async def _background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Event]:
    """Runs these beside the body. The event is set when one of them ends, which none of them should."""
    failed = asyncio.Event()
    tasks = [asyncio.create_task(each) for each in work]

    def over(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, LeaseLostError):
            log.error("a background task ended: %r", error, exc_info=error)
        failed.set()

    for task in tasks:
        task.add_done_callback(over)
    try:
        yield failed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(*waits: Any) -> None:
    """Until the first of them is over; the others are cancelled and waited for. Its exception is raised."""
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
