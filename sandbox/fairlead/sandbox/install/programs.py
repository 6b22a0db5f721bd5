"""Starts, stops and kills Fairlead's programs for a cluster, each as a process that runs the `fairlead` command line.

What runs is what users run: flags, environment, signals, logs. A kill is a SIGKILL, sent to the program alone. Readiness is
what the program itself announces (systemd's READY=1): driver, its slices are published and kubelet may call; webhook, it is
registered; controller, it leads and its caches are filled.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0


class ProgramError(RuntimeError):
    """A program that ended when it should run, or did not get ready in time. Names its log."""


class Program(Protocol):
    """One program that was started once."""

    async def ready(self, timeout_s: float) -> None:
        """Until it announces that it is. Raises ProgramError when it ends before, or when the time is up."""
        ...

    async def stop(self) -> None:
        """SIGTERM, and time to clean up; SIGKILL after that."""
        ...

    async def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        ...


class Programs(Protocol):
    """Where programs run: processes of a host here; tests of hundreds of nodes have tasks."""

    def start(self, name: str, arguments: Sequence[str]) -> Program:
        """Run `fairlead ARGUMENTS`; returns at once. `name` is that of its log."""
        ...


@dataclass(kw_only=True)
class Process:
    """A program as a process of its own."""

    host: ProgramHost
    name: str
    log: Path
    id: str
    announced: asyncio.Event = field(default_factory=asyncio.Event)
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None
    pid: int | None = None  # once the host has forked it

    async def ready(self, timeout_s: float) -> None:
        waiting = [asyncio.ensure_future(each.wait()) for each in (self.announced, self.exited)]
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if self.exited.is_set() or not self.announced.is_set():
            raise self.failure(timeout_s)

    def failure(self, waited_s: float) -> ProgramError:
        """Why it is not ready after so long: it ended, or it takes longer."""
        if self.status is None and self.exited.is_set():
            return ProgramError(f"{self.name}: the program host ended; see host.log beside {self.log}")
        what = f"ended with status {self.status}" if self.exited.is_set() else f"is not ready after {waited_s:.0f} s"
        return ProgramError(f"{self.name} {what}; its log {self.log} ends with:\n{_tail(self.log)}")

    async def stop(self) -> None:
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
        if not self.exited.is_set():
            self.host.signal(self.id, signal.SIGKILL)
            await self.exited.wait()


_templates: dict[str, tuple[subprocess.Popen[bytes], socket.socket]] = {}


def preload() -> None:
    """Begin to import the programs, as a cluster's start does; what is imported here meanwhile costs no time."""
    _template(os.environ.get("PYTHONPATH", ""))


def _template(python_path: str) -> socket.socket:
    """Of the process that has imported the programs, from these places; one serves all clusters that this process starts."""
    if python_path not in _templates or _templates[python_path][0].poll() is not None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own file
                # By its path, so that it is this one where PYTHONPATH has programs of another version.
                [sys.executable, "-P", str(Path(__file__).with_name("program_host.py"))],
                stdin=theirs.fileno(),
                start_new_session=True,  # Ctrl-C is for us: we stop them in order
                # gRPC's fork handlers would look for threads that the template does not have.
                env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"},
            )
        _templates[python_path] = process, ours
        atexit.register(_end, process, ours)
    return _templates[python_path][1]


def _end(template: subprocess.Popen[bytes], orders: socket.socket) -> None:
    orders.close()
    template.wait()


class ProgramHost:
    """A forking host process (program_host.py) and what runs under it."""

    def __init__(self, *, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._processes: dict[str, Process] = {}
        self._answers: asyncio.StreamReader
        self._orders: asyncio.StreamWriter
        self._reader: asyncio.Task[None]
        self._sockets = contextlib.ExitStack()
        self._socket_dir = Path()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, *, log_dir: Path) -> AsyncIterator[ProgramHost]:
        """For the length of the block; whatever still runs at its end is stopped."""
        host = cls(log_dir=log_dir)
        await host._open()
        try:
            yield host
        finally:
            await host._close()

    async def _open(self) -> None:
        """Starts the host; where the template still imports, that takes as long while the rest of the cluster starts."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._socket_dir = Path(self._sockets.enter_context(tempfile.TemporaryDirectory(prefix="fl-")))
        ours, theirs = socket.socketpair()
        with theirs, (self._log_dir / "host.log").open("ab") as stderr:
            socket.send_fds(_template(os.environ.get("PYTHONPATH", "")), [b"+"], [theirs.fileno(), stderr.fileno()])
        self._answers, self._orders = await asyncio.open_unix_connection(sock=ours)
        self._reader = asyncio.create_task(self._read(), name="program host")

    async def stop(self) -> None:
        """Every process that still runs."""
        await asyncio.gather(*(each.stop() for each in self._processes.values()))

    async def _close(self) -> None:
        await self.stop()
        with contextlib.suppress(TimeoutError, OSError):
            self._orders.write_eof()
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await asyncio.gather(self._reader, return_exceptions=True)
                await self._answers.read()  # until the host has ended, though the reader was cancelled
        self._orders.close()
        with contextlib.suppress(OSError):
            await self._orders.wait_closed()
        self._sockets.close()

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        """`environment` is added to the little that a container has by itself."""
        serial = len(self._processes) + 1
        log_file = self._log_dir / f"{name.replace(' ', '-')}.log"
        made = Process(host=self, name=name, log=log_file, id=f"{name} #{serial}")
        self._processes[made.id] = made
        if self._reader.done():
            made.exited.set()  # the host is gone: `ready` will say so
            return made
        base = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": "/nonexistent",
            "NOTIFY_SOCKET": str(self._listen(made, self._socket_dir / str(serial))),
        }
        order = {"arguments": [str(each) for each in arguments], "environment": base | dict(environment or {})}
        self._send({"op": "start", "id": made.id, "log": str(log_file), **order})
        return made

    def _listen(self, process: Process, path: Path) -> Path:
        """A datagram socket on which the process announces that it is ready."""
        listening = self._sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        listening.setblocking(False)
        listening.bind(str(path))
        loop = asyncio.get_running_loop()

        def heard() -> None:
            if b"READY=1" in listening.recv(4096).split(b"\n"):
                process.announced.set()

        loop.add_reader(listening, heard)
        self._sockets.callback(loop.remove_reader, listening)
        return path

    def signal(self, process_id: str, number: int) -> None:
        """Sent by the host, which records which of its children are still there."""
        self._send({"op": "signal", "id": process_id, "number": int(number)})

    def _send(self, order: dict[str, Any]) -> None:
        self._orders.write(json.dumps(order).encode() + b"\n")

    async def _read(self) -> None:
        try:
            async for line in self._answers:
                event = json.loads(line)
                made = self._processes[event["id"]]
                if "pid" in event:
                    made.pid = event["pid"]
                    continue
                made.status = event["status"]
                made.exited.set()
        finally:
            # The host is gone, and everything with it. Or this task was cancelled with all others, as asyncio does at the end
            # of a loop: nothing would hear of an end any more, and a stop or a kill would wait for one forever. The host
            # ends its children when its connection is closed.
            for each in self._processes.values():
                each.exited.set()


def _tail(path: Path, lines: int = 15) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return str(error)
