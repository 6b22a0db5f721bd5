"""Tasks that run beside others, and waiting for the first of several to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any

log = logging.getLogger(__name__)


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
