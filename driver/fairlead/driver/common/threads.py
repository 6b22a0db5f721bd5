"""Blocking work in daemon threads; a deadline ends the waiting, not the work.

A call into NVML can hang forever. With `asyncio.to_thread` it would block the pool and the exit of the process; a
daemon thread blocks only the locks that it holds. The work continues after its caller stopped waiting: its outcome is
on disk, where kubelet's next call finds it. Threads are reused. To start one, the event loop waits for it; with 64
calls at once that was half of their time.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS_MAX = 32


class Threads:
    """Up to `THREADS_MAX` threads, started when needed; more work is queued."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._started = 0
        self._idle = 0  # threads without work
        self._pending = 0  # work without a thread
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work(*args)` from a thread; its log lines carry the caller's operation ID."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def resolve(result: T | None, error: BaseException | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]  # None only when T is None

        def main() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = context.run(work, *args, **kwargs)
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: there is no caller
                loop.call_soon_threadsafe(resolve, result, error)

        self._enqueue(main)
        return await done

    def close(self) -> None:
        """End the idle threads now, busy ones after their work or with the process."""
        with self._guard:
            self._pending += self._started
            for _ in range(self._started):
                self._work.put(None)

    def _enqueue(self, main: Callable[[], None]) -> None:
        with self._guard:
            self._pending += 1
            if self._pending > self._idle and self._started < THREADS_MAX:
                self._started += 1
                self._idle += 1
                threading.Thread(target=self._serve, name=f"work-{self._started}", daemon=True).start()
            self._work.put(main)

    def _serve(self) -> None:
        while True:
            main = self._work.get()
            with self._guard:
                self._idle -= 1
                self._pending -= 1
            if main is None:
                return
            main()
            with self._guard:
                self._idle += 1
