"""Removes a directory tree that a container wrote, and perhaps still writes: no recursion, no links, no long paths.

A container can nest 100,000 directories (no system call takes their path), link to files of the host, remove its own
permissions, and rename while the tree is being removed. So every entry is addressed by one name under an open
directory: a directory's files are unlinked, its directories are moved up beside it, and then it is empty. At any depth
four descriptors are open, and the work is proportional to the number of entries.
Keeps: no link is followed; a mount is not entered, since what is entered was renamed before, which the kernel refuses
for a mount point.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from fairlead.kube.limits import Clock

TIMEOUT_S = 2.0
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def remove_tree(path: Path, *, timeout_s: float = TIMEOUT_S, clock: Clock = time.monotonic) -> bool:
    """Remove `path` and all below it; False when the time was up: the next call goes on. A link at `path` is removed itself.

    Raises OSError when something cannot be removed, after everything else was.
    """
    try:
        root = _open(os.fspath(path), None)
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        path.unlink(missing_ok=True)
        return True
    try:
        if not _Emptying(root, clock() + timeout_s, clock).done():
            return False
    finally:
        os.close(root)
    try:
        path.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False  # something was written meanwhile
    return True


class _TimeUpError(Exception):
    pass


class _Emptying:
    """Empties the directory `root` (a descriptor)."""

    def __init__(self, root: int, until: float, clock: Clock) -> None:
        self._root = root
        self._until = until
        self._clock = clock
        self._prefix = f".{secrets.token_hex(8)}-"
        self._numbers = itertools.count()
        self._changed = False
        self._error: OSError | None = None

    def done(self) -> bool:
        """Whether it is empty now; False when the time was up. Raises the first OSError when a pass changed nothing."""
        try:
            while True:
                self._changed, self._error = False, None
                if not self._pass():
                    return True
                if not self._changed:
                    raise self._error or OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        except _TimeUpError:
            return False

    def _pass(self) -> bool:
        """Whether there was any entry. What is moved up meanwhile may have to wait for the next pass."""
        found = False
        with os.scandir(self._root) as entries:
            for entry in entries:
                found = True
                with self._tolerant():
                    if entry.is_dir(follow_symlinks=False):
                        self._remove_directory(entry.name)
                    else:
                        os.unlink(entry.name, dir_fd=self._root)
        return found

    def _remove_directory(self, name: str) -> None:
        if not name.startswith(self._prefix):
            name = self._move_up(name, self._root)
        child = _open(name, self._root)
        try:
            with os.scandir(child) as entries:
                for entry in entries:
                    with self._tolerant():
                        if entry.is_dir(follow_symlinks=False):
                            self._move_up(entry.name, child)
                        else:
                            os.unlink(entry.name, dir_fd=child)
        finally:
            os.close(child)
        os.rmdir(name, dir_fd=self._root)

    def _move_up(self, name: str, parent: int) -> str:
        moved = f"{self._prefix}{next(self._numbers)}"
        os.rename(name, moved, src_dir_fd=parent, dst_dir_fd=self._root)
        return moved

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Of one entry: it may have vanished, or become something else; any other failure is kept, and the rest goes on."""
        if self._clock() >= self._until:
            raise _TimeUpError
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._changed = True
        except OSError as error:
            if self._error is None or self._error.errno == errno.ENOTEMPTY:
                self._error = error
        else:
            self._changed = True


def _open(name: str, parent: int | None) -> int:
    """A descriptor of the directory. Raises OSError, NotADirectoryError for a link."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        handle = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 - of what is open, whatever has the name by now
        finally:
            os.close(handle)
        return os.open(name, _DIRECTORY, dir_fd=parent)
