"""The flight recorder: takes note of each decision in the loop, and writes it down in a thread of its own.

In the loop a decision costs what changed since the last one: references to frozen values are put into a queue, which is bounded by number
and by what it keeps in memory that the controller does not need any more: plans, and values that changed since. The thread makes records
of them. It never stops a decision: when it is behind, or the disk is full or broken, decisions go unrecorded, the recording says how
many, and goes on with a whole state as soon as it can; the directory is opened again `RETRY_S` later. Each problem is told once.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.history.code_version import code_version
from fairlead.history.facts import form
from fairlead.history.facts.changes import Noted, Watcher
from fairlead.history.facts.form import PART_WEIGHT, FactsError
from fairlead.history.recording.compact import PlanWriter
from fairlead.history.recording.records import Decision, Gap, LockedError, RecordingError
from fairlead.history.recording.writer import Bounds, RecordingWriter

if TYPE_CHECKING:
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.plan import Plan

log = logging.getLogger(__name__)

QUEUE_MAX = 256  # decisions that wait to be written
QUEUE_ENTRIES_MAX = 100_000  # changes and waiting gangs in them, some 750 bytes each
BEHIND = "the recorder is behind: decisions came faster than they were written"
CLOSE_S = 5.0  # at the end of a term: for what waits to be written
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


class FlightRecorder:
    """`note` before and `decided` after each decision, from one thread. `close` at the end."""

    def __init__(
        self,
        directory: Path,
        bounds: Bounds,
        *,
        writer: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        queue_max: int = QUEUE_MAX,
        queue_entries_max: int = QUEUE_ENTRIES_MAX,
    ) -> None:
        self.shared = Shared()
        self._watcher = Watcher()
        self._writing = Writing(directory, bounds, self.shared, writer=writer, clock=clock, wall=wall)
        self._jobs: queue.Queue[Job | None] = queue.Queue(queue_max)
        self._entries_max = queue_entries_max
        self._entries = 0  # in the queue, and in the decision that is being written
        self._counting = threading.Lock()
        self._missed = 0
        self._reason = ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flight-recorder", daemon=True)
        self._thread.start()

    # -- in the loop -----------------------------------------------------------------------------------------------

    def note(self, snapshot: Snapshot) -> Noted | None:
        """Before the decision: what changed. None where it cannot be recorded."""
        if self.shared.whole.is_set():
            self.shared.whole.clear()
            self._watcher.forget()
        try:
            return self._watcher.note(snapshot)
        except FactsError as error:
            self._miss(f"the snapshot cannot be written down: {error}")
            return None

    def decided(self, noted: Noted | None, plan: Plan | None, now: float, took_s: float) -> None:
        """After the decision; without a plan, it failed."""
        if noted is None:
            return
        if plan is None:
            self._miss("the decision failed")
            return
        job = Job(noted, now, plan, took_s, self._missed, self._reason)
        if not self._counted(_entries(job)):
            self._miss(BEHIND)
            return
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            self._counted(-_entries(job))
            self._miss(BEHIND)
            return
        self._missed, self._reason = 0, ""

    def problem(self) -> str | None:
        """One thing that went wrong since, told once."""
        with contextlib.suppress(queue.Empty):
            return self.shared.problems.get_nowait()
        return None

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Writes what waits, and closes the segment; what is not written in time is lost, as in a crash."""
        self._closing.set()
        with contextlib.suppress(queue.Full):
            self._jobs.put_nowait(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.warning("recording: not closed within %g s; the next leader closes the segment", timeout_s)

    def _counted(self, entries: int) -> bool:
        """Whether there is room for them: one decision is always taken."""
        with self._counting:
            if entries > 0 and self._entries and self._entries + entries > self._entries_max:
                return False
            self._entries += entries
        return True

    def _miss(self, reason: str) -> None:
        """What changed is lost: the next record needs the whole state."""
        self._missed += 1
        self._reason = self._reason or reason
        self.shared.counts.missed += 1
        self._watcher.forget()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._work(FLUSH_S):
            pass

    def _work(self, wait_s: float) -> bool:
        """Writes one decision, or flushes where none comes for so long. False: the segment is closed."""
        try:
            job = self._jobs.get(timeout=wait_s)
        except queue.Empty:
            if not self._closing.is_set():
                self._writing.flush()
                return True
            job = None
        if job is not None:
            self._writing.write(job)
            self._counted(-_entries(job))
            return True
        self._writing.close(self._missed, self._reason)
        return False


def _entries(job: Job) -> int:
    """What it keeps in memory: of a whole state nothing, the controller has the same values."""
    changed = 0 if job.noted.whole else sum(map(len, job.noted.tables.values()))
    return changed + len(job.plan.waiting)


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
