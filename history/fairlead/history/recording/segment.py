"""One segment: a gzip file of records, written with a flush at will, read up to where it is whole.

A flush ends a block of the one compressed stream, so that what was flushed can be read after a crash, and small records cost little.
`zcat` reads a segment, too.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Generic, NamedTuple, TypeVar

import msgspec

from fairlead.bounded.limits import BoundError, UnreadableError
from fairlead.bounded.unpack import CHUNK_BYTES, Unpacker
from fairlead.history.recording.records import (
    CHAIN_START,
    FORMAT,
    VERSION,
    AnyRecord,
    BriefRecord,
    EmptySegmentError,
    End,
    Header,
    Line,
    RecordingError,
    line,
    link,
    parse_brief,
    parse_line,
    parse_record,
)

R = TypeVar("R", bound=AnyRecord | BriefRecord)
SUFFIX = ".jsonl.gz"
NAME = re.compile(r"segment-(\d{8,})\.jsonl\.gz")
LEVEL = 6
LINE_BYTES_MAX = 64 * 2**20  # a part is of a megabyte or so; the plan of ten thousand gangs, of ten
SEGMENT_BYTES_MAX = 64 * 2**30  # unpacked


def segment_name(number: int) -> str:
    return f"segment-{number:08}{SUFFIX}"


class Found(NamedTuple, Generic[R]):
    number: int  # of the line, from 1
    chain: str
    record: R
    raw: bytes


class SegmentWriter:
    """Writes records in order. Raises OSError from the file system; after that it is of no use."""

    def __init__(self, file: IO[bytes], chain: str) -> None:
        """`chain`: of the last record before."""
        self.chain = chain
        self.bytes = 0  # on disk
        self._file = file
        self._pack = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)

    def write(self, record: AnyRecord) -> None:
        self.chain, text = line(self.chain, record)
        self._put(self._pack.compress(text))

    def copy(self, found: Found[Any]) -> None:
        """A record of another segment, to the byte."""
        text = b'{"chain":"%b","record":%b}\n' % (found.chain.encode(), found.raw)
        self.chain = found.chain
        self._put(self._pack.compress(text))

    def flush(self) -> None:
        """From here on it survives the end of this process."""
        self._put(self._pack.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def finish(self) -> None:
        self._put(self._pack.flush(zlib.Z_FINISH))
        self._file.flush()

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self.bytes += len(data)


@dataclass(slots=True)
class Torn:
    """What follows the last record that is whole: nothing, if `why` is empty."""

    why: str = ""


def read_segment(path: Path, torn: Torn) -> Iterator[Found[AnyRecord]]:
    """Every record that is whole, in order; afterwards `torn` says what came behind. Raises RecordingError, OSError.

    An edited record is an error; an end in the middle of a record is what a crash leaves. So is one that makes no sense where the
    compressed data is not whole either: zeros that a loss of power leaves may unpack to anything.
    """
    return _records(path, torn, parse_record)


def skim_segment(path: Path, torn: Torn) -> Iterator[Found[BriefRecord]]:
    """The same without facts and plans: a whole state need not fit into memory."""
    return _records(path, torn, parse_brief)


def _records(path: Path, torn: Torn, parse: Callable[[Line, str], R]) -> Iterator[Found[R]]:
    chain: str | None = None
    number = 0
    texts = _lines(path, torn)
    for text in texts:
        number += 1
        try:
            record, chain, raw = _record(text, chain, f"{path}: record {number}", path, parse)
        except _SenselessError as error:
            for _ in texts:
                pass
            if not torn.why:
                raise RecordingError(str(error)) from None
            number -= 1
            break
        yield Found(number, chain, record, raw)
    if number == 0:
        raise EmptySegmentError(
            f"{path} holds no record: {torn.why or 'it is empty'}; remove it, or take it from its source again"
        )


class _SenselessError(Exception):
    """A line that no writer wrote."""


def _record(
    text: bytes, chain: str | None, where: str, path: Path, parse: Callable[[Line, str], R]
) -> tuple[R, str, bytes]:
    """The record, its chain value, and its bytes. `chain`: of the record before; None for the first."""
    try:
        found = parse_line(text)
    except BoundError as error:
        raise RecordingError(f"{where}: {error}") from None
    except msgspec.DecodeError as error:
        if chain is None:
            raise _SenselessError(
                f"{path} is no segment of a recording: its first line is no record: {error}"
            ) from None
        raise _SenselessError(f"{where}: not a record: {error}; the segment was edited") from None
    raw = bytes(found.record)
    if chain is not None and link(chain, raw) != found.chain:
        raise _SenselessError(_broken_chain(where, found.chain, link(chain, raw)))
    record = _known(found, where, parse, first=chain is None)
    if chain is None:
        before = record.previous.chain if isinstance(record, Header) and record.previous else CHAIN_START
        if link(before, raw) != found.chain:
            raise _SenselessError(_broken_chain(where, found.chain, link(before, raw)))
    return record, found.chain, raw


def _broken_chain(where: str, told: str, computed: str) -> str:
    return (
        f"{where}: its chain value is {told}, but the records up to it give {computed}: the segment was edited, or a record was taken "
        "out or moved; take the file from its source again"
    )


def _known(found: Line, where: str, parse: Callable[[Line, str], R], *, first: bool) -> R:
    if first:
        head = _head(found, where)
        if head.version != VERSION:
            raise RecordingError(
                f"{where}: version: {head.version}: this fairlead reads version {VERSION}; use the fairlead that recorded it ({head.code})"
            )
    record = parse(found, where)
    if isinstance(record, Header) is not first:
        raise RecordingError(f"{where}: {'no header' if first else 'a second header'}: the segment was edited")
    return record


class _Head(msgspec.Struct, frozen=True):
    kind: str = ""
    format: str = ""
    version: int = 0
    code: str = ""


def _head(found: Line, where: str) -> _Head:
    try:
        head = msgspec.json.decode(found.record, type=_Head)
    except msgspec.DecodeError as error:
        raise RecordingError(f"{where}: a header that cannot be read: {error}") from None
    if (head.kind, head.format) != ("header", FORMAT):
        raise RecordingError(
            f"{where}: format: {head.format!r}: this is no recording of `fairlead controller --record`"
        )
    return head


def _lines(path: Path, torn: Torn) -> Iterator[bytes]:
    """Whole lines; what is behind the last one goes to `torn`."""
    unpacker = Unpacker(SEGMENT_BYTES_MAX)
    rest = bytearray()
    with path.open("rb") as file:
        while not unpacker.eof and not torn.why and (data := file.read(CHUNK_BYTES)):
            try:
                for found in unpacker.feed(data):
                    rest += found
                    if b"\n" in found:
                        *lines, rest = rest.split(b"\n")
                        yield from map(bytes, lines)
                    if len(rest) > LINE_BYTES_MAX:
                        raise RecordingError(
                            f"{path}: a record of more than {LINE_BYTES_MAX} bytes; this is no segment"
                        )
            except BoundError as error:
                raise RecordingError(f"{path}: {error}; this is no segment") from None
            except UnreadableError as error:
                torn.why = str(error)
        if torn.why:
            return
        if unpacker.eof and (unpacker.unused or file.read(1)):
            torn.why = "data behind the end of the segment"
    if rest:
        torn.why = torn.why or f"the last record is cut after {len(rest)} bytes"
    elif not unpacker.eof:
        torn.why = torn.why or "the end of the compressed data is missing"


def ended(record: AnyRecord | BriefRecord) -> bool:
    return isinstance(record, End)
