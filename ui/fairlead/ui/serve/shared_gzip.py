"""A gzip stream whose parts are compressed once for all who get them (RFC 1951, RFC 1952); no I/O.

Each part is a run of deflate blocks that ends at a byte and refers to nothing before it, so parts can follow one another in any order.
What differs between streams is the sum at the end: a checksum of what this one got.
"""

from __future__ import annotations

import struct
import zlib
from functools import cached_property

HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST = b"\x03\x00"  # an empty block that ends the stream


class Chunk:
    """A part of a stream, as it is and compressed."""

    def __init__(self, plain: bytes) -> None:
        self.plain = plain

    @cached_property
    def deflated(self) -> bytes:
        made = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        return made.compress(self.plain) + made.flush(zlib.Z_FULL_FLUSH)


class Stream:
    """What to send of each chunk, in one stream. `gzip` False: the chunks as they are."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._sum = 0
        self._size = 0

    @property
    def head(self) -> bytes:
        return HEAD if self._gzip else b""

    def add(self, chunk: Chunk) -> bytes:
        if not self._gzip:
            return chunk.plain
        self._sum = zlib.crc32(chunk.plain, self._sum)
        self._size += len(chunk.plain)
        return chunk.deflated

    @property
    def end(self) -> bytes:
        return _LAST + struct.pack("<II", self._sum, self._size & 0xFFFFFFFF) if self._gzip else b""
