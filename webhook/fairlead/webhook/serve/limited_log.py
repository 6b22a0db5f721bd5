"""Log lines that clients cause: a few per window of time, and then a count, so that a flood of requests makes no flood of lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

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
