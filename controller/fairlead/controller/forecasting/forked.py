"""A computation in a forked process: on an exact copy of this one's memory, which costs nothing until either writes to it.

So the simulation has the tables and everything that decisions remembered, without a lock, and what it changes is lost with it. The
child has one thread, touches neither the event loop nor the network, and ends by `_exit`. It may die at any time: its caller gets None,
and `failure` says why. It ends with its parent, also where that is killed, and keeps none of its sockets open: a child that
outlived a killed leader would keep that leader's connections to the apiserver established.

What it copies counts against the container's memory, and where that runs out the kernel ends the whole container (`memory.oom.group`,
which kubelet sets on cgroup v2). So while it computes this process looks at the child's own memory every `LOOK_S`, and ends it beyond
its bound. Such a look takes some 15 ms for each GB that the process has, so it is made less often where that would be more than
`LOOK_PART` of a core.

    headroom   the least of: each limit of the container's cgroup and of those above it that can be seen, less what is in use there without
               page cache that the kernel drops at once; and what the machine has available
    bound      half of the headroom; none, and so no forecast, where the headroom is below `HEADROOM_MIN_BYTES`

The other half is for what the controller takes meanwhile, and for what the process takes between two looks at it. Limits are
`memory.max` and `memory.high` of cgroup v2, and `memory.limit_in_bytes` of v1. A file that cannot be read counts as no limit; where
nothing can be read, as on systems without /proc, the headroom is unknown and the bound is `UNKNOWN_BYTES`. Sources: the kernel's
admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst, filesystems/proc.rst.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import math
import os
import pickle
import select
import signal
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
NICE = 19
CHUNK_BYTES = 1 << 16
ERROR_MAX = 500
LOOK_S = 0.1
LOOK_PART = 0.1  # of a core
OOM_SCORE = Path("/proc/self/oom_score_adj")
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Failure(StrEnum):
    """Why there is no answer."""

    LATE = "late"
    MEMORY = "memory"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    found: T | None
    error: str
    own_bytes: int


class Forked(Generic[T]):
    """Begins at once: the copy is of this moment. Await `answer`, which ends the child in any case.

    Make it on a thread that lasts, the event loop's: on Linux the child ends when the thread that made it does.

    Afterwards `cpu_s` is what the child took of CPU time, `peak_bytes` the most that was seen of its own memory, and `failure` and its `text`
    say why there was no answer.
    """

    def __init__(self, work: Callable[[], T], *, bound_bytes: int | None = None, memory: Memory | None = None) -> None:
        """`bound_bytes`: what the child may take of its own; without it, or where that cannot be read, time alone bounds it.

        Raises OSError where no process can be made.
        """
        self.cpu_s = 0.0
        self.peak_bytes = 0
        self.failure: Failure | None = None
        self.text = ""
        self._bound_bytes = bound_bytes
        self._memory = memory or Memory()
        self._reading, writing = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: the child uses none of them
            try:
                self._child = os.fork()
            except OSError:
                os.close(self._reading)
                os.close(writing)
                raise
        if self._child == 0:
            _child(work, self._memory, self._reading, writing, parent)
        os.close(writing)

    async def answer(self, timeout_s: float) -> T | None:
        """What the work returned; None where it failed, took longer or took too much memory. Cancelled, it ends the child first."""
        waiting = asyncio.ensure_future(asyncio.to_thread(self._read, timeout_s))
        try:
            answer = await asyncio.shield(waiting)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)  # it has answered, or is not awaited any more
            while not waiting.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({waiting})
            _, _, usage = os.wait4(self._child, 0)  # noqa: ASYNC222 - it was killed: microseconds
            self.cpu_s = usage.ru_utime + usage.ru_stime
        if self.failure is not None:
            return None
        try:
            said: _Answer[T] = pickle.loads(answer)  # noqa: S301 - from our own child
        except (EOFError, pickle.UnpicklingError):
            self._fail(Failure.DIED, "its process ended in the middle of its answer")
            return None
        self.peak_bytes = max(self.peak_bytes, said.own_bytes)
        if said.error:
            self._fail(Failure.DIED, f"it failed: {said.error}")
        return said.found

    def _read(self, timeout_s: float) -> bytes:
        """All that comes; b"" where that is nothing, or not in time, or the child takes too much."""
        found = bytearray()
        until = time.monotonic() + timeout_s
        look_at = math.inf if self._bound_bytes is None else time.monotonic() + LOOK_S
        with os.fdopen(self._reading, "rb", buffering=0) as pipe:
            while (now := time.monotonic()) < until:
                if look_at <= now:
                    look_at = self._look()
                    if self.failure is not None:
                        return b""
                ready, _, _ = select.select([pipe], [], [], max(0.0, min(until, look_at) - time.monotonic()))
                if not ready:
                    continue
                part = pipe.read(CHUNK_BYTES)
                if not part:
                    if not found:
                        self._fail(Failure.DIED, "its process ended without an answer")
                    return bytes(found)
                found += part
        self._fail(Failure.LATE, f"its process took longer than {timeout_s:g} s")
        return b""

    def _look(self) -> float:
        """Whether the child has more than its bound. Returns when to look again, of the monotonic clock."""
        began, bound = time.thread_time(), self._bound_bytes or 0
        own_bytes = self._memory.private(self._child) or 0
        self.peak_bytes = max(self.peak_bytes, own_bytes)
        if own_bytes > bound:
            took = f"its process took {own_bytes >> 20:,} MiB of memory, more than the {bound >> 20:,} MiB that it may"
            self._fail(Failure.MEMORY, took)
        return time.monotonic() + max(LOOK_S, (time.thread_time() - began) / LOOK_PART)

    def _fail(self, failure: Failure, text: str) -> None:
        self.failure, self.text = failure, text


def _child(work: Callable[[], object], memory: Memory, reading: int, writing: int, parent: int) -> None:
    try:
        _leave(parent, reading)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.nice(NICE)
        with contextlib.suppress(OSError):  # not Linux, or not allowed
            OOM_SCORE.write_text("1000")
        gc.disable()  # a collection would touch, and so copy, every page
        try:
            found, error = work(), ""
        except Exception as raised:
            found, error = None, repr(raised)[:ERROR_MAX]
        said = _Answer(found, error, memory.private(os.getpid()) or 0)
        answer = memoryview(pickle.dumps(said, protocol=pickle.HIGHEST_PROTOCOL))
        while answer:
            answer = answer[os.write(writing, answer) :]
    finally:
        os._exit(0)


def _leave(parent: int, reading: int) -> None:
    """Be ended with the parent, and close its sockets and the reading end of the pipe.

    While the child held that end it could write to a pipe that nothing reads, and wait forever. Other files stay: gRPC's threads,
    where the parent has some, abort the process that closes their event files.
    """
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was killed before the signal was asked for
            os._exit(0)
    os.close(reading)
    for each in list(Path("/dev/fd").iterdir()):
        with contextlib.suppress(OSError):  # the listing's own
            if stat.S_ISSOCK(os.fstat(int(each.name)).st_mode):
                os.close(int(each.name))


HEADROOM_MIN_BYTES = 256 << 20
PART = 0.5  # of the headroom
UNKNOWN_BYTES = 128 << 20
CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def bound_bytes(headroom: int | None) -> int | None:
    """What a forecast's process may take, of this headroom in bytes; None where no forecast is to be made."""
    if headroom is None:
        return UNKNOWN_BYTES
    return int(headroom * PART) if headroom >= HEADROOM_MIN_BYTES else None


class Memory:
    """`cgroups`: where the kernel shows cgroups, v2 at the top or v1's under `memory`. `proc`: its view of processes."""

    def __init__(self, cgroups: Path = CGROUPS, proc: Path = PROC) -> None:
        self._cgroups = cgroups
        self._proc = proc

    def headroom(self) -> int | None:
        """Bytes that may still be taken before a limit is reached or the machine has none left; None where that is unknown."""
        left = [_kilobytes(self._proc / "meminfo", "MemAvailable:")]
        for directory in self._own("", self._cgroups):
            limits = [_number(directory / name) for name in ("memory.max", "memory.high")]
            left += _left(limits, directory / "memory.current", directory, "inactive_file")
        for directory in self._own("memory", self._cgroups / "memory"):
            limits = [_number(directory / "memory.limit_in_bytes")]
            left += _left(limits, directory / "memory.usage_in_bytes", directory, "total_inactive_file")
        return min((max(0, each) for each in left if each is not None), default=None)

    def private(self, pid: int) -> int | None:
        """Bytes that only this process has: what it wrote, and what others wrote that it shared with them. None where that is unknown."""
        return _kilobytes(self._proc / str(pid) / "smaps_rollup", "Private_Dirty:")

    def _own(self, controller: str, top: Path) -> Iterator[Path]:
        """This process's cgroup and those above it; only the top one where a container sees its own as that."""
        place = ""
        for line in _lines(self._proc / "self" / "cgroup"):
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controller in controllers.split(","):
                place = path.strip("/")
        directory = top / place
        while directory != top:
            yield directory
            directory = directory.parent
        yield top


def _left(limits: list[int | None], usage: Path, directory: Path, droppable: str) -> list[int | None]:
    found = [each for each in limits if each is not None]
    used = _number(usage)
    if not found or used is None:
        return []
    stat = dict(line.split(" ", 1) for line in _lines(directory / "memory.stat") if " " in line)
    cache = stat.get(droppable, "0").strip()
    return [min(found) - used + (int(cache) if cache.isdigit() else 0)]


def _number(path: Path) -> int | None:
    """The file's one number; None for `max`, and for what cannot be read."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _kilobytes(path: Path, name: str) -> int | None:
    """In bytes, of the line with this name."""
    for line in _lines(path):
        parts = line.split()
        if len(parts) == 3 and parts[0] == name and parts[2] == "kB" and parts[1].isdigit():
            return int(parts[1]) * 1024
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
