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
from collections import OrderedDict, deque
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
        self._waiting: deque[asyncio.Future[None]] = deque()  # calls of `get`, by arrival
        self._alarm: asyncio.Future[None] | None = None  # wakes one of them
        self._alarm_at = 0.0

    def __len__(self) -> int:
        """Queued keys, delayed ones included."""
        return len(self._ready) + len(self._due)

    def add(self, key: K) -> None:
        """Queues the key: now, or when the worker that has it is done."""
        if self._add(key):
            self._wake()

    def _add(self, key: K) -> bool:
        """Whether a worker can take it now."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
            return False
        self._ready[key] = None
        return True

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
        if self._waiting:
            self._set_alarm(due)

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
            due = self._promote()
            if self._ready:
                key, _ = self._ready.popitem(last=False)
                self._working.add(key)
                if self._ready:
                    self._wake()  # several may have come due at once
                return key
            await self._wait(due)

    def done(self, key: K) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _promote(self) -> float | None:
        """Queues the delayed keys that are due. Returns when the next one is, None if there is none."""
        now = self._clock()
        while self._later:
            due, _, key = self._later[0]
            if self._due.get(key) != due:  # queued meanwhile, or due at another time
                heapq.heappop(self._later)
                continue
            if due > now:
                return due
            heapq.heappop(self._later)
            self._add(key)
        return None

    async def _wait(self, due: float | None) -> None:
        """Until a key is added, or one is due. One key wakes one worker: the others sleep on."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(woken)
        if due is not None:
            self._set_alarm(due)
        try:
            await woken
        except asyncio.CancelledError:
            if woken in self._waiting:
                self._waiting.remove(woken)
            elif self._ready and not woken.cancelled():
                self._wake()  # another takes the key
            raise
        finally:
            if not self._waiting and self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None

    def _wake(self) -> None:
        while self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():  # not cancelled
                woken.set_result(None)
                return

    def _set_alarm(self, due: float) -> None:
        if self._alarm is not None:
            if self._alarm_at <= due:
                return
            self._alarm.cancel()
        self._alarm, self._alarm_at = asyncio.ensure_future(self._ring(due)), due

    async def _ring(self, due: float) -> None:
        await self._sleep(max(0.0, due - self._clock()))
        self._alarm = None
        self._wake()
