"""Turns: work of many connections on one event loop, in order of rank, for a few milliseconds per pass of the loop.

Two lanes: proven connections, and the others. Each has its share of every pass, so that neither starves the other: a flood of
newcomers does not hold up reviews, and many reviews do not hold up a new connection's handshake. Between two passes the loop reads
what has arrived. One piece of work is never interrupted: a lane takes at most its share and one piece per pass.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable

SHARES_S = (0.01, 0.005)
"""Of the proven lane, and of the other."""
Rank = tuple[float, ...]
"""Within a lane the lowest goes first."""


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.perf_counter) -> None:
        self._loop, self._clock = loop, clock
        self._lanes: tuple[list[tuple[Rank, int, Callable[[], None]]], ...] = ([], [])
        self._added = 0
        self._scheduled = False

    def add(self, work: Callable[[], None], rank: Rank, *, proven: bool) -> None:
        """work: raises nothing; where its connection is gone, it does nothing."""
        self._added += 1
        heapq.heappush(self._lanes[0 if proven else 1], (rank, self._added, work))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        try:
            for lane, share_s in zip(self._lanes, SHARES_S, strict=True):
                ends = self._clock() + share_s
                while lane:
                    heapq.heappop(lane)[2]()
                    if self._clock() >= ends:
                        break
        finally:
            self._scheduled = any(self._lanes)
            if self._scheduled:
                self._loop.call_soon(self._pass)
