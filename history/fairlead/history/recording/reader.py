"""Reads recordings: files or directories of segments, in the order of their numbers, each checked against the one before.

A segment that crashed in the middle of a record is read up to there if it is the last; that is told by `Reader.torn`. The last one of a
directory may hold no whole record at all. A segment that is missing, cut, reordered or edited is an error, since what follows would be
compared with the wrong state. Facts that are in parts are put together: a reader sees decisions with all of theirs.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead.history.facts import form
from fairlead.history.facts.form import joined
from fairlead.history.recording.records import (
    CHAIN_START,
    AnyRecord,
    Decision,
    EmptySegmentError,
    End,
    Gap,
    Header,
    Part,
    RecordingError,
)
from fairlead.history.recording.segment import Found, Torn, ended, read_segment
from fairlead.history.recording.writer import segments


class Read(NamedTuple):
    path: Path
    number: int  # of the record in its segment
    record: Header | Decision | Gap | End

    @property
    def where(self) -> str:
        return f"{self.path}: record {self.number}"


class Reader:
    """Raises RecordingError, OSError."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.torn = ""  # after reading: how the last segment ended, if in the middle of a record
        self.headers: list[Header] = []  # of the segments read so far
        self.paths: tuple[Path, ...] = ()
        for path in paths:
            found = _files(path)
            if path.is_dir():
                found = self._begun(found)
            self.paths += found

    def __iter__(self) -> Iterator[Read]:
        known: tuple[Path, Header, str] | None = None  # the segment before, and its last chain value
        ordered = self._ordered()
        for place, (header, path) in enumerate(ordered):
            if known is not None:
                _check_order(known, header, path)
            torn, last = Torn(), None
            self.headers.append(header)
            parts: list[form.Facts] = []
            for found in read_segment(path, torn):
                last, record = found, found.record
                if isinstance(record, Part):
                    parts.append(record.facts)
                    continue
                if parts and isinstance(record, Decision):
                    tables = joined([*parts, record.facts])
                    record = msgspec.structs.replace(record, facts=msgspec.structs.replace(record.facts, **tables))
                parts = []
                yield Read(path, found.number, record)
            assert last is not None  # else it has raised
            self._check_end(path, last, torn, more=place + 1 < len(ordered))
            known = path, header, last.chain

    def _begun(self, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        """Without the last one, if its writer came to write no whole record."""
        try:
            _header(paths[-1])
        except EmptySegmentError:
            self.torn = f"{paths[-1]}: it holds no whole record: its writer is still at work, or was killed"
            return paths[:-1]
        except RecordingError:
            pass  # reading says what is wrong, in its turn
        return paths

    def _check_end(self, path: Path, last: Found[AnyRecord], torn: Torn, *, more: bool) -> None:
        whole = ended(last.record) and not torn.why
        if whole:
            return
        why = torn.why or "it has no end record"
        if more:
            raise RecordingError(f"{path}: the segment is cut or was added to: {why}; take it from its source again")
        self.torn = f"{path}: {why}: its writer is still at work, or was killed; what is whole was read"

    def _ordered(self) -> list[tuple[Header, Path]]:
        found = [(_header(path), path) for path in self.paths]
        found.sort(key=lambda entry: (entry[0].segment, str(entry[1])))
        for (one, first), (other, second) in itertools.pairwise(found):
            if one.segment == other.segment:
                raise RecordingError(
                    f"{first} and {second} are both segment {one.segment}: of two recordings, or of one twice; give one directory at a time"
                )
        return found


def _header(path: Path) -> Header:
    for found in read_segment(path, Torn()):
        if isinstance(found.record, Header):
            return found.record
        break
    raise RecordingError(f"{path}: no header: this is no segment of a recording")


def _check_order(before: tuple[Path, Header, str], header: Header, path: Path) -> None:
    earlier, known, chain = before
    previous = header.previous
    if header.segment != known.segment + 1:
        missing = ", ".join(map(str, range(known.segment + 1, min(header.segment, known.segment + 5))))
        raise RecordingError(
            f"{path} is segment {header.segment}, and the one before it, {earlier}, is {known.segment}: segment {missing} is missing; "
            "give it too, or replay the parts one by one"
        )
    if (previous.chain if previous else CHAIN_START) != chain:
        raise RecordingError(
            f"{path} goes on from chain value {previous.chain if previous else CHAIN_START}, but {earlier} ends with {chain}: one of "
            "them was cut, edited, or is of another recording; take both from their source again"
        )


def _files(path: Path) -> tuple[Path, ...]:
    if path.is_dir():
        found = tuple(file for _, file in segments(path))
        if not found:
            raise RecordingError(f"{path} holds no segments (segment-*.jsonl.gz): name the directory of `--record`")
        return found
    if not path.exists():
        raise RecordingError(f"{path}: no such file or directory")
    return (path,)


def claim_ends(directory: Path, since_us: int, wanted: Collection[str]) -> dict[str, int]:
    """By UID of these claims, when a decision after `since_us` (unix microseconds) first saw it without its allocation.

    A claim that a whole state lacks may have ended long before, while nothing was recorded: of it nothing is known. What cannot be read
    ends the search. Reads the segments that were written since.
    """
    found: dict[str, int] = {}
    with contextlib.suppress(RecordingError, OSError):
        late = [path for _, path in segments(directory) if path.stat().st_mtime * 1e6 >= since_us]
        left = set(wanted)
        for read in Reader(late):
            record = read.record
            if not left:
                break
            if not isinstance(record, Decision) or record.at * 1e6 < since_us:
                continue
            claims = record.facts.claims
            if record.whole:
                left &= claims.keys()
                continue
            gone = {uid for uid in left if uid in claims and claims[uid] is None}
            found |= dict.fromkeys(gone, round(record.at * 1e6))
            left -= gone
    return found
