"""A node's disk: full, failing, lying about fsync, gone dark with the power; and a process that dies in the middle of a write.

Only what is done through `os` is seen: a driver's claim records, faults file and CDI files, and the controllers' recording. At a loss of power every file and every
directory entry that was not made durable by fsync is, by chance, as it was before or as it is. What is in memory in reality
(`volatile`: /var/run) is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import IO, Any

from tests.chaos.loop import Process
from tests.chaos.virtual import PROCESS


class Killed(BaseException):
    """The process died at this call."""


class Disk:
    """What of `root` is durable, and what is wrong with it. `random` decides what fails and what is lost."""

    def __init__(self, root: Path, *, volatile: tuple[Path, ...] = ()) -> None:
        self.root = root
        self.random = Random(0)
        self.volatile = volatile
        self.full = False
        self.failing = 0.0  # of 1: how many calls end with EIO
        self.lying = False  # fsync says yes and does nothing
        self.dies_in: int | None = None  # after so many calls the process is killed
        # Files have numbers of their own: file systems differ in whether a new file gets the inode of a removed one.
        self._numbers: dict[int, int] = {}  # by inode
        self._numbered = 0
        self._contents: dict[int, bytes] = {}  # by the file's number
        self._entries: dict[str, dict[str, int]] = {}  # by directory, then name: the file's number

    def sync(self) -> None:
        """Everything becomes durable, as after an orderly end."""
        self._contents.clear()
        self._entries.clear()
        for directory, _, _ in os.walk(self.root):
            self._entries[directory] = listing = self._listing(directory)
            for name, number in listing.items():
                if Path(directory, name).is_file():
                    self._contents[number] = Path(directory, name).read_bytes()

    def repair(self) -> None:
        self.full, self.failing, self.lying, self.dies_in = False, 0.0, False, None

    def before(self, process: Process, call: str, path: object = None, *, creates: bool) -> None:
        """Raises OSError or Killed where the call does not come to anything. `path`: where the call has one."""
        if not process.alive:
            raise Killed
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.dies_in = None
                process.kill()
                raise Killed
        if self.full and creates:
            raise _error(errno.ENOSPC, path)
        if self.failing and call != "unlink" and self.random.random() < self.failing:
            raise _error(errno.EIO, path)

    def created(self, descriptor: int) -> None:
        """A new file, whatever inode it got."""
        self._numbered += 1
        self._numbers[os.fstat(descriptor).st_ino] = self._numbered

    def fsynced(self, descriptor: int) -> None:
        if self.lying:
            return
        facts = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if stat.S_ISDIR(facts.st_mode):
            self._entries[str(path)] = self._listing(str(path))
        else:
            self._contents[self._number(facts.st_ino)] = path.read_bytes()

    def lose_power(self) -> None:
        """What was not made durable is lost, or not."""
        for directory in self.volatile:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        for name, durable in sorted(self._entries.items()):
            if Path(name).is_dir() and not any(Path(name).is_relative_to(each) for each in self.volatile):
                self._lose(Path(name), durable)
        self.sync()

    def _lose(self, directory: Path, durable: dict[str, int]) -> None:
        present = self._listing(str(directory))
        for name in sorted(present.keys() | durable.keys()):
            path, now, then = directory / name, present.get(name), durable.get(name)
            if path.is_dir() or (path.exists() and not path.is_file()):
                continue  # directories and sockets
            if now != then and self.random.random() < 0.5:
                path.unlink(missing_ok=True)
                if then is not None:
                    path.write_bytes(self._contents.get(then, b""))
            elif now is not None and path.read_bytes() != self._contents.get(now) and self.random.random() < 0.5:
                path.write_bytes(self.after_loss(self._contents.get(now, b""), path.read_bytes()))

    def after_loss(self, durable: bytes, present: bytes) -> bytes:
        """Of a file whose entry is there: its content did not arrive."""
        return durable

    def _number(self, inode: int) -> int:
        if inode not in self._numbers:
            self._numbered += 1
            self._numbers[inode] = self._numbered
        return self._numbers[inode]

    def _listing(self, directory: str) -> dict[str, int]:
        """Of files: directories and sockets are durable at once."""
        with os.scandir(directory) as entries:
            return {each.name: self._number(each.inode()) for each in entries if each.is_file(follow_symlinks=False)}


def _error(number: int, path: object) -> OSError:
    """With a file's name only where the call has one, as the machine's."""
    return OSError(number, os.strerror(number), path) if path is not None else OSError(number, os.strerror(number))


_DISKS: dict[str, Disk] = {}


def of(process: Process) -> Disk | None:
    """The disk that this process' files are on."""
    return _DISKS.get(process.name)


def mount(name: str, disk: Disk) -> None:
    """Processes of this name have their files on this disk."""
    _DISKS[name] = disk


def install() -> None:
    """Every call of `os` that changes files asks the disk of the process that makes it."""
    replaced: Any = os
    replaced.open = _guarded("open", os.open, _creates)
    replaced.write = _guarded("write", os.write, lambda *_: True)
    for name in ("rename", "replace", "unlink"):
        setattr(replaced, name, _guarded(name, getattr(os, name), lambda *_: False))
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        process = PROCESS.get()
        disk = None if process is None else of(process)
        if process is None or disk is None:
            return real_fsync(descriptor)
        disk.before(process, "fsync", creates=False)
        return disk.fsynced(descriptor)

    replaced.fsync = fsync
    locks: Any = fcntl
    locks.flock = _Locks().flock


def _creates(path: Any, flags: int, *_: object) -> bool:
    return bool(flags & os.O_CREAT) and not os.path.lexists(path)


def _guarded(call: str, real: Callable[..., Any], creates: Callable[..., bool]) -> Callable[..., Any]:
    def guarded(*args: Any, **more: Any) -> Any:
        process = PROCESS.get()
        if process is not None:
            disk = of(process)
            if disk is not None:
                new = creates(*args)
                if call != "open" or args[1] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                    disk.before(process, call, None if call == "write" else args[0], creates=new)
                result = real(*args, **more)
                if call == "open" and new:
                    disk.created(result)
                return result
        return real(*args, **more)

    return guarded


class _Locks:
    """flock(2) between processes that are one process of the machine: a lock ends with its descriptor or its process."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, tuple[Process, int]]] = {}  # by inode, then descriptor

    def flock(self, file: int | IO[bytes], operation: int) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        process = PROCESS.get()
        assert process is not None
        inode = os.fstat(descriptor).st_ino
        held = self._held.setdefault(inode, {})
        for other, (owner, _) in list(held.items()):
            if not owner.alive or not _is(other, inode):
                del held[other]
        if operation & fcntl.LOCK_UN:
            held.pop(descriptor, None)
            return
        exclusive = operation & fcntl.LOCK_EX
        if any(other != descriptor and (exclusive or mode & fcntl.LOCK_EX) for other, (_, mode) in held.items()):
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        held[descriptor] = (process, operation)


def _is(descriptor: int, inode: int) -> bool:
    try:
        return os.fstat(descriptor).st_ino == inode
    except OSError:
        return False
