"""Keys waiting to be worked on: each at most once, one worker per key at a time, failures delayed.

Exists so that a burst of changes to one object costs one pass, and a failing object cannot starve the others.
Holds keys, not objects: the worker reads the newest state. No I/O; clock, sleep and randomness are arguments.
Keeps: a key added while it is being worked on is worked on again afterwards; never two workers on one key.
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
        self._ready: OrderedDict[K, None] = (
            OrderedDict()
        )  # by arrival; a dict's first key costs all that were before it
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._sequence = itertools.count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Keys that wait, delayed ones included."""
        return len(self._ready) + len(self._due)

    def add(self, key: K) -> None:
        """Now, or right after the pass that is under way."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
            return
        self._ready[key] = None
        self._changed.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """After a delay; an earlier date that is already set stands."""
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
        """After a failure: later each time. Returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = self._backoff.delay(failures, self._random)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """After a success: the next failure is a first one."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key, once there is one. Call `done` with it afterwards."""
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
        """Moves what is due to the ready ones; seconds until the next is due, None if nothing is."""
        now = self._clock()
        while self._later:
            due, _, key = self._later[0]
            if self._due.get(key) != due:  # added meanwhile, or dated earlier
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
