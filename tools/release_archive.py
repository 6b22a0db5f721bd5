"""A .tar.gz that is the same, byte for byte, for the same files and time: the chart, and krew's plugin. Pure."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping


def packed(files: Mapping[str, bytes], epoch: int, programs: frozenset[str] = frozenset()) -> bytes:
    """A .tar.gz of these, by name; the same files and time give the same bytes."""
    raw = io.BytesIO()
    with gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(files[name]), epoch, 0o755 if name in programs else 0o644
            tar.addfile(member, io.BytesIO(files[name]))
    return raw.getvalue()
