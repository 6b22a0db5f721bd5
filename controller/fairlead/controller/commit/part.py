"""What the parts of one term of leadership share, and the tasks in which they write.

The loop never waits for the apiserver: what is written is written in a task, by name, each at most once at a time, and all are awaited
when the term ends. No failure is silent: each is logged, counted, and given to the caller's callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fairlead.controller.book.book import Book
from fairlead.controller.commit.writer import Writer
from fairlead.controller.commit.writes import GivenUpError, LeaseLostError
from fairlead.controller.options import ControllerOptions
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.telemetry import Telemetry
from fairlead.controller.watch.caches import Caches
from fairlead.kube import errors, logs
from fairlead.kube.client import Client
from fairlead.kube.limits import Clock
from fairlead.kube.timing import Time

log = logging.getLogger(__name__)

Job = Coroutine[Any, Any, None]
LEASE_LOST_S = 1.0


class Tasks:
    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(
        self,
        name: str,
        job: Job,
        *,
        failed: Callable[[str], None] | None = None,
        ended: Callable[[], None] | None = None,
        level: int = logging.DEBUG,
    ) -> None:
        """Does nothing while a task of this name runs. `failed` gets the reason; `ended` is called in any case."""
        if name in self._tasks:
            job.close()
            return

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.pop(name, None)
            if ended:
                ended()

        task = self._tasks[name] = asyncio.create_task(self._run(name, job, failed, level), name=name)
        task.add_done_callback(done)

    async def _run(self, name: str, job: Job, failed: Callable[[str], None] | None, level: int) -> None:
        try:
            with logs.operation(log, name, level=level, clock=self._clock):
                await job
        except LeaseLostError:
            log.debug("%s: left as it is: the lease is lost", name)
            await asyncio.sleep(LEASE_LOST_S)  # or the same task would start again and again until the term ends
        except (errors.ApiError, GivenUpError) as error:
            log.warning("%s: %s", name, error)
            if failed:
                failed(str(error))
        except Exception as error:
            log.exception("%s: failed", name)
            self._metrics.errors.labels("task").inc()
            if failed:
                failed(f"{type(error).__name__}: {error}")

    async def finish(self, timeout_s: float) -> bool:
        """Waits for all tasks; False when some still ran after `timeout_s`, and were cancelled."""
        end = self._clock() + timeout_s
        while self._tasks and self._clock() < end:
            await asyncio.wait(list(self._tasks.values()), timeout=max(0.0, end - self._clock()))
        late = list(self._tasks.values())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return not late


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """`client` is guarded by the lease: a call without it raises LeaseLostError."""

    client: Client
    caches: Caches
    book: Book
    writer: Writer
    tasks: Tasks
    telemetry: Telemetry
    time: Time
    options: ControllerOptions


class Part:
    """Has what is shared under names of its own."""

    def __init__(self, shared: Shared) -> None:
        self._client, self._caches, self._book = shared.client, shared.caches, shared.book
        self._writer, self._tasks, self._options = shared.writer, shared.tasks, shared.options
        telemetry, time = shared.telemetry, shared.time
        self._events, self._metrics, self._traces = telemetry.events, telemetry.metrics, telemetry.traces
        self._clock, self._wall, self._sleep, self._random = time.clock, time.wall, time.sleep, time.random
