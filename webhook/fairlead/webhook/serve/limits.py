"""Every limit of the server, and what shares it out: selectors' tokens between namespaces, log lines, turns of the event loop.

Compiling a token of a selector takes up to 0.03 ms of the only thread. What one review compiles is bounded by `handlers.dispatch`; one
namespace compiles at most BURST tokens at once and RATE a second, 3 % of a core, however many objects it writes (a dry run compiles as well).
Selectors that are cached cost nothing. Example: a namespace that applies 300 templates with different selectors of 100 tokens waits for none.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

HEAD_BYTES_MAX = 16 * 1024
"""Request line and header fields, without the empty line after them."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """An update's review holds two objects, each of at most 3 MiB (the apiserver's limit)."""

    body_bytes: int = 8 * 1024 * 1024
    body_s: float = 5.0
    head_s: float = 5.0
    handshake_s: float = 5.0
    facts_s: float = 1.5
    idle_s: float = 120.0
    """Of a connection that has carried a review; one that has not is ended after head_s."""
    linger_s: float = 1.0
    """From the last answer until the client closes, too: what it still sends is discarded."""
    connections: int = 1024
    """Accepted sockets, whatever they have sent."""
    buffered_bytes: int = 64 * 1024 * 1024
    """Of all connections: what was received and is not judged yet, and answers that are not sent yet."""
    lookups: int = 32
    """Reviews of connections that have not carried one before, for which the apiserver is asked at the same time."""

    @property
    def answer_s(self) -> float:
        return self.body_s + self.facts_s


BURST: Final = 30_000
RATE: Final = 1_000.0
NAMESPACES_MAX: Final = 10_000
"""Buckets that are kept; the fullest are dropped first, for a full one says nothing."""


class CompileTokens:
    """How many tokens of selectors each namespace may still have compiled: a bucket per namespace, filled over time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # by namespace: tokens, and when there were so many

    def allowed(self, namespace: str) -> int:
        """0 where the namespace has used up its share."""
        return max(0, int(self._left(namespace)))

    def spent(self, namespace: str, tokens: int) -> None:
        left = self._left(namespace) - tokens
        self._buckets.pop(namespace, None)
        if len(self._buckets) >= NAMESPACES_MAX:
            fullest = sorted(self._buckets, key=self._left, reverse=True)
            for name in fullest[: NAMESPACES_MAX // 2]:
                del self._buckets[name]
        self._buckets[namespace] = (left, self._clock())

    def _left(self, namespace: str) -> float:
        known = self._buckets.get(namespace)
        if known is None:
            return BURST
        return min(BURST, known[0] + (self._clock() - known[1]) * RATE)


WINDOW_S = 10.0
CHARS_MAX = 2_000


class LimitedLog:
    """A log of at most `lines` lines per window; the first line after a window says how many were left out."""

    def __init__(
        self, log: logging.Logger, level: int, lines: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._level, self._lines, self._clock = log, level, lines, clock
        self._ends = 0.0
        self._written = self._left_out = 0

    def __call__(self, text: str, *values: object) -> None:
        now = self._clock()
        if now >= self._ends:
            if self._left_out:
                self._log.log(self._level, "%d more lines like the last one were left out", self._left_out)
            self._ends, self._written, self._left_out = now + WINDOW_S, 0, 0
        if self._written >= self._lines:
            self._left_out += 1
            return
        self._written += 1
        self._log.log(self._level, text, *(_cut(value) for value in values))


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > CHARS_MAX:
        return f"{value[:CHARS_MAX]}… ({len(value)} characters)"
    return value


SHARES_S = (0.01, 0.005)
"""Of the proven lane, and of the other."""
Rank = tuple[float, ...]
"""Within a lane the lowest goes first."""


class Turns:
    """Work of many connections on one event loop, in order of rank, for a few milliseconds per pass of the loop.

    Each of two lanes has its share of every pass: a flood of newcomers does not hold up reviews of proven connections, and many reviews
    do not hold up a new connection's handshake. Between two passes the loop reads what has arrived. One piece of work is never
    interrupted: a lane takes at most its share and one piece per pass.
    """

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
