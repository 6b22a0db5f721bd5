"""The flight recorder's half that runs in its thread: records made of what the loop noted, and what to do when the disk refuses.

A failure stops the recording, never a decision; it is told once, and the directory is opened again `RETRY_S` later.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.history.code_version import code_version
from fairlead.history.facts import form
from fairlead.history.facts.parts import PART_WEIGHT
from fairlead.history.plans.compact import PlanWriter
from fairlead.history.recording.errors import LockedError, RecordingError
from fairlead.history.recording.records import Decision, Gap
from fairlead.history.recording.writer import Bounds, RecordingWriter

if TYPE_CHECKING:
    from fairlead.engine.types.plan import Plan
    from fairlead.history.facts.changes import Noted

log = logging.getLogger(__name__)

FLUSH_S = 1.0
RETRY_S = 60.0  # after the disk refused, or another process had the lock


@dataclass(frozen=True, slots=True)
class Job:
    """A decision to be written."""

    noted: Noted
    now: float
    plan: Plan
    took_s: float
    missed: int  # decisions before it that the loop could not hand over
    reason: str


@dataclass(slots=True)
class Counts:
    """For metrics; each only grows, but for `recording`."""

    recorded: int = 0
    missed: int = 0
    bytes: int = 0
    failures: int = 0
    recording: bool = False


@dataclass(slots=True)
class Shared:
    """What the loop and the thread tell each other."""

    counts: Counts = field(default_factory=Counts)
    whole: threading.Event = field(default_factory=threading.Event)  # the thread asks for a whole state
    problems: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)  # for events; the log has them already

    def tell(self, problem: str) -> None:
        log.error("recording: %s", problem)
        self.problems.put(problem)


class Writing:
    """Never raises. Used by one thread."""

    def __init__(
        self,
        directory: Path,
        bounds: Bounds,
        shared: Shared,
        *,
        writer: str,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._bounds = bounds
        self._shared = shared
        self._identity = writer
        self._clock = clock
        self._wall = wall
        self._plans = PlanWriter()
        self._writer: RecordingWriter | None = None
        self._try_at = float("-inf")  # of the clock
        self._flushed_at = float("-inf")
        self._unflushed = False
        self._missed = 0
        self._reason = ""
        self._failed = ""
        self._number = 0  # of the decision that is being written
        self._gaps: list[tuple[int, int]] = []  # not flushed yet: before which decision how many are missing
        self._expected: int | None = None  # the number of the last decision that was written, where the writer failed

    def write(self, job: Job) -> None:
        self._missed += job.missed
        self._reason = self._reason or job.reason
        self._number = 0
        try:
            self._write(job)
        except Exception as error:  # whatever it is, it must stop the recording alone
            if not isinstance(error, (OSError, RecordingError)):
                log.exception("recording failed")
            if self._writer is None or self._writer.number != self._number:
                self._miss()
            else:
                self._shared.counts.recorded += 1  # with those that were not flushed it is found, or missed, later
            self._fail(error)
        else:
            if self._clock() - self._flushed_at >= FLUSH_S:
                self.flush()

    def flush(self) -> None:
        if self._writer is None or not self._unflushed:
            return
        self._flushed_at, self._unflushed = self._clock(), False
        try:
            self._writer.flush()
        except OSError as error:
            self._fail(error)
        else:
            self._gaps.clear()

    def close(self, missed: int = 0, reason: str = "") -> None:
        """`missed`: decisions that the loop could not hand over since the last one."""
        if self._writer is None:
            return
        self._shared.counts.recording = False
        self._missed += missed
        try:
            if self._missed:
                self._writer.gap(Gap(at=self._wall(), decisions=self._missed, reason=self._reason or reason))
            self._writer.close("stopped", self._wall())
        except OSError as error:
            log.warning("recording: the last segment is not closed: %s", error)
            self._writer.abandon()

    # -- one decision ----------------------------------------------------------------------------------------------

    def _write(self, job: Job) -> None:
        writer = self._opened()
        if writer is None:
            self._miss()
            return
        whole = job.noted.whole
        if not whole and (self._missed or not writer.open):
            self._miss()
            self._shared.whole.set()
            return
        if not whole and writer.wants_whole(job.now):
            self._shared.whole.set()  # the next one begins a segment
        digest, plan = self._plans.write(job.plan, whole=whole)
        large = job.noted.weight > PART_WEIGHT
        record = Decision(
            number=writer.number + 1,
            at=job.now,
            digest=digest,
            took_s=round(job.took_s, 6),
            whole=whole,
            facts=job.noted.rest() if large else form.EMPTY if job.noted.empty else job.noted.facts(),
            plan=plan,
        )
        gap = Gap(at=job.now, decisions=self._missed, reason=self._reason) if self._missed else None
        before = writer.bytes
        self._number = record.number
        if gap is not None:
            self._gaps.append((record.number, gap.decisions))
            self._missed = 0
        writer.decision(record, job.now, gap, job.noted.parts() if large else ())
        self._unflushed, self._reason = True, ""
        counts = self._shared.counts
        counts.recorded += 1
        counts.bytes += writer.bytes - before

    def _miss(self) -> None:
        self._missed += 1
        self._shared.counts.missed += 1

    def _opened(self) -> RecordingWriter | None:
        """The writer, opened again some time after it failed."""
        if self._writer is None and self._clock() >= self._try_at:
            writer = RecordingWriter(
                self._directory, self._bounds, code=code_version(), writer=self._identity, now=self._wall()
            )
            for problem in writer.problems:
                self._shared.tell(problem)
            log.info("recording into %s, from decision %d on", self._directory, writer.number + 1)
            self._writer, self._failed = writer, ""
            if self._expected is not None:
                lost = max(0, self._expected - writer.number)  # were not flushed when it failed
                self._missed += lost + sum(missing for number, missing in self._gaps if number > writer.number)
                self._missed -= writer.missing_behind
                self._gaps.clear()
                counts = self._shared.counts
                counts.missed, counts.recorded, self._expected = counts.missed + lost, counts.recorded - lost, None
            self._shared.counts.recording = True
        return self._writer

    def _fail(self, error: Exception) -> None:
        """Until `RETRY_S` later nothing is recorded. The same failure is told once."""
        counts = self._shared.counts
        counts.failures += 1
        counts.recording = False
        self._try_at = self._clock() + RETRY_S
        if self._writer is not None:
            self._expected = self._writer.number
            self._writer.abandon()
            self._writer = None
        self._reason = self._reason or f"recording had stopped: {error}"
        what = f"stopped: {error}; decisions go on unrecorded"
        if isinstance(error, LockedError):
            what = f"off: {error}"
        elif isinstance(error, OSError):
            what += "; free space on the volume, mend it, or lower --record-max-size"
        if what != self._failed:
            self._shared.tell(what)
        self._failed = what
