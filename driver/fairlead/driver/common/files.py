"""Writing files so that a crash leaves the old one or the new one, and nothing else.

Exists so that checkpoint and CDI files share one discipline: temporary file in the same directory, fsync, rename, fsync
of the directory. Knows no contents. A leftover temporary begins with a dot and ends in `.tmp`, which neither we nor a
container runtime reads; `sweep` removes those of a process that died.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

_count = itertools.count()


def write(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace `path` by `content`, whole. Raises OSError, then `path` is what it was and no temporary is left.

    Not `durable` outlives the process but not the machine: enough for what a reboot makes void.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_count)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(descriptor, mode)  # the umask must not hide a CDI file from the runtime
            fill(descriptor, content)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync(path.parent)


def put(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write `path` in place, with its directory: for what nobody reads before another file says that it is there.

    Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, mode)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.parent.chmod(0o755)
        descriptor = os.open(path, flags, mode)
    try:
        os.fchmod(descriptor, mode)
        fill(descriptor, content)
    finally:
        os.close(descriptor)


def fill(descriptor: int, content: bytes) -> None:
    """Write all of it; `os.write` may take less at a time."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def remove(path: Path, *, durable: bool = True) -> bool:
    """Remove `path`; False when it was not there. Raises OSError."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    if durable:
        sync(path.parent)
    return True


def sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(directory: Path, prefix: str = "") -> None:
    """Remove the temporaries that an earlier process left of files whose names begin with `prefix`."""
    for path in directory.glob(f".{prefix}*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()


def plainly(error: OSError) -> str:
    return f"{error.filename or 'file'}: {error.strerror or error}"
