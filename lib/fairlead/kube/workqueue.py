"""Keys to reconcile: each queued at most once, reconciled by one worker at a time, delayed after failures.

A burst of changes to one object costs one pass, and a failing object does not hold up the others. The queue holds keys, not
objects: the worker reads the current state. No I/O; clock, sleep and randomness are arguments.
Invariants: a key added while a worker has it is queued again when the worker is done; no two workers have the same key.
Source: client-go util/workqueue.
"""

import asyncio
import heapq
import itertools
import time
from collections import OrderedDict
from random import Random
from typing import Generic, TypeVar

from fairlead.kube.limits import Backoff, Clock, Sleep

K = TypeVar("K")


class WorkQueue(Generic[K]):
    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        self._backoff = backoff or Backoff(base_s=0.05, max_s=60.0)
        self._clock = clock
        self._sleep = sleep
        self._random = random or Random()  # noqa: S311 - jitter
        # By arrival. In a plain dict, finding the first key costs one step for each key deleted before it.
        self._ready: OrderedDict[K, None] = OrderedDict()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._sequence = itertools.count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Queued keys, delayed ones included."""
        return len(self._ready) + len(self._due)

    def add(self, key: K) -> None:
        """Queues the key: now, or when the worker that has it is done."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
            return
        self._ready[key] = None
        self._changed.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """Queues the key after a delay, unless it is queued already or due earlier."""
        if delay_s <= 0:
            self.add(key)
            return
        due = self._clock() + delay_s
        if key in self._ready or self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._sequence), key))
        self._changed.set()

    def retry(self, key: K) -> float:
        """Queues the key after a failure, with a longer delay each time. Returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = self._backoff.delay(failures, self._random)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Resets the key's failures, after a success."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Waits for the next key. Call `done` with it afterwards."""
        while True:
            wait_s = self._promote()
            if self._ready:
                key, _ = self._ready.popitem(last=False)
                self._working.add(key)
                return key
            self._changed.clear()
            await self._wait(wait_s)

    def done(self, key: K) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _promote(self) -> float | None:
        """Queues the delayed keys that are due. Returns the seconds until the next one is, None if there is none."""
        now = self._clock()
        while self._later:
            due, _, key = self._later[0]
            if self._due.get(key) != due:  # queued meanwhile, or due at another time
                heapq.heappop(self._later)
                continue
            if due > now:
                return due - now
            heapq.heappop(self._later)
            self.add(key)
        return None

    async def _wait(self, wait_s: float | None) -> None:
        if wait_s is None:
            await self._changed.wait()
            return
        tasks = (asyncio.ensure_future(self._changed.wait()), asyncio.ensure_future(self._sleep(wait_s)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
