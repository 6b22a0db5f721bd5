"""How many tokens of selectors each namespace may still have compiled: a bucket per namespace, filled over time.

Compiling a token takes up to 0.03 ms of the only thread. What one review
compiles is bounded by `handlers.dispatch`; one namespace compiles at most BURST tokens at once and RATE a second, 3 % of a core, however many
objects it writes (a dry run compiles as well). Selectors that are
cached cost nothing. Example: a namespace that applies 300 templates with different selectors of 100 tokens each waits for none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BURST: Final = 30_000
RATE: Final = 1_000.0
NAMESPACES_MAX: Final = 10_000
"""Buckets that are kept; the fullest are dropped first, for a full one says nothing."""


class CompileTokens:
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
