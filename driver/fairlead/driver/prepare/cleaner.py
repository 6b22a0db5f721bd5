"""Tries again, beside kubelet's calls, what is left of claims: with a back-off of its own for each.

One that fails, or takes its time, delays no other: each is tried in a thread of its own, and a round waits for none
longer than `ROUND_S`. The first failure of each, and each other reason, is reported.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

from fairlead.driver.common.process_lock import ProcessLock
from fairlead.driver.common.threads import Threads
from fairlead.driver.prepare.leftovers import Leftover, Leftovers, reason
from fairlead.kube.limits import Clock, Sleep

log = logging.getLogger(__name__)

BACKOFF_S = 5.0
BACKOFF_MAX_S = 300.0
ROUND_S = 10.0
LOCK_TIMEOUT_S = 10.0
AT_ONCE_MAX = 8


@dataclasses.dataclass(slots=True)
class _Tried:
    failures: int = 0
    due_s: float = 0.0
    reported: str = ""


class Cleaner:
    """`clean` is one round, `run` rounds every `interval_s`.

    `report` is called with what could not be removed, why, and when it is tried again; `count` after each round with
    the number left, by kind.
    """

    def __init__(
        self,
        leftovers: Leftovers,
        *,
        process_lock: ProcessLock,
        threads: Threads,
        report: Callable[[Leftover, str, float], None],
        count: Callable[[Mapping[str, int]], None],
        interval_s: float = 5.0,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._leftovers = leftovers
        self._process_lock = process_lock
        self._threads = threads
        self._report = report
        self._count = count
        self._interval_s = interval_s
        self._clock = clock
        self._sleep = sleep
        self._tried: dict[Leftover, _Tried] = {}
        self._running: dict[Leftover, asyncio.Task[None]] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.clean()
            except Exception:
                log.exception("cannot list what is left of claims; tried again in %g s", self._interval_s)
            await self._sleep(self._interval_s)

    async def clean(self) -> None:
        """Try what is due, and no longer than `ROUND_S`; what takes longer goes on. Raises OSError."""
        found = await self._threads.run(self._leftovers.all)
        self._tried = {each: self._tried.get(each, _Tried()) for each in found}
        free = AT_ONCE_MAX - len(self._running)
        due = [each for each in found if each not in self._running and self._tried[each].due_s <= self._clock()]
        for each in sorted(due, key=lambda one: self._tried[one].due_s)[: max(0, free)]:
            task = asyncio.get_running_loop().create_task(self._attempt(each))
            self._running[each] = task
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=ROUND_S)
        self._count(Counter(each.kind for each in await self._threads.run(self._leftovers.all)))

    async def _attempt(self, each: Leftover) -> None:
        try:
            await self._try(each, self._tried[each])
        finally:
            del self._running[each]

    async def _try(self, each: Leftover, tried: _Tried) -> None:
        try:
            async with self._process_lock.hold(timeout_s=LOCK_TIMEOUT_S):
                done = await self._threads.run(self._leftovers.attempt, each)
        except Exception as error:
            tried.failures += 1
            wait_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(tried.failures - 1, 16))
            tried.due_s = self._clock() + wait_s
            if (why := reason(error)) != tried.reported:
                tried.reported = why
                self._report(each, why, wait_s)
            return
        tried.failures, tried.due_s = 0, self._clock()  # after the others, where it needs another attempt
        if done:
            log.info("%s: what was left is removed", each.subject)
