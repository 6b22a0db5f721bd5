"""Running blocking work in daemon threads, with deadlines on the waiting, not on the work.

Exists because a call into NVML can hang for ever. `asyncio.to_thread` would then keep its pool and the exit of the
process waiting; daemon threads keep nothing but the locks that they hold. The work goes on after the waiting ends: its
outcome is on disk, and kubelet's next call finds it there.
Threads are kept for the next piece of work: starting one makes the event loop wait for it, which under 64 calls at once
took half of their time.
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
    """Up to `most` threads, started when needed. Work beyond that waits for its turn."""

    def __init__(self, most: int = THREADS_MAX) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._started = 0
        self._waiting = 0  # threads without work
        self._pending = 0  # work without a thread
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`work(*args)` in a thread; log lines in it keep the caller's operation ID."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def settle(result: T | None, error: BaseException | None) -> None:
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
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, result, error)

        self._put(main)
        return await done

    def close(self) -> None:
        """Let idle threads end; those at work end after it, or with the process."""
        with self._guard:
            self._pending += self._started
            for _ in range(self._started):
                self._work.put(None)

    def _put(self, main: Callable[[], None]) -> None:
        with self._guard:
            self._pending += 1
            if self._pending > self._waiting and self._started < self._most:
                self._started += 1
                self._waiting += 1
                threading.Thread(target=self._serve, name=f"work-{self._started}", daemon=True).start()
            self._work.put(main)

    def _serve(self) -> None:
        while True:
            main = self._work.get()
            with self._guard:
                self._waiting -= 1
                self._pending -= 1
            if main is None:
                return
            main()
            with self._guard:
                self._waiting += 1
