"""Writes a recording into a directory: one writer, segments of bounded size and age, the oldest deleted when there are too many.

In order, when a writer opens a directory: it takes the lock; it closes the last segment if a crash left it open, without what
was cut in the middle of a record; it deletes what is too old or too much. A segment is begun with the first decision that has its
whole state, so each can be read without those before it.
Raises OSError when the disk is full or broken, LockedError when another process writes here.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fairlead.history.facts import form
from fairlead.history.recording.records import (
    CHAIN_START,
    FORMAT,
    VERSION,
    BriefDecision,
    BriefRecord,
    Decision,
    EmptySegmentError,
    End,
    Gap,
    Header,
    LockedError,
    Part,
    Previous,
    RecordingError,
)
from fairlead.history.recording.segment import (
    NAME,
    Found,
    SegmentWriter,
    Torn,
    ended,
    segment_name,
    skim_segment,
)

log = logging.getLogger(__name__)

LOCK = ".lock"
TEMPORARY = ".rewriting"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds of a directory: `bytes_max` over all segments; the one being written may exceed it by its own size."""

    bytes_max: int = 2 * 2**30
    age_max_s: float = 14 * 86_400.0
    segment_bytes: int = 16 * 2**20  # changes beyond which a segment is full, on disk
    segment_s: float = 6 * 3600.0


class RecordingWriter:
    def __init__(
        self, directory: Path, bounds: Bounds, *, code: str, writer: str, now: float, anonymised: bool = False
    ) -> None:
        """`now`: unix seconds. `writer`: who writes, for people."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.bounds = bounds
        self.problems: list[str] = []  # what was found and mended when it was opened
        self.code = code
        self._writer = writer
        self._anonymised = anonymised
        self._lock = _lock(directory)
        self._segment: SegmentWriter | None = None
        self._file: IO[bytes] | None = None
        self._began = 0.0
        self._keyframe_bytes = 0
        self._closed_bytes = 0
        self._last: Previous | None = None
        self.number = 0  # of the last decision
        self.missing_behind = 0  # decisions that gaps behind that one tell of, where it was opened
        try:
            self._take_over(now)
            self.prune(now)
        except BaseException:
            self._lock.close()
            raise

    # -- records ---------------------------------------------------------------------------------------------------

    @property
    def chain(self) -> str:
        """The chain hash of the last record."""
        if self._segment is not None:
            return self._segment.chain
        return CHAIN_START if self._last is None else self._last.chain

    @property
    def bytes(self) -> int:
        """Written since it was opened."""
        return self._closed_bytes + (0 if self._segment is None else self._segment.bytes)

    @property
    def open(self) -> bool:
        """Whether a segment is."""
        return self._segment is not None

    def wants_whole(self, now: float) -> bool:
        """Whether the next decision is to have its whole state, because a segment begins with it."""
        segment = self._segment
        if segment is None:
            return True
        # A state may be larger than a segment: then as much again is written before the next one.
        full = segment.bytes - self._keyframe_bytes > max(self.bounds.segment_bytes, self._keyframe_bytes)
        return full or now - self._began > self.bounds.segment_s

    def decision(self, record: Decision, now: float, gap: Gap | None = None, parts: Iterable[form.Facts] = ()) -> None:
        """`record.whole` begins a segment where one is due. `gap`: what is missing before it. `parts`: of its facts, written one by one."""
        if record.whole and self.wants_whole(now):
            self._end("full" if now - self._began <= self.bounds.segment_s else "old", now)
            self._begin(now)
        if self._segment is None:
            raise RecordingError(f"decision {record.number} has not its whole state, and no segment is open")
        if gap is not None:
            self._segment.write(gap)
        for facts in parts:
            self._segment.write(Part(facts=facts))
        self._segment.write(record)
        self.number = record.number
        if not self._keyframe_bytes:
            self._segment.flush()
            self._keyframe_bytes = self._segment.bytes

    def gap(self, record: Gap) -> None:
        """At the end of a segment: what is missing behind it."""
        if self._segment is not None:
            self._segment.write(record)

    def flush(self) -> None:
        if self._segment is not None:
            self._segment.flush()

    def next_segment(self, now: float) -> None:
        """The next decision begins one."""
        self._end("full", now)

    def close(self, reason: str, now: float) -> None:
        try:
            self._end(reason, now)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Ends without a word, as a crash does."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._segment = self._file = None
        self._lock.close()

    # -- segments --------------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        number = 1 if self._last is None else self._last.segment + 1
        self.prune(now)
        self._file = _created(self.directory / segment_name(number))
        self._segment = SegmentWriter(self._file, self.chain)
        self._began, self._keyframe_bytes = now, 0
        self._segment.write(
            Header(
                format=FORMAT,
                version=VERSION,
                segment=number,
                started=now,
                code=self.code,
                writer=self._writer,
                previous=self._last,
                anonymised=self._anonymised,
            )
        )

    def _end(self, reason: str, now: float) -> None:
        segment, file = self._segment, self._file
        if segment is None or file is None:
            return
        number = 1 if self._last is None else self._last.segment + 1
        segment.write(End(at=now, reason=reason))
        segment.finish()
        os.fsync(file.fileno())
        file.close()
        self._last = Previous(segment=number, chain=segment.chain)
        self._closed_bytes += segment.bytes
        self._segment = self._file = None
        log.info("recording: %s is closed (%s), its chain ends with %s", segment_name(number), reason, segment.chain)

    def prune(self, now: float) -> None:
        """Deletes the oldest segments that are too many or too old."""
        held = [(path, path.stat()) for _, path in segments(self.directory)]
        total = sum(stat.st_size for _, stat in held)
        for path, stat in held:
            old = now - stat.st_mtime > self.bounds.age_max_s
            if not old and total <= self.bounds.bytes_max:
                return
            path.unlink()
            total -= stat.st_size
            log.info("recording: %s is deleted: %s", path.name, "too old" if old else "the directory is full")

    def _take_over(self, now: float) -> None:
        """What the writer before left."""
        for path in self.directory.glob(f"*{TEMPORARY}"):
            path.unlink()
        known = segments(self.directory)
        if not known:
            return
        number, path = known[-1]
        torn = Torn()
        last: Found[BriefRecord] | None = None
        decisions = 0
        try:
            for found in skim_segment(path, torn):
                last = found
                if isinstance(found.record, BriefDecision):
                    decisions, self.number, self.missing_behind = decisions + 1, found.record.number, 0
                elif isinstance(found.record, Gap):
                    self.missing_behind += found.record.decisions
            if not decisions:
                self.number = _last_number(known[:-1])
        except EmptySegmentError as error:
            self.problems.append(f"{error}; it is deleted")
            path.unlink()
            self._take_over(now)
            return
        except RecordingError as error:
            # What is there is left for people to look at; a new chain begins behind it.
            self.problems.append(f"{error}; it is kept as it is")
            self._last = Previous(segment=number, chain=CHAIN_START if last is None else last.chain)
            return
        assert last is not None  # else it has raised
        if ended(last.record) and not torn.why:
            _sync(path)  # its writer may have been killed before it did so, and what follows needs it
            self._last = Previous(segment=number, chain=last.chain)
            return
        why = torn.why
        self._last = Previous(segment=number, chain=self._close_torn(path, f"cut: {why}", now))
        self.problems.append(f"{path}: {why}; it was closed behind record {last.number}, the last whole one")

    def _close_torn(self, path: Path, reason: str, now: float) -> str:
        """Write the segment again, with its whole records and an end; returns the chain. The old one stays until the new one is complete."""
        other = path.with_name(path.name + TEMPORARY)
        at = path.stat().st_mtime
        with _created(other) as file:
            copy: SegmentWriter | None = None
            for found in skim_segment(path, Torn()):
                if ended(found.record):
                    break
                if copy is None:
                    assert isinstance(found.record, Header)
                    previous = found.record.previous
                    copy = SegmentWriter(file, previous.chain if previous else CHAIN_START)
                copy.copy(found)
            assert copy is not None
            copy.write(End(at=now, reason=reason))
            copy.finish()
            os.fsync(file.fileno())
        other.replace(path)
        with contextlib.suppress(OSError):  # at worst the old one is back after a loss of power, and is cut again
            _sync_directory(self.directory)
        os.utime(path, (at, at))
        return copy.chain


def segments(directory: Path) -> list[tuple[int, Path]]:
    """The segments by number."""
    found = [(NAME.fullmatch(path.name), path) for path in directory.iterdir()]
    return sorted((int(match[1]), path) for match, path in found if match)


def _last_number(known: list[tuple[int, Path]]) -> int:
    """The number of the last decision in these segments, 0 for none. The last of all may have been cut before its first decision."""
    for _, path in reversed(known):
        try:
            numbers = [
                found.record.number for found in skim_segment(path, Torn()) if isinstance(found.record, BriefDecision)
            ]
        except RecordingError:
            continue  # the replay names it
        if numbers:
            return numbers[-1]
    return 0


def _created(path: Path) -> IO[bytes]:
    """A new file whose name is durable: a loss of power must not take a segment out of the middle."""
    file = path.open("xb")
    try:
        _sync_directory(path.parent)
    except OSError:
        file.close()
        raise
    return file


def _sync_directory(directory: Path) -> None:
    _sync(directory, os.O_DIRECTORY)


def _sync(path: Path, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(directory: Path) -> IO[bytes]:
    file = (directory / LOCK).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise LockedError(
            f"{directory}: another process records there ({error}); give each its own directory"
        ) from None
    return file
