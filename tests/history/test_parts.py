"""A large state is written, and read, in parts of about a megabyte; together they are the decision's facts."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from fairlead.engine.plan.decide import decide
from fairlead.history.facts.changes import Watcher
from fairlead.history.facts.form import PART_WEIGHT, joined, parts, tables_of, weight
from fairlead.history.recording import segment as segment_module
from fairlead.history.recording.anonymise import anonymise
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.recorder import FlightRecorder
from fairlead.history.recording.records import Decision, Part
from fairlead.history.recording.segment import Torn, read_segment
from fairlead.history.recording.verify import Counts, differences
from fairlead.history.recording.writer import Bounds, RecordingWriter, segments
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world
from tests.support.history import Recording

NODES = 3 * PART_WEIGHT // 8


def large_world() -> World:
    return h100_world(NODES)


def live(world: World, recording: Recording, count: int) -> None:
    for number in range(count):
        world.now = float(number)
        gangs = [gang(f"g{number}", 2, claim_spec(device_request(1)), created=world.now)]
        snapshot = world.snapshot(*gangs)
        plan = decide(snapshot, world.now)
        recording.note(snapshot, world.now, plan)
        world.carry_out(plan, gangs)


def lines(directory: Path) -> list[dict[str, Any]]:
    (path,) = (path for _, path in segments(directory))
    return [json.loads(line)["record"] for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("large")
    recording = Recording(directory)
    live(large_world(), recording, 4)
    recording.close()
    return directory


def test_a_whole_state_is_written_in_parts_of_bounded_size_and_changes_are_not(recorded: Path):
    found = lines(recorded)
    kinds = [each["kind"] for each in found]
    count = kinds.count("part")
    assert kinds == ["header", *["part"] * count, *["decision"] * 4, "end"]
    assert 3 <= count <= 6
    assert all(len(json.dumps(each)) < 2**20 for each in found)
    assert found[count + 1]["whole"]
    assert not found[count + 1]["facts"].keys() & {"slices", "nodes"}, "what is in parts is not there twice"


def test_together_they_are_the_facts_of_the_decision(recorded: Path):
    first = next(each.record for each in Reader([recorded]) if isinstance(each.record, Decision))
    noted = Watcher().note(large_world().snapshot(gang("g0", 2, claim_spec(device_request(1)))))
    assert tables_of(first.facts) == tables_of(noted.facts())
    assert list(first.facts.slices) == list(noted.facts().slices), "in their order"
    assert first.facts.settings == noted.facts().settings


def test_an_anonymised_one_is_in_parts_too(recorded: Path, tmp_path: Path):
    found = anonymise([recorded], tmp_path / "out", b"key")
    assert (found.decisions, found.alike) == (4, 4)
    assert [each["kind"] for each in lines(tmp_path / "out")].count("part") >= 3
    assert "node-1" not in json.dumps(lines(tmp_path / "out"))
    assert list(differences(Reader([tmp_path / "out"]), Counts())) == []


@pytest.mark.parametrize("most", [1, 7, 10**9])
def test_parts_joined_are_the_tables_whatever_their_size(most: int):
    noted = Watcher().note(h100_world(5).snapshot(gang("g", 3, claim_spec(device_request(1)))))
    tables = tables_of(noted.facts())
    split = list(parts(tables, lambda _, value: value, most=most))
    assert joined(split) == tables
    assert all(weight(tables_of(each)) <= most + 9 for each in split), "one entry more, at most"
    assert weight(tables) == noted.weight >= 5 * 8 + 3


def test_a_kill_in_the_middle_of_the_parts_leaves_a_recording_that_goes_on(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The next leader closes the segment behind the last whole part, without reading any state; parts without a decision count for nothing."""
    (path,) = (path for _, path in segments(recorded))
    text = b"".join(gzip.decompress(path.read_bytes()).splitlines(keepends=True)[:3])
    (tmp_path / path.name).write_bytes(gzip.compress(text))

    def refuse(found: object, where: str) -> None:
        raise AssertionError(f"{where} is read")

    with monkeypatch.context() as patched:
        patched.setattr(segment_module, "parse_record", refuse)
        recording = Recording(tmp_path)
        live(large_world(), recording, 2)
        recording.close()
    assert recording.shared.problems.qsize() == 1
    first, second = (path for _, path in segments(tmp_path))
    kinds = [type(each.record).__name__ for each in read_segment(first, Torn())]
    assert kinds == ["Header", "Part", "Part", "End"]
    assert [type(each.record).__name__ for each in Reader([first, second])][:4] == [
        "Header",
        "End",
        "Header",
        "Decision",
    ]
    counts = Counts()
    assert list(differences(Reader([tmp_path]), counts)) == []
    assert counts.decisions == 2


def test_each_part_is_made_when_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """So no more than one is in memory."""
    made: list[int] = []
    original = RecordingWriter.decision

    def decision(self: RecordingWriter, record: Decision, now: float, gap: Any = None, parts: Any = ()) -> None:
        def counted() -> Any:
            for each in parts:
                made.append(len(made))
                yield each
                assert self._segment is not None
                written.append(self._segment.chain)

        original(self, record, now, gap, counted())

    written: list[str] = []
    monkeypatch.setattr(RecordingWriter, "decision", decision)
    recording = Recording(tmp_path)
    live(large_world(), recording, 1)
    recording.close()
    assert len(made) == len(written) >= 3
    assert len(set(written)) == len(written), "each was written before the next was made"


def test_what_waits_to_be_written_is_bounded_by_what_it_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    may_write = threading.Event()
    original = RecordingWriter.decision

    def slow(self: RecordingWriter, *args: Any) -> None:
        may_write.wait(20.0)
        original(self, *args)

    monkeypatch.setattr(RecordingWriter, "decision", slow)
    recorder = FlightRecorder(tmp_path, Bounds(age_max_s=1e12), writer="test", queue_entries_max=50)
    world = h100_world(1)
    gangs = [gang(f"g{number:02}", 8, claim_spec(device_request(8)), created=0.0) for number in range(20)]
    snapshot = world.snapshot(*gangs)
    for number in range(6):
        noted = recorder.note(snapshot)
        plan = decide(snapshot, float(number))
        assert len(plan.waiting) == 20
        recorder.decided(noted, plan, float(number), 0.0)
    assert recorder.shared.counts.missed == 4, "two of twenty waiting gangs have room"
    may_write.set()
    recorder.close(20.0)
    numbers = [each.record.number for each in Reader([tmp_path]) if isinstance(each.record, Decision)]
    assert numbers == [1, 2]
    assert [type(each.record) for each in read_segment(segments(tmp_path)[0][1], Torn())].count(Part) == 0
