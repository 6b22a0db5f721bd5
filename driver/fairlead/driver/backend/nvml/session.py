"""When NVML may be called: any number of calls at once, or a reset alone.

A GPU is not reset while any process has it open, and this process has with each handle. So a reset waits until no call
is under way, ends the session, and opens another; handles of the session before are not used again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


class SessionBusy(Exception):  # noqa: N818 - named after what went wrong, as the backend's errors
    """A call did not return in time."""


class Session:
    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._calls = 0
        self._alone = False

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """One call among others; waits while a reset is under way."""
        with self._condition:
            while self._alone:
                self._condition.wait()
            self._calls += 1
        try:
            yield
        finally:
            with self._condition:
                self._calls -= 1
                self._condition.notify_all()

    @contextlib.contextmanager
    def alone(self, timeout_s: float) -> Iterator[None]:
        """With no call under way, and none until it ends. Raises SessionBusy when a call does not return in time."""
        deadline_s = time.monotonic() + timeout_s
        with self._condition:
            while self._alone:
                if not self._condition.wait(deadline_s - time.monotonic()):
                    raise SessionBusy
            self._alone = True
            try:
                while self._calls:
                    if not self._condition.wait(max(0.0, deadline_s - time.monotonic())):
                        raise SessionBusy
            except SessionBusy:
                self._alone = False
                self._condition.notify_all()
                raise
        try:
            yield
        finally:
            with self._condition:
                self._alone = False
                self._condition.notify_all()
