"""Files and standard input, never more of them than is allowed: a path may name a device, or a pipe that does not end."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import IO

from fairlead.bounded.limits import MANIFESTS, BoundError, UnreadableError

BYTES_MAX = 4 * 2**30  # of a snapshot: beyond that reading it would take more memory than a machine has
_PART = 2**20


def read(path: Path, *, bytes_max: int = MANIFESTS.bytes) -> bytes:
    """Of a file, or of standard input (-). Raises OSError, BoundError."""
    if str(path) == "-":
        return _at_most(sys.stdin.buffer, bytes_max)
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno())
        if stat.S_ISREG(size.st_mode) and size.st_size > bytes_max:
            raise BoundError(f"is longer than {bytes_max} bytes: split it")
        return _at_most(stream, bytes_max)


def text(path: Path, *, bytes_max: int = MANIFESTS.bytes) -> str:
    """Raises OSError, UnreadableError for what is no UTF-8, BoundError."""
    try:
        return read(path, bytes_max=bytes_max).decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is no UTF-8 text: {error.reason}") from None


def _at_most(stream: IO[bytes], bytes_max: int) -> bytes:
    found = bytearray()
    while part := stream.read(min(_PART, bytes_max + 1 - len(found))):
        found += part
        if len(found) > bytes_max:
            raise BoundError(f"is longer than {bytes_max} bytes: split it")
    return bytes(found)
