"""The caches of one replica, filled and kept current from its start on, whether it leads or not.

So a standby takes over in about a second: of 10,000 nodes with 8 MIG-capable GPUs each, filling the caches takes half a
minute. While another leads, gangs are rebuilt as they change; a leader's loop does that itself. Reads only. And what runs beside a
program's main work: `background`, and `first` of several to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fairlead.controller.commit.writes import LeaseLostError
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.watch.caches import Caches
from fairlead.kube.client import Client
from fairlead.kube.garbage import frozen_heap
from fairlead.kube.lease import LeaderLease

log = logging.getLogger(__name__)

FILL_S = 60.0
"""A replica whose caches are not filled lets others have the lease first, for so long: in a rolling update the one that has
been there longer leads."""
GATHER_S = 1.0  # between two rebuilds of changed gangs
ERROR_PAUSE_S = 5.0


Rehearse = Callable[[set[GangId]], Awaitable[None]]


async def _nothing(changed: set[GangId]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Watched:
    """`failed` is set when an informer ended, which none should: these caches are of no use then."""

    caches: Caches
    failed: asyncio.Event


@contextlib.asynccontextmanager
async def watching(
    client: Client, drivers: tuple[str, ...], shared_drivers: tuple[str, ...] = (), *, forecasts: bool = True
) -> AsyncIterator[Watched]:
    """Caches of the managed `drivers`, whose informers run while the body does. `forecasts`: whether any are made."""
    caches = Caches(client, drivers, shared_drivers, forecasts=forecasts)
    await caches.discover(client)
    work = (*(each.run() for each in caches.all()), _freeze(caches))
    async with background(*work, ignore=LeaseLostError) as failed:
        yield Watched(caches, failed)


async def acquire(lease: LeaderLease, watched: Watched, rehearse: Rehearse = _nothing) -> None:
    """Stands by until the lease is acquired, or the caches are of no use. `rehearse` gets the gangs that were rebuilt."""
    async with background(_keep_gangs(watched.caches, rehearse), ignore=LeaseLostError) as failed:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FILL_S):
                await first(watched.caches.filled(), watched.failed.wait(), ignore=LeaseLostError)
        await first(lease.acquire(), watched.failed.wait(), failed.wait(), ignore=LeaseLostError)


async def _keep_gangs(caches: Caches, rehearse: Rehearse) -> None:
    """Rebuilds the gangs that changed, so that a new leader finds them built. Never returns."""
    await caches.filled()
    while True:
        caches.triggers.wake.clear()
        try:
            await rehearse(caches.refresh())
        except Exception:  # one object that breaks a rebuild must not stop it for all others
            log.exception("rebuilding gangs failed; the next time looks at all of them")
            caches.refresh_all()
            await asyncio.sleep(ERROR_PAUSE_S)
        await asyncio.sleep(GATHER_S)
        await caches.triggers.wake.wait()


async def _freeze(caches: Caches) -> None:
    """Keeps what filled the caches from being traversed by the garbage collector. Never returns."""
    await caches.filled()
    log.info(
        "caches are filled: %d nodes, %d slices, %d claims, %d pods",
        len(caches.nodes), len(caches.slices), len(caches.claims), len(caches.pods),
    )  # fmt: skip
    with frozen_heap():
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def background(*work: Coroutine[Any, Any, None], ignore: type[Exception]) -> AsyncIterator[asyncio.Event]:
    """Runs these beside the body. The event is set when one of them ends, which none of them should.

    What ended it is logged, but for exceptions to `ignore`.
    """
    failed = asyncio.Event()
    tasks = [asyncio.create_task(each) for each in work]

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ignore):
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


async def first(*waits: Any, ignore: type[Exception]) -> None:
    """Until the first of them ends; the others are cancelled and awaited. Raises its exception, but for those to `ignore`."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if (error := task.exception()) is not None and not isinstance(error, ignore):
                raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
