"""The flight recorder: takes note of each decision in the loop, and writes it down in a thread of its own.

In the loop a decision costs what changed since the last one: references to frozen values are put into a queue, which is bounded by number and
by what it keeps in memory that the controller does not need any more: plans, and values that changed since. The thread (`writing`)
makes records of them. It never stops a decision: when it is behind, or the disk is full or broken, decisions go unrecorded, the
recording says how many, and goes on with a whole state as soon as it can. Problems are kept in `problem` until the loop has told them.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.history.facts.changes import Noted, Watcher
from fairlead.history.facts.errors import FactsError
from fairlead.history.recording.writer import Bounds
from fairlead.history.recording.writing import FLUSH_S, Job, Shared, Writing

if TYPE_CHECKING:
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.plan import Plan

log = logging.getLogger(__name__)

QUEUE_MAX = 256  # decisions that wait to be written
QUEUE_ENTRIES_MAX = 100_000  # changes and waiting gangs in them, some 750 bytes each
BEHIND = "the recorder is behind: decisions came faster than they were written"
CLOSE_S = 5.0  # at the end of a term: for what waits to be written


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
        self._start()

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
        self._join(timeout_s)

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

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="flight-recorder", daemon=True)
        self._thread.start()

    def _join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.warning("recording: not closed within %g s; the next leader closes the segment", timeout_s)

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
