"""Running blocking work in threads of its own, with a deadline on the waiting, not on the work.

Exists because a call into NVML can hang for ever. `asyncio.to_thread` would then block a shared pool and the exit of the
process; a daemon thread of its own blocks nothing but the locks that it holds. The work goes on after the deadline: its
outcome is on disk, and kubelet's next call finds it there.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
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

    threading.Thread(target=main, name=getattr(work, "__name__", "work"), daemon=True).start()
    return await done
