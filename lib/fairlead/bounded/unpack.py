"""gzip, taken apart in steps: no step gives more than `STEP_BYTES`, and what expands a hundredfold is no document of ours.

Snapshots and recordings of clusters with thousands of like nodes compress to a thirtieth or so; a bomb, to a thousandth.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from fairlead.bounded.limits import BoundError, UnreadableError

GZIP: Final = b"\x1f\x8b"
BYTES_MAX: Final = 4 * 2**30  # of a whole document, uncompressed: the state of 10,000 nodes with MIG is 2.6 GB
RATIO_MAX: Final = 250
RATIO_FREE_BYTES: Final = 8 * 2**20
"""So much may come of however little."""
STEP_BYTES: Final = 2**20
CHUNK_BYTES: Final = 2**16  # compressed
_WBITS = 31


class Unpacker:
    """One stream, fed as it is read. Raises UnreadableError for what is no gzip, BoundError beyond the ratio or `bytes_max`."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._unpack = zlib.decompressobj(wbits=_WBITS)
        self._bytes_max = bytes_max
        self._taken = self._given = 0

    @property
    def eof(self) -> bool:
        return self._unpack.eof

    @property
    def unused(self) -> bytes:
        """What is behind the end."""
        return self._unpack.unused_data

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What that gives, in steps. After an UnreadableError nothing more can be fed."""
        for start in range(0, len(data), CHUNK_BYTES):  # what a step leaves is copied: it must not be much
            chunk = data[start : start + CHUNK_BYTES]
            more = True  # what was taken in may give more than a step
            while (chunk or more) and not self._unpack.eof:
                before = self._unpack.copy()
                try:
                    found = self._unpack.decompress(chunk, STEP_BYTES)
                except zlib.error as error:
                    yield from self._counted(_readable(before, chunk))
                    raise UnreadableError(f"compressed data that cannot be read: {error}") from None
                self._taken += len(chunk) - len(self._unpack.unconsumed_tail)
                chunk, more = self._unpack.unconsumed_tail, len(found) == STEP_BYTES
                yield from self._counted(found)

    def _counted(self, found: bytes) -> Iterator[bytes]:
        self._given += len(found)
        if self._given > self._bytes_max:
            raise BoundError(f"is more than {self._bytes_max} bytes when it is unpacked")
        if self._given > max(RATIO_FREE_BYTES, RATIO_MAX * self._taken):
            raise BoundError(
                f"expands to more than {RATIO_MAX} times its size ({self._taken} bytes gave {self._given}): this was made to be large"
            )
        if found:
            yield found


def whole(data: bytes, bytes_max: int = BYTES_MAX) -> bytes:
    """The data, unpacked where it is compressed. Raises UnreadableError, BoundError."""
    return joined((data,), bytes_max) if data.startswith(GZIP) else data


def joined(parts: Iterable[bytes], bytes_max: int = BYTES_MAX) -> bytes:
    """The bytes of one stream, unpacked in parts as it is read. Raises UnreadableError, BoundError."""
    unpacker = Unpacker(bytes_max)
    text = io.BytesIO()  # gives its bytes without a copy
    for part in parts:
        for found in unpacker.feed(part):
            text.write(found)
        if unpacker.eof:
            return text.getvalue()
    raise UnreadableError("compressed data that is cut: its end is missing; copy it again")


def _readable(unpack: zlib._Decompress, data: bytes) -> bytes:
    """What comes before the byte that cannot be read: a failing call returns nothing at all."""
    found = bytearray()
    with contextlib.suppress(zlib.error):
        for place in range(len(data)):
            found += unpack.decompress(data[place : place + 1], STEP_BYTES)
    return bytes(found)
