"""Files that a crash leaves as they were or as they should be, and nothing else.

The discipline of checkpoint and CDI files: a temporary file in the same directory, fsync, rename, fsync of the
directory. Contents are bytes. A temporary begins with a dot and ends in `.tmp`, which neither the driver nor a container
runtime reads; `remove_temporaries` clears away those of a process that died.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path

_count = itertools.count()


def write(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace `path` by `content`, whole. Raises OSError that names `path`; then it is as before and no temporary is left.

    Without `durable` the file outlives the process but not the machine: enough for what a reboot makes void.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_count)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(descriptor, mode)  # the umask must not hide a CDI file from the runtime
            _write_all(descriptor, content)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _of(path, error) from None
    if durable:
        _fsync_directory(path.parent)


def write_in_place(path: Path, content: bytes) -> None:
    """Write `path` directly and make its directory: for a file that is read only after another file names it.

    Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.parent.chmod(0o755)
        descriptor = os.open(path, flags, 0o644)
    try:
        os.fchmod(descriptor, 0o644)
        _write_all(descriptor, content)
    finally:
        os.close(descriptor)


def remove(path: Path, *, durable: bool = True) -> bool:
    """Remove `path`; False when it does not exist. Raises OSError."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    if durable:
        _fsync_directory(path.parent)
    return True


def read(path: Path, *, bytes_max: int) -> bytes:
    """The content of a regular file. Raises OSError: also for a link, a device or a pipe, and for a file that is too large."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", os.fspath(path))
        content = bytearray()
        while len(content) <= bytes_max and (part := file.read(bytes_max + 1 - len(content))):
            content += part
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"is larger than {bytes_max} bytes", os.fspath(path))
    return bytes(content)


def tail(path: Path, bytes_max: int) -> bytes:
    """The end of a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        file.seek(max(0, os.fstat(descriptor).st_size - bytes_max))
        return file.read(bytes_max) or b""


def remove_temporaries(directory: Path, prefix: str = "") -> None:
    """Remove what an earlier process half wrote of files whose names begin with `prefix`."""
    for path in directory.glob(f".{prefix}*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()


def _of(path: Path, error: OSError) -> OSError:
    """The error with the file's name, which calls on a descriptor leave out, and those on a temporary would give."""
    return OSError(error.errno, error.strerror, os.fspath(path))


def describe(error: OSError) -> str:
    """The file and the reason, for a message to a user."""
    return f"{error.filename or 'file'}: {error.strerror or error}"


def _write_all(descriptor: int, content: bytes) -> None:
    """`os.write` may take only a part of it."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
