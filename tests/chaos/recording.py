"""The recording of a run's decisions: the real recorder without its thread, on a disk that fails, and what must hold of it at the end.

Both controllers record into one directory, as on a volume that both mount; the one that leads writes. A recording begins with the run:
decisions of the start, which runs share, wait until then.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fairlead.controller.report import flight
from fairlead.history.recording import recorder, writer
from fairlead.history.recording.compact import lines, side_by_side
from fairlead.history.recording.reader import Read, Reader
from fairlead.history.recording.recorder import FLUSH_S, FlightRecorder
from fairlead.history.recording.records import Decision, End, RecordingError
from fairlead.history.recording.verify import Counts, differences
from tests.chaos import disk
from tests.chaos.disk import Disk, Killed
from tests.chaos.virtual import CLOCK, PROCESS

if TYPE_CHECKING:
    from fairlead.engine.types.plan import Plan
    from fairlead.history.facts.changes import Noted
    from fairlead.history.recording.writer import Bounds

SEGMENT_S = 20.0  # so that a run, of some two minutes, has several
RETRY_S = 5.0  # after a fault of the disk; 60 otherwise
DIFFERENT_MAX = 3  # decisions that are told
CUT = "cut: "  # how the reason begins with which a segment of a writer that was killed is closed
SEGMENT = "segment-"
TOLD = "it was closed behind record"  # with which that is told
DELETED = "it is deleted"


class RecordingDisk(Disk):
    """Its files are only appended to: of what was not made durable a loss of power leaves a part, or a part and zeros."""

    mended_s = 0.0  # when it served again

    @property
    def serves(self) -> bool:
        return not (self.full or self.failing or self.lying or self.dies_in is not None)

    def repair(self) -> None:
        if not self.serves:
            self.mended_s = CLOCK.now
        super().repair()

    def after_loss(self, durable: bytes, present: bytes) -> bytes:
        if not present.startswith(durable):
            return durable
        kept = self.random.randint(len(durable), len(present))
        return present[:kept] + bytes(len(present) - kept if self.random.random() < 0.3 else 0)


class Recordings:
    """One cluster's."""

    def __init__(self, root: Path, writers: tuple[str, ...]) -> None:
        self.directory = root / "recording"
        self.directory.mkdir(parents=True)
        self.disk = RecordingDisk(self.directory)
        self.began = False
        self.terms: list[Recorder] = []
        self.told: list[str] = []  # by the log
        self.shown = self.digest = ""  # of all decisions
        self.killed = 0  # writers, in the middle of a write
        self._hindered_s = 0.0  # when a term was last seen hindered
        for name in writers:
            disk.mount(name, self.disk)
        logging.getLogger(recorder.__name__).addHandler(_Told(self.told))
        _RECORDINGS[self.directory] = self

    def begin(self, seed: int) -> None:
        self.disk.random.seed(f"{seed}/recording")
        self.began = True

    def due(self, term: Recorder) -> bool:
        """Whether the term must be recording: nothing has hindered it since it has to have tried again."""
        others = any(each is not term and each.process.alive and not each.closed for each in self.terms)
        if others or term.process.thread_s or not self.disk.serves:
            self._hindered_s = CLOCK.now
        return CLOCK.now > max(self._hindered_s, self.disk.mended_s) + RETRY_S

    # -- the end

    def _cut(self) -> set[str]:
        """Numbers of segments that are there and were cut, as was told. A number comes again where its segment was deleted."""
        found: set[str] = set()
        for each in self.told:
            number = each.partition(SEGMENT)[2][:8]
            if DELETED in each:
                found.discard(number)
            elif TOLD in each:
                found.add(number)
        return found

    def problems(self) -> Iterator[str]:
        """What must not be, of what is on the disk now. Every decision is made again."""
        noted, counts = _Noted([self.directory]), Counts()
        try:
            for number, each in enumerate(differences(noted, counts)):
                if number == DIFFERENT_MAX:
                    yield "recording: there are more"
                    break
                rows = side_by_side(lines(each.recorded), lines(each.now))
                shown = "; ".join(f"recorded {one!r}, now {other!r}" for mark, one, other in rows if mark == "≠")
                yield f"recording: decision {each.number} is another one when it is made again: {shown[:2000]}"
        except RecordingError as error:
            yield f"recording: it cannot be read: {error}"
            return
        self.digest = noted.digest.hexdigest()
        made = sum(each.decisions for each in self.terms)
        self.shown = f"{counts.decisions} of {made} decisions, {counts.missed} in gaps, {noted.cut} segments cut"
        for number, found in enumerate(noted.numbers, 1):
            if number != found:
                yield f"recording: decision {number} has the number {found}"
                break
        if not (noted.torn or counts.decisions + counts.missed) or counts.decisions + counts.missed > made:
            yield f"recording: it has {self.shown}"
        # One may be cut twice, or be cut and then hold nothing and be deleted: the first time need not outlast a loss of power.
        told = len(self._cut())
        if not noted.cut - self.killed <= told <= noted.cut:
            yield f"recording: {noted.cut} segments were cut, {told} were told: {self.told}"
        yield from self._unrecorded()

    def _unrecorded(self) -> Iterator[str]:
        """Of terms that go on: decisions that are neither recorded nor counted, and recording that did not go on."""
        for term in self.terms:
            if not term.process.alive or term.closed:
                continue
            counts = term.shared.counts
            if counts.recorded + counts.missed != term.decisions:
                yield f"recording: {term.process!r} made {term.decisions} decisions, but {counts}"
            if term.decisions_due > 2 and not counts.recording:
                yield f"recording: {term.process!r} does not record, and nothing hinders it: {self.told[-1:]}"


_RECORDINGS: dict[Path, Recordings] = {}


class _Told(logging.Handler):
    """What the log says of the recording."""

    def __init__(self, told: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told.append(record.getMessage())


class _Noted(Reader):
    """Keeps, of what is read, what is judged besides the decisions."""

    def __init__(self, paths: list[Path]) -> None:
        super().__init__(paths)
        self.numbers: list[int] = []
        self.cut = 0
        self.digest = hashlib.sha256()

    def __iter__(self) -> Iterator[Read]:
        for read in super().__iter__():
            record = read.record
            if isinstance(record, Decision):
                self.numbers.append(record.number)
                self.digest.update(f"{record.number} {record.at} {record.digest}\n".encode())
            elif isinstance(record, End):
                self.cut += record.reason.startswith(CUT)
            yield read


class Recorder(FlightRecorder):
    """The thread's work is done in turns of the event loop, as its process: late where its threads are slow, and never after its end."""

    def __init__(self, directory: Path, bounds: Bounds, **more: Any) -> None:
        process = PROCESS.get()
        assert process is not None
        self.process = process
        self.decisions = 0
        self.decisions_due = 0  # of the last ones, that must be recorded
        self.closed = False
        self._due = self._flush_due = False
        self._of = _RECORDINGS[directory]
        self._of.terms.append(self)
        super().__init__(directory, dataclasses.replace(bounds, segment_s=SEGMENT_S), **more)

    def decided(self, noted: Noted | None, plan: Plan | None, now: float, took_s: float) -> None:
        self.decisions += 1
        self.decisions_due = self.decisions_due + 1 if self._of.due(self) else 0
        super().decided(noted, plan, now, took_s)
        if not self._due:
            self._due = True
            self._call(0.0, self._write)

    def _start(self) -> None:
        """There is no thread."""

    def _call(self, delay_s: float, work: Callable[[], None]) -> None:
        slow_s = self.process.thread_s
        self.process.call(delay_s + (self._of.disk.random.uniform(0, slow_s) if slow_s else 0.0), work)

    def _write(self) -> None:
        if not self._of.began:
            self._call(FLUSH_S, self._write)
            return
        self._due = False
        self._turn(self._jobs.qsize())
        if not self._flush_due:
            self._flush_due = True
            self._call(FLUSH_S, self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._jobs.empty():
            self._turn(1)

    def _turn(self, count: int) -> None:
        if self.closed:
            return
        try:
            for _ in range(count):
                self._work(0.0)  # where no decision waits it flushes
        except Killed:
            self._of.killed += 1

    def _join(self, timeout_s: float) -> None:
        self.closed = True
        try:
            while self._of.began and self._work(0.0):
                pass
        except Killed:
            self._of.killed += 1
            raise


class _File(io.RawIOBase):
    """A file through `os`, where the disk sees it. What a buffer above it holds is lost with the process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        return os.write(self._descriptor, data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)


def _created(path: Path) -> IO[bytes]:
    """writer._created."""
    file: Any = io.BufferedWriter(_File(path))
    writer._sync_directory(path.parent)
    return file  # type: ignore[no-any-return]


def install() -> None:
    replaced: Any = flight
    replaced.FlightRecorder = Recorder
    replaced = writer
    replaced._created = _created
    replaced = recorder
    replaced.RETRY_S = RETRY_S
