"""The scheduling queue: active pods by priority, then age; unschedulable ones wait until something changed.

An unschedulable pod costs nothing while the cluster does not change, and is tried at most once per backoff (1 s doubling
to 10 s) while it does. A gated pod leaves the queue, and its next change adds it again.
Source: kubernetes pkg/scheduler/backend/queue/scheduling_queue.go, without its per-plugin hints.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

from fairlead.kube.limits import Clock


class PodQueue:
    def __init__(self, *, clock: Clock, backoff_s: tuple[float, float]) -> None:
        self._clock = clock
        self._first_s, self._max_s = backoff_s
        self._heap: list[tuple[int, int, str]] = []
        self._active: dict[str, int] = {}  # key -> sequence of its live heap entry
        self._unschedulable: dict[str, float] = {}  # key -> not before
        self._backoff: dict[str, float] = {}  # unschedulable, and something changed since -> due
        self._attempts: dict[str, int] = {}
        self._priority: dict[str, int] = {}
        self._age: dict[str, int] = {}
        self._sequence = itertools.count()
        self._wake = asyncio.Event()

    def add(self, key: str, *, priority: int = 0) -> None:
        """Make the pod active: it is new, or it changed."""
        self._unschedulable.pop(key, None)
        self._backoff.pop(key, None)
        self._priority[key] = priority
        self._age.setdefault(key, next(self._sequence))
        if key not in self._active:
            self._active[key] = self._age[key]
            heapq.heappush(self._heap, (-priority, self._age[key], key))
        self._wake.set()

    def drop(self, key: str) -> None:
        for each in (self._active, self._unschedulable, self._backoff, self._attempts, self._priority, self._age):
            each.pop(key, None)

    bound = drop

    def unschedulable(self, key: str, *, retry: bool = False) -> None:
        """The pod could not be scheduled. `retry`: because of an error, so it is tried again even when nothing changes."""
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        due_s = self._clock() + min(self._max_s, self._first_s * 2.0 ** (attempts - 1))
        (self._backoff if retry else self._unschedulable)[key] = due_s
        self._wake.set()

    def something_changed(self) -> None:
        """Every unschedulable pod may fit now: each is tried again once its backoff is over."""
        if self._unschedulable:
            self._backoff |= self._unschedulable
            self._unschedulable.clear()
            self._wake.set()

    async def get(self) -> str:
        while True:
            wait_s = self._promote()
            while self._heap:
                _, _, key = heapq.heappop(self._heap)
                if self._active.pop(key, None) is not None:
                    return key
            self._wake.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _promote(self) -> float | None:
        """Make active what is due; seconds until the next is due, None if nothing waits."""
        now_s = self._clock()
        for key in [key for key, due_s in self._backoff.items() if due_s <= now_s]:
            self.add(key, priority=self._priority.get(key, 0))
        return min(self._backoff.values()) - now_s if self._backoff else None
