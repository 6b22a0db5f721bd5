"""A watch's bytes as events: newline-delimited JSON in chunks of any size. No I/O.

Lines are split here because aiohttp's line reader has a limit that a full ResourceSlice can exceed. The informer resumes a
watch that ended.
"""

import dataclasses
from collections.abc import AsyncIterable, AsyncIterator
from typing import Generic, TypeVar

import msgspec

from fairlead.kube import errors, nesting
from fairlead.kube.listing import decoder
from fairlead.kube.objects import ListMeta, Status

T = TypeVar("T")

LINE_MAX_BYTES = 64 * 2**20

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"


@dataclasses.dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One change of one object."""

    type: str
    object: T


@dataclasses.dataclass(frozen=True, slots=True)
class Bookmark:
    """All changes up to this resourceVersion were sent. Its object is a zero value of the kind and is not decoded."""

    resource_version: str
    type: str = BOOKMARK


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Marker(msgspec.Struct, frozen=True):
    metadata: ListMeta


_lines = msgspec.json.Decoder(_Line)
_statuses = decoder(Status)
_markers = decoder(_Marker)


async def events(kind: type[T], chunks: AsyncIterable[bytes]) -> AsyncIterator[WatchEvent[T] | Bookmark]:
    """The events in the stream. An ERROR event is raised as its ApiError (410: Gone); an incomplete last line is dropped."""
    objects = decoder(kind)
    async for line in _split(chunks):
        try:
            envelope = _line(nesting.bounded(line))
            if envelope.type == "ERROR":
                raise errors.from_status(_statuses.decode(envelope.object))
            if envelope.type == BOOKMARK:
                yield Bookmark(_markers.decode(envelope.object).metadata.resource_version)
            else:
                yield WatchEvent(envelope.type, objects.decode(envelope.object))
        except msgspec.MsgspecError as error:
            raise errors.ServerError(f"watch: a line cannot be read: {error}: {line[:200]!r}") from error


def _line(line: bytes) -> _Line:
    """Raises msgspec.MsgspecError."""
    try:
        try:
            return _lines.decode(line)
        except RecursionError:
            return _lines.decode(nesting.cut(line))
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from error


async def _split(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    buffer = bytearray()
    async for chunk in chunks:
        start = len(buffer)
        buffer += chunk
        end = buffer.rfind(b"\n", start)
        if end < 0:
            if len(buffer) > LINE_MAX_BYTES:
                raise errors.ServerError(f"watch: a line is longer than {LINE_MAX_BYTES} bytes")
            continue
        complete = bytes(buffer[:end])
        del buffer[: end + 1]
        for line in complete.split(b"\n"):
            if line.strip():
                yield line
