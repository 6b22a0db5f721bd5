"""Recorded decisions are decided again and are the same, bit by bit; a change of code or of a setting is found and named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.engine.plan.decide import decide
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.history.recording.compact import lines, side_by_side
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.verify import Counts, differences
from fairlead.history.recording.writer import Bounds, segments
from tests.support.decisions_sources import Data, selected
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import h100_world
from tests.support.history import record

NOWHERE = Data(Path("/nowhere"), Path("/nowhere"))
EVERY = {"scenarios": 3, "clusters/": 2, "claims": 1, "soak": 1}
SMALL = Bounds(segment_bytes=4_000, age_max_s=1e12)


def verified(directories: list[Path], *, afresh: bool = False) -> int:
    """How many decisions were decided again, all with the same plan."""
    total = 0
    for directory in directories:
        counts = Counts()
        reader = Reader([directory])
        for found in differences(reader, counts, afresh=afresh):
            pytest.fail(f"{found.where}: {side_by_side(lines(found.recorded), lines(found.now))}")
        assert reader.torn == ""
        total += counts.decisions
    return total


@pytest.mark.one_in(4)
@pytest.mark.parametrize("source", ["claims", "scenarios", "clusters/", "soak"])
def test_recorded_decisions_replay_exactly(source: str, tmp_path: Path):
    total = 0
    cases = [case for case in selected("quick", NOWHERE)[0] if case.name.startswith(source)]
    for place, case in enumerate(cases[:: EVERY[source]]):
        total += verified(record(case.run, tmp_path / str(place), SMALL))
    assert total >= {"scenarios": 100, "clusters/": 100, "claims": 50, "soak": 5}[source]


def day(hours: int = 24) -> Callable[[], None]:
    """Gangs of three sizes come to four nodes and end; some wait."""

    def run() -> None:
        world = h100_world(4)
        waiting = []
        ends: dict[str, int] = {}
        for hour in range(hours):
            world.now = 1_000_000.0 + 3600.0 * hour
            for gang_id in [name for name, end in ends.items() if end <= hour]:
                world.end(gang_id)
                del ends[gang_id]
            waiting += [
                gang(f"g{hour}-{number}", 1 + number, claim_spec(device_request(4)), created=world.now + number)
                for number in range(3)
            ]
            plan = world.decide(*waiting)
            waiting = world.carry_out(plan, waiting)
            ends |= {entry.id: hour + 1 + hour % 3 for entry in plan.admissions}

    return run


@pytest.mark.slow
def test_a_day_is_in_several_segments_that_can_be_read_apart(tmp_path: Path):
    (directory,) = record(day(48), tmp_path, SMALL)
    files = [path for _, path in segments(directory)]
    assert len(files) > 3
    assert verified([directory]) == 48
    assert sum(verified([file]) for file in files) == 48, "each begins with its whole state"


def test_decided_afresh_it_is_the_same(tmp_path: Path):
    assert verified(record(day(), tmp_path), afresh=True) == 24


def patience_last(snapshot: Snapshot, now: float) -> Plan:
    """A change of one line: what has waited for two hours comes last."""
    turned = tuple(replace(each, priority=-(now - each.created >= 7200.0)) for each in snapshot.gangs)
    return decide(replace(snapshot, gangs=turned), now)


def test_a_change_of_one_line_is_found_and_the_first_decision_named(tmp_path: Path):
    (directory,) = record(day(), tmp_path)
    found = next(differences(Reader([directory]), Counts(), decide=patience_last))
    assert found.number > 1
    assert ".jsonl.gz: record " in found.where
    rows = side_by_side(lines(found.recorded), lines(found.now))
    marked = [row for row in rows if row[0] == "≠"]
    assert marked
    assert any("admit ml/" in old or "admit ml/" in new for _, old, new in marked)
    assert decide(found.state.snapshot(), found.at) != patience_last(found.state.snapshot(), found.at)


def test_a_sentence_that_changes_is_a_difference(tmp_path: Path):
    def reworded(snapshot: Snapshot, now: float) -> Plan:
        plan = decide(snapshot, now)
        last = [
            dataclasses.replace(each, reason=dataclasses.replace(each.reason, advice="wait"))
            for each in plan.waiting[-1:]
        ]
        return dataclasses.replace(plan, waiting=(*plan.waiting[:-1], *last))

    (directory,) = record(day(), tmp_path)
    assert next(differences(Reader([directory]), Counts(), decide=reworded)).number > 1
