"""Recordings for tests: every decision that a simulated cluster takes, written as the controller's recorder writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.history.facts.changes import Watcher
from fairlead.history.recording.recorder import Job, Shared, Writing
from fairlead.history.recording.writer import Bounds
from tests.support.decisions_recorder import instead


class Recording:
    """Writes in place, without a thread. `now` is virtual: that of the decisions."""

    def __init__(self, directory: Path, bounds: Bounds | None = None) -> None:
        self.directory = directory
        self.shared = Shared()
        self.now = 0.0
        self.watcher = Watcher()
        self.writing = Writing(
            directory, bounds or Bounds(age_max_s=1e12), self.shared, writer="test", clock=lambda: self.now, wall=lambda: self.now
        )  # fmt: skip

    def note(self, snapshot: Snapshot, now: float, plan: Plan) -> None:
        self.now = now
        if self.shared.whole.is_set():
            self.shared.whole.clear()
            self.watcher.forget()
        self.writing.write(Job(self.watcher.note(snapshot), now, plan, 0.0, 0, ""))

    def close(self) -> None:
        self.writing.close()


@contextmanager
def seen_by(look: Callable[[Snapshot, float, Plan], None]) -> Iterator[None]:
    """Meanwhile, every decision is looked at."""

    def made(original: Callable[..., Plan]) -> Callable[..., Plan]:
        def deciding(engine: Engine, snapshot: Snapshot, now: float, **more: Any) -> Plan:
            plan = original(engine, snapshot, now, **more)
            if not more:
                look(snapshot, now, plan)
            return plan

        return deciding

    with instead(made):
        yield


def record(run: Callable[[], object], directory: Path, bounds: Bounds | None = None) -> list[Path]:
    """Runs it; returns the directories of its recordings, one for each cluster (inventory) that it decided on."""
    known: dict[int, tuple[Recording, object]] = {}  # by the inventory's identity; it is kept, so that no other gets it

    def look(snapshot: Snapshot, now: float, plan: Plan) -> None:
        found = known.get(id(snapshot.inventory))
        if found is None:
            recording = Recording(directory / f"{len(known):04}", bounds)
            found = known[id(snapshot.inventory)] = (recording, snapshot.inventory)
        found[0].note(snapshot, now, plan)

    with seen_by(look):
        run()
    for recording, _ in known.values():
        recording.close()
        assert recording.shared.problems.empty(), recording.shared.problems.get()
    return [recording.directory for recording, _ in known.values()]
