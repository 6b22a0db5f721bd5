"""Ends an input that takes too long: its CPU time is judged, for a loaded machine is no fault of a parser's.

A timer of the process looks every quarter of a second at what the present input has used. What blocks without using the CPU is
ended by the clock, later. Code that never returns to the interpreter is ended by the parent process (`processes`).
The exception is raised again until the input has ended: the interpreter drops one that is raised in a finalizer, and an event loop
one that is raised in a callback. The process has one such timer: one that was set before, a test's timeout, goes on in this one's looks.
"""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType
from typing import Self

HANG_S = 1.0
BLOCKED_S = 20.0
_LOOK_S = 0.25
_AGAIN_S = 2.0  # until it is raised again


class HangError(BaseException):
    """The input took too long. No Exception, so that no parser catches it."""


class Watchdog:
    """Use it in the main thread, inside `with`; `begin` each input, and `end` it."""

    def __init__(self) -> None:
        self._cpu_s: float | None = None
        self._wall_s = 0.0
        self._raised = -_AGAIN_S
        self._former_due: float | None = None

    def begin(self) -> None:
        self._wall_s = time.monotonic()
        self._cpu_s = time.process_time()

    def end(self) -> float:
        """The seconds of CPU that the input took. Raises HangError where they are too many."""
        began, self._cpu_s = self._cpu_s, None
        took_s = time.process_time() - (began or 0.0)
        if took_s > HANG_S:
            raise HangError(f"took {took_s:.2f} s of CPU, and {HANG_S:g} s are allowed")
        return took_s

    def __enter__(self) -> Self:
        self._former = signal.signal(signal.SIGALRM, self._look)
        left_s, _ = signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        self._former_due = time.monotonic() + left_s if left_s else None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        due = self._former_due
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self._former)
        if due is not None:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, due - time.monotonic()))

    def _look(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._former_due is not None and now >= self._former_due and callable(self._former):
            self._former_due = None
            self._former(number, frame)
        began = self._cpu_s
        if began is None or now < self._raised + _AGAIN_S:
            return
        took_s, waited_s = time.process_time() - began, now - self._wall_s
        if took_s > HANG_S or waited_s > BLOCKED_S:
            self._raised = now
            raise HangError(f"is not done after {took_s:.2f} s of CPU and {waited_s:.1f} s of time")
