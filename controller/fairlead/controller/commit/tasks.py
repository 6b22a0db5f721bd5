"""The writes that are under way: one task a gang, each other piece of work at most once, all waited for at the end.

Exists so that the loop never waits for the apiserver, and so that nothing is left half written in silence: every failure
is logged, counted, and told to whoever asked. Knows nothing of gangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fairlead.controller.commit.writes import GivenUpError, LeaseLostError
from fairlead.controller.report.metrics import Metrics
from fairlead.kube import errors, logs
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

Job = Coroutine[Any, Any, None]
LOST_S = 1.0


class Tasks:
    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def once(
        self,
        what: str,
        job: Job,
        *,
        failed: Callable[[str], None] | None = None,
        over: Callable[[], None] | None = None,
        level: int = logging.DEBUG,
    ) -> None:
        """Starts the job unless one of the same name is under way. `failed` hears why; `over` is called in any case."""
        if what in self._tasks:
            job.close()
            return

        async def guarded() -> None:
            try:
                with logs.operation(log, what, level=level, clock=self._clock):
                    await job
            except LeaseLostError:
                log.debug("%s: left as it is: the lease is lost", what)
                await asyncio.sleep(LOST_S)  # until the end of this term is noticed, nothing is begun again and again
            except (errors.ApiError, GivenUpError) as error:
                log.warning("%s: %s", what, error)
                if failed:
                    failed(str(error))
            except Exception as error:
                log.exception("%s: failed", what)
                self._metrics.errors.labels("task").inc()
                if failed:
                    failed(f"{type(error).__name__}: {error}")

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.pop(what, None)
            if over:
                over()

        task = self._tasks[what] = asyncio.create_task(guarded(), name=what)
        task.add_done_callback(done)

    async def settle(self, patience_s: float) -> bool:
        """Waits for all of it; false when some is still under way after `patience_s` (then it is cancelled)."""
        end = self._clock() + patience_s
        while self._tasks and self._clock() < end:
            await asyncio.wait(list(self._tasks.values()), timeout=max(0.0, end - self._clock()))
        late = list(self._tasks.values())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return not late
