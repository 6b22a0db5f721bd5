"""Drivers as tasks of the test's own process: for clusters of hundreds of nodes, where a process each is too much.

The command line is parsed by the command itself; only what it would run then runs here. `kill` is refused: cancelling a
task runs the very cleanup that a SIGKILL does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from fairlead.cli import serve
from fairlead.sandbox.install.programs import Program, ProgramError, Programs
from tests.support import commands

SWITCH_S = 0.0005


def drivers(**options: Any) -> Callable[[], AbstractAsyncContextManager[Programs]]:
    """For `ClusterOptions.drivers`. `options` are fields of DriverOptions that have no flag."""

    @contextlib.asynccontextmanager
    async def running() -> AsyncIterator[Programs]:
        tasks = Tasks(options)
        with _fair_threads():
            try:
                yield tasks
            finally:
                await asyncio.gather(*(each.stop() for each in tasks.started))

    return running


def parsed(arguments: Sequence[str]) -> tuple[Any, Any]:
    """What `fairlead ARGUMENTS` would run: the program's `run`, and the options that it would be given."""
    found: list[tuple[Any, Any]] = []

    def note(run: Any, options: Any, **_: Any) -> None:
        found.append((run, options))

    before, serve.serve = serve.serve, note
    try:
        commands.call(arguments)
    finally:
        serve.serve = before
    return found[0]


@dataclass(kw_only=True)
class Task:
    name: str
    task: asyncio.Task[None]
    is_ready: asyncio.Event

    async def ready(self, timeout_s: float) -> None:
        waiting = asyncio.ensure_future(self.is_ready.wait())
        await asyncio.wait((waiting, self.task), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.task.done() and not self.task.cancelled():
            raise ProgramError(f"{self.name} ended: {self.task.exception()}")
        if not self.is_ready.is_set():
            raise ProgramError(f"{self.name}: not ready after {timeout_s:.0f} s")

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def kill(self) -> None:
        raise ProgramError(f"{self.name}: a task cannot be killed, only stopped; run programs as processes")


class Tasks:
    """As with processes, one that fails takes no other with it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.started: list[Task] = []
        self._options = options

    def start(self, name: str, arguments: Sequence[str]) -> Program:
        run, options = parsed(arguments)
        is_ready = asyncio.Event()
        running = run(dataclasses.replace(options, **self._options), ready=is_ready)
        made = Task(name=name, task=asyncio.create_task(running, name=name), is_ready=is_ready)
        self.started.append(made)
        return made


@contextlib.contextmanager
def _fair_threads() -> Iterator[None]:
    """Drivers in this process do their file work in threads, and after each file a thread waits for its turn with the
    interpreter: 5 ms by default while the event loop is busy, which lets through two hundred files a second and no more.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
