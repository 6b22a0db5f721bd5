"""The bytes of a file that may be compressed with gzip."""

from __future__ import annotations

import zlib

GZIP = b"\x1f\x8b"
BYTES_MAX = 4 * 2**30  # uncompressed


class PackedError(ValueError):
    """Says what is wrong with the compressed data."""


def unpacked(data: bytes, bytes_max: int = BYTES_MAX) -> bytes:
    """As they are where they are not compressed. Raises PackedError."""
    if not data.startswith(GZIP):
        return data
    unpack = zlib.decompressobj(wbits=31)
    try:
        text = unpack.decompress(data, bytes_max)
    except zlib.error as error:
        raise PackedError(f"a compressed snapshot that cannot be read: {error}") from None
    if unpack.unconsumed_tail:
        raise PackedError(f"a compressed snapshot of more than {bytes_max} bytes; this is no snapshot of a cluster")
    if not unpack.eof:
        raise PackedError("a compressed snapshot that is cut: its end is missing; copy it again")
    return text
