"""Each decision handed to the flight recorder, and what becomes of the recording as metrics and as an event on the lease.

Recording never waits and never raises: a decision does not depend on it.
"""

from __future__ import annotations

from pathlib import Path

from fairlead.controller.report.events import Events
from fairlead.controller.report.metrics import Growing, Metrics
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.history.facts.changes import Noted
from fairlead.history.recording.recorder import FlightRecorder
from fairlead.history.recording.writer import Bounds


class Flight:
    """One term's recorder. `close` at its end, outside the event loop: it waits for the disk."""

    def __init__(self, directory: Path, bounds: Bounds, identity: str, metrics: Metrics, events: Events) -> None:
        self._recorder = FlightRecorder(directory, bounds, writer=identity)
        self._metrics = metrics
        self._events = events
        self._growing = Growing()
        self._noted: Noted | None = None

    def note(self, snapshot: Snapshot) -> None:
        """Before a decision: what changes while it is made is the next one's."""
        self._noted = None
        with self._metrics.failures.contained("recorder", "a snapshot"):
            self._noted = self._recorder.note(snapshot)

    def decided(self, plan: Plan | None, now: float, took_s: float) -> None:
        """After it; without a plan it failed."""
        with self._metrics.failures.contained("recorder", "a decision"):
            self._recorder.decided(self._noted, plan, now, took_s)
            self._report()

    def close(self) -> None:
        self._recorder.close()
        self._report()

    def _report(self) -> None:
        counts = self._recorder.shared.counts
        metrics = self._metrics
        metrics.recording.set(counts.recording)
        self._growing.show("recorded", counts.recorded, metrics.recorded_decisions.labels("recorded"))
        self._growing.show("missed", counts.missed, metrics.recorded_decisions.labels("missed"))
        self._growing.show("bytes", counts.bytes, metrics.recorded_bytes)
        while (problem := self._recorder.problem()) is not None:
            self._events.lease("RecordingProblem", f"The recording of decisions: {problem}")
