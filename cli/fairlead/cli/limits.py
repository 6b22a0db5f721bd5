"""How much CPU time one answer may take: a manifest may be valid and still ask for more than anybody waits for.

The pages compute in a process of its own, which they end; a command is such a process already, and ends itself with a message.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooLongError(BaseException):
    """Not an Exception: what contains the failure of one object must not go on with the next."""


@contextmanager
def cpu_at_most(seconds: float) -> Iterator[None]:
    """Bounds the CPU seconds of this process, in its main thread; elsewhere nothing is limited. Raises TooLongError."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ended(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, ended)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
