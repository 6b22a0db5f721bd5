"""Runs one of the three programs as a process: logs, signals, exit codes.

A program's `run` ends only by cancellation or by an error. SIGTERM and SIGINT cancel it, so that it gives
back its lease and its sockets; an error is one line that says what to do, and exit code 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Literal

import typer

from fairlead.kube import logs

log = logging.getLogger("fairlead")

LogFormat = Literal["json", "text"]
LogLevel = Literal["ERROR", "WARNING", "INFO", "DEBUG"]


def serve(
    program: Callable[[], Awaitable[None]],
    *,
    log_format: LogFormat,
    log_level: LogLevel,
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run `program()` until SIGTERM or SIGINT, on `loop()` where given. Raises typer.Exit(1) when it fails."""
    logs.configure(format=log_format, level=log_level)
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(_until_signalled(program))
    except Exception as error:
        log.error("stopped: %s", error, exc_info=log_level == "DEBUG")
        raise typer.Exit(1) from error


async def _until_signalled(program: Callable[[], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(program())
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    with contextlib.suppress(asyncio.CancelledError):
        await task
        return
    if not stopped:
        raise RuntimeError("cancelled from within")
