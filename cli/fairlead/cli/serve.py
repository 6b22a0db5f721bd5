"""Runs one of the three programs as a process: logs, signals, readiness, exit code.

A program's `run` ends only by cancellation or by an error. SIGTERM and SIGINT cancel it, so that it releases its lease and
its sockets; an error is one log line that says what to do, and exit code 1. Readiness is announced by systemd's protocol
(sd_notify(3): READY=1 to $NOTIFY_SOCKET) where a supervisor asks for it; the sandbox and `Type=notify` units do.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import typer

from fairlead.cli.options import Logged
from fairlead.kube import logs

log = logging.getLogger("fairlead")


def serve(
    run: Callable[..., Awaitable[None]], options: Logged, *, loop: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    """Run `run(options, ready=event)` until SIGTERM or SIGINT, on `loop()` where given. Raises typer.Exit(1) on failure."""
    if not gc.isenabled():  # `main`: what was imported is never garbage
        gc.freeze()
        gc.enable()
    logs.configure(format=options.log_format, level=options.log_level)
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(_until_signalled(run, options))
    except Exception as error:
        log.error("stopped: %s", reason(error), exc_info=options.log_level == "DEBUG")
        raise typer.Exit(1) from error


def reason(error: BaseException) -> str:
    """What ended a program, in one line. Of a task group's error, which says only how many there are, what its tasks ended with."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(map(reason, error.exceptions)))
    # Of Python's own, others say too little by themselves: a KeyError only the key.
    own = type(error).__module__ == "builtins" and not isinstance(error, OSError | RuntimeError | ValueError)
    return f"{type(error).__name__}: {error}".removesuffix(": ") if own or not str(error) else str(error)


async def _until_signalled(run: Callable[..., Awaitable[None]], options: Any) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    task = asyncio.ensure_future(run(options, ready=ready))
    announcing = asyncio.create_task(_announce(ready))
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise RuntimeError("cancelled from within") from None
    finally:
        announcing.cancel()


async def _announce(ready: asyncio.Event) -> None:
    await ready.wait()
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path:
        # An address that begins with @ is in Linux' abstract namespace.
        address = path.replace("@", "\0", 1) if path.startswith("@") else path
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor, contextlib.suppress(OSError):
            supervisor.sendto(b"READY=1", address)
