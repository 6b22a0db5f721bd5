"""Decides every recorded decision again, on the recorded inputs, and compares bit by bit.

Each decision is compared for itself: inputs are recorded whole or as changes of recorded inputs, so one that differs does not
make the next one differ. It is the engine that the controller has; `afresh` takes a new one for each decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairlead.engine.plan.decide import Engine
from fairlead.history.facts.form import FactsError
from fairlead.history.facts.state import State
from fairlead.history.recording.compact import PlanView, PlanWriter
from fairlead.history.recording.records import Decision, Gap, RecordingError

if TYPE_CHECKING:
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.plan import Plan
    from fairlead.history.facts import form
    from fairlead.history.recording.reader import Reader

Decide = Callable[["Snapshot", float], "Plan"]


@dataclass(slots=True)
class Counts:
    decisions: int = 0
    gaps: int = 0
    missed: int = 0  # decisions that the recorder could not write
    first_at: float | None = None
    last_at: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One decision that differs. `recorded` and `now` are plans as `PlanView` shows them."""

    number: int
    at: float
    where: str  # file and record
    facts: form.Facts  # what changed since the decision before
    state: State  # all inputs
    recorded: dict[str, Any]
    now: dict[str, Any]


def differences(
    reader: Reader, counts: Counts, *, decide: Decide | None = None, afresh: bool = False
) -> Iterator[Difference]:
    """In the order of the recording; `counts` grows meanwhile. Look at one before the next: its `state` goes on.

    Raises RecordingError, OSError.
    """
    state: State | None = None
    engine = Engine()
    plans, recorded, now = PlanWriter(), PlanView(), PlanView()
    for read in reader:
        record = read.record
        if isinstance(record, Gap):
            counts.gaps += 1
            counts.missed += record.decisions
            state = None
        if not isinstance(record, Decision):
            continue
        if record.whole:
            state, recorded, now = State(), PlanView(), PlanView()
        if state is None:
            raise RecordingError(
                f"{read.where}: decision {record.number} rests on one that is not there; the segment was edited"
            )
        try:
            state.apply(record.facts)
        except FactsError as error:
            raise RecordingError(f"{read.where}: decision {record.number}: {error}") from None
        if afresh:
            engine = Engine()
        plan = (decide or engine.decide)(state.snapshot(), record.at)
        digest, compact = plans.write(plan, whole=record.whole)
        recorded.apply(record.plan)
        now.apply(compact)
        counts.decisions += 1
        counts.first_at = record.at if counts.first_at is None else counts.first_at
        counts.last_at = record.at
        if digest != record.digest:
            yield Difference(record.number, record.at, read.where, record.facts, state, recorded.shown(), now.shown())
