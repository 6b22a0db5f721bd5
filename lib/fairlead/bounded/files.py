"""Files and standard input, never more of them than is allowed: a path may name a device, or a pipe that does not end."""

from __future__ import annotations

import os
import stat
import sys
from functools import partial
from pathlib import Path
from typing import IO

from fairlead.bounded import unpack
from fairlead.bounded.limits import MANIFESTS, BoundError, UnreadableError

PLAIN_BYTES_MAX = 32 * 2**20
"""Of a snapshot that is not compressed. Larger ones are written with gzip, and what is made to be large shows by its ratio."""
_PART = 2**20


def read(path: Path, *, bytes_max: int = MANIFESTS.bytes) -> bytes:
    """The bytes of a file, or of standard input (-). Raises OSError, BoundError."""
    if str(path) == "-":
        return _at_most(sys.stdin.buffer, bytes_max)
    with path.open("rb") as stream:
        _check_size(stream, bytes_max)
        return _at_most(stream, bytes_max)


def unpacked(path: Path) -> bytes:
    """The bytes of a file that may be compressed with gzip. Raises OSError, UnreadableError, BoundError."""
    with path.open("rb") as stream:
        if stream.peek(len(unpack.GZIP)).startswith(unpack.GZIP):
            return unpack.joined(iter(partial(stream.read, _PART), b""))
        step = "compress it with gzip"
        _check_size(stream, PLAIN_BYTES_MAX, step)
        return _at_most(stream, PLAIN_BYTES_MAX, step)


def text(path: Path, *, bytes_max: int = MANIFESTS.bytes) -> str:
    """Raises OSError, UnreadableError for what is no UTF-8, BoundError."""
    try:
        return read(path, bytes_max=bytes_max).decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is no UTF-8 text: {error.reason}") from None


def _check_size(stream: IO[bytes], bytes_max: int, step: str = "split it") -> None:
    """Checks the size of a regular file, before any of it is read."""
    found = os.fstat(stream.fileno())
    if stat.S_ISREG(found.st_mode) and found.st_size > bytes_max:
        raise BoundError(f"is longer than {bytes_max} bytes: {step}")


def _at_most(stream: IO[bytes], bytes_max: int, step: str = "split it") -> bytes:
    found = stream.read(bytes_max + 1)
    if len(found) > bytes_max:
        raise BoundError(f"is longer than {bytes_max} bytes: {step}")
    return found
