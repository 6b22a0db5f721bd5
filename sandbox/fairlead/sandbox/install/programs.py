"""Starts and stops the three programs for a cluster: as processes that can really be killed, or inside this one.

Exists so that the sandbox runs what users run. As processes (the default) a kill is a SIGKILL, sent to the program alone:
no cleanup code runs. Inside (for clusters of hundreds of nodes, where a process each is too much) a program is a task;
it can be stopped, but `kill` refuses, since cancelling a task runs the very cleanup that a kill would not.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from fairlead.sandbox.install import program_host

log = logging.getLogger(__name__)

Mode = Literal["process", "task"]
STOP_TIMEOUT_S = 10.0


class ProgramError(RuntimeError):
    """A program that ended when it should run, or did not get ready in time. Names its log."""


class Program(Protocol):
    """One program that was started once."""

    async def ready(self, timeout_s: float) -> None: ...

    async def stop(self) -> None: ...

    async def kill(self) -> None: ...


class Programs(Protocol):
    def start(self, name: str, program: str, options: Any) -> Program: ...


@contextlib.asynccontextmanager
async def running(mode: Mode, *, log_dir: Path, log_level: str = "INFO") -> AsyncIterator[Programs]:
    """Where programs run, for the length of the block; whatever still runs at its end is stopped."""
    if mode == "task":
        tasks = _Tasks()
        try:
            yield tasks
        finally:
            await asyncio.gather(*(each.stop() for each in tasks.started))
        return
    host = Host(log_dir=log_dir, log_level=log_level)
    await host.open()
    try:
        yield host
    finally:
        await host.close()


# -- inside this process -----------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Task:
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


class _Tasks:
    """As with processes, one that fails takes no other with it."""

    def __init__(self) -> None:
        self.started: list[_Task] = []

    def start(self, name: str, program: str, options: Any) -> Program:
        module, _ = program_host.PROGRAMS[program]
        is_ready = asyncio.Event()
        run = importlib.import_module(module).run(options, ready=is_ready)
        made = _Task(name=name, task=asyncio.create_task(run, name=name), is_ready=is_ready)
        self.started.append(made)
        return made


# -- processes ---------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Process:
    host: Host
    name: str
    log: Path
    id: str
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None

    async def ready(self, timeout_s: float) -> None:
        waiting = [asyncio.ensure_future(each.wait()) for each in (self.is_ready, self.exited)]
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if self.is_ready.is_set() and not self.exited.is_set():
            return
        if self.status is None and self.exited.is_set():
            raise ProgramError(f"{self.name}: the program host ended; see host.log beside {self.log}")
        what = f"ended with status {self.status}" if self.exited.is_set() else f"is not ready after {timeout_s:.0f} s"
        raise ProgramError(f"{self.name} {what}; its log {self.log} ends with:\n{_tail(self.log)}")

    async def stop(self) -> None:
        """SIGTERM, and time to clean up; SIGKILL after that."""
        if self.exited.is_set():
            return
        self.host.signal(self.id, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.exited.wait()
        except TimeoutError:
            log.warning("%s does not stop; killing it. Its log: %s", self.name, self.log)
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL; returns when it is dead."""
        if not self.exited.is_set():
            self.host.signal(self.id, signal.SIGKILL)
            await self.exited.wait()


class Host:
    """The forking host process and what runs under it."""

    def __init__(self, *, log_dir: Path, log_level: str) -> None:
        self._log_dir = log_dir
        self._log_level = log_level
        self._processes: dict[str, Process] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._serial = 0

    async def open(self) -> None:
        """Starts the host; it imports while the rest of the cluster starts."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        with (self._log_dir / "host.log").open("ab") as stderr:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fairlead.sandbox.install.program_host",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for us: we stop them in order
                # gRPC's fork handlers would look for threads that the host does not have.
                env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"},
            )
        self._reader = asyncio.create_task(self._read(), name="program host")

    async def close(self) -> None:
        await asyncio.gather(*(each.stop() for each in self._processes.values()))
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._reader is not None:
            await self._reader

    def start(self, name: str, program: str, options: Any) -> Program:
        encoded = program_host.encode(options)
        return self._start(name, {"program": program, "options": encoded, "log_level": self._log_level})

    def command(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Process:
        """The `fairlead` command line, as a container of the image would run it."""
        return self._start(name, {"command": list(arguments), "environment": dict(environment)})

    def _start(self, name: str, what: Mapping[str, Any]) -> Process:
        self._serial += 1
        log = self._log_dir / f"{name.replace(' ', '-')}.log"
        made = Process(host=self, name=name, log=log, id=f"{name} #{self._serial}")
        self._processes[made.id] = made
        if self._reader is None or self._reader.done():
            made.exited.set()  # the host is gone: `ready` will say so
            return made
        self._send({"op": "start", "id": made.id, "log": str(log), **what})
        return made

    def signal(self, process_id: str, number: int) -> None:
        """Sent by the host, which knows whose child is still there."""
        self._send({"op": "signal", "id": process_id, "number": int(number)})

    def _send(self, order: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            event = json.loads(line)
            made = self._processes.get(event.get("id", ""))
            if made is None:
                continue
            if event["event"] == "ready":
                made.is_ready.set()
            elif event["event"] == "exited":
                made.status = event["status"]
                made.exited.set()
        for each in self._processes.values():  # the host is gone, and everything with it
            each.exited.set()


def _tail(path: Path, lines: int = 15) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return str(error)
