"""A recording without the names in it, which still replays: names of objects and values of labels become pseudonyms.

The facts are renamed, and each decision is made again on what came of that, since plans have names in their sentences. The first reading
collects the names, the second writes. `Anonymised.alike` says how many decisions are the recorded ones but for names; one is not
where this version decides otherwise than the one that recorded it, or where an order ends in a name that the pseudonyms turn around.
What is kept: see `rename`. Times, sizes and numbers stay: who knows when which job ran may recognise it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fairlead.engine.plan.decide import Engine
from fairlead.history.facts.form import PART_WEIGHT, parts, tables_of, weight
from fairlead.history.facts.snapshot_file import dump_facts, load_facts
from fairlead.history.facts.state import State
from fairlead.history.recording.compact import PlanWriter
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.records import Decision, Gap, Header, RecordingError
from fairlead.history.recording.rename import Collected, Names, Pseudonyms, Renaming
from fairlead.history.recording.writer import Bounds, RecordingWriter

if TYPE_CHECKING:
    from fairlead.engine.types.plan import Admission, Plan

UNBOUNDED = Bounds(bytes_max=2**60, age_max_s=1e12, segment_bytes=2**60, segment_s=1e12)


@dataclass(slots=True)
class Anonymised:
    decisions: int = 0
    alike: int = 0  # the same as recorded, but for names
    names: int = 0


def anonymise_snapshot(data: bytes, key: bytes) -> bytes:
    """Raises FactsError."""
    facts, now = load_facts(data)
    collected = Collected()
    Renaming(collected).facts(facts)
    return dump_facts(Renaming(Pseudonyms(collected, key)).facts(facts), now)


def anonymise(paths: Iterable[Path], out: Path, key: bytes) -> Anonymised:
    """Into the directory `out`, which must be empty or new. Raises RecordingError, OSError."""
    paths = tuple(paths)
    if out.exists() and any(out.iterdir()):
        raise RecordingError(f"{out} is not empty: name a new directory for the anonymised recording")
    collected = Collected()
    for read in Reader(paths):
        if isinstance(read.record, Decision):
            Renaming(collected).facts(read.record.facts)
    names = Pseudonyms(collected, key)
    writing = _Writing(out, names)
    last = 0.0
    try:
        for read in Reader(paths):
            if isinstance(read.record, Decision):
                writing.decision(read.record, read.where)
                last = read.record.at
            elif isinstance(read.record, Header):
                writing.header(read.record)
            elif isinstance(read.record, Gap):
                writing.gap = read.record
    except BaseException:
        writing.writer.abandon()
        raise
    writing.writer.close("stopped", last)
    writing.found.names = len(collected.names)
    return writing.found


class _Writing:
    """The second reading."""

    def __init__(self, out: Path, names: Names) -> None:
        self.found = Anonymised()
        self.gap: Gap | None = None
        self.writer = RecordingWriter(out, UNBOUNDED, code="", writer="", now=0.0, anonymised=True)
        self._names = names
        self._renaming = Renaming(names)
        self._recorded: State | None = None
        self._renamed: State | None = None
        self._engines = Engine(), Engine()  # of both
        self._plans = PlanWriter()

    def header(self, record: Header) -> None:
        self.writer.code = record.code
        self.writer.next_segment(record.started)

    def decision(self, record: Decision, where: str) -> None:
        if record.whole:
            self._recorded, self._renamed = State(), State()
        recorded, renamed = self._recorded, self._renamed
        if recorded is None or renamed is None:
            raise RecordingError(f"{where}: decision {record.number} rests on one that is not there")
        facts = self._renaming.facts(record.facts)
        recorded.apply(record.facts)
        renamed.apply(facts)
        plan = self._engines[1].decide(renamed.snapshot(), record.at)
        self.found.decisions += 1
        self.found.alike += self._alike(self._engines[0].decide(recorded.snapshot(), record.at), plan)
        digest, compact = self._plans.write(plan, whole=record.whole)
        tables = tables_of(facts)
        large = weight(tables) > PART_WEIGHT
        self.writer.decision(
            Decision(
                number=record.number,
                at=record.at,
                digest=digest,
                took_s=record.took_s,
                whole=record.whole,
                facts=msgspec.structs.replace(facts, **{table: {} for table in tables}) if large else facts,
                plan=compact,
            ),
            record.at,
            self.gap,
            parts(tables, lambda _, value: value) if large else (),
        )
        self.gap = None

    def _alike(self, plan: Plan, other: Plan) -> bool:
        names = self._names
        admitted = [
            (
                names.name(each.id),
                [(names.name(str(a.pod)), names.place(a.node)) for a in each.assignments],
                _devices(each, names),
            )
            for each in plan.admissions
        ]
        also = [
            (each.id, [(str(a.pod), a.node) for a in each.assignments], _devices(each, None))
            for each in other.admissions
        ]
        evicted = [(names.name(each.id), each.kind, len(each.pods)) for each in plan.evictions]
        waiting = [(names.name(each.id), each.reason.code, each.position) for each in plan.waiting]
        return (
            admitted == also
            and evicted == [(each.id, each.kind, len(each.pods)) for each in other.evictions]
            and waiting == [(each.id, each.reason.code, each.position) for each in other.waiting]
        )


def _devices(admission: Admission, names: Names | None) -> list[tuple[str, str]]:
    """(pool, device) of each result."""
    results = (each for claim in admission.claims for each in claim.devices)
    return [(each.pool if names is None else names.place(each.pool), each.device) for each in results]
