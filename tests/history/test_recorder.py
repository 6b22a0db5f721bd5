"""The recorder beside the loop: nothing that happens to its disk, its thread or its queue stops a decision."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.engine.plan.decide import decide
from fairlead.history.recording.reader import Reader, claim_ends
from fairlead.history.recording.recorder import FlightRecorder
from fairlead.history.recording.records import Decision, Gap
from fairlead.history.recording.segment import SegmentWriter
from fairlead.history.recording.verify import Counts, differences
from fairlead.history.recording.writer import Bounds, RecordingWriter
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world

BOUNDS = Bounds(age_max_s=1e12)


def recorder_of(directory: Path, *, queue_max: int = 256) -> FlightRecorder:
    return FlightRecorder(directory, BOUNDS, writer="test", queue_max=queue_max)


def decide_some(world: World, recorder: FlightRecorder, count: int, *, first: int = 0) -> None:
    """As the controller's cycle does."""
    for number in range(first, first + count):
        world.now = float(number)
        gangs = [gang(f"g{number}", 1, claim_spec(device_request(1)), created=world.now)]
        snapshot = world.snapshot(*gangs)
        noted = recorder.note(snapshot)
        plan = decide(snapshot, world.now)
        recorder.decided(noted, plan, world.now, 0.001)
        world.carry_out(plan, gangs)
        if number % 5 == 4:
            world.end(next(iter(world.running)))


def one_by_one(world: World, recorder: FlightRecorder, first: int, end: int) -> None:
    """Each decision is written, or missed, before the next."""
    counts = recorder.shared.counts
    for number in range(first, end):
        decide_some(world, recorder, 1, first=number)
        until(lambda: counts.recorded + counts.missed == number + 1)  # noqa: B023


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20.0
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.005)


def read(directory: Path) -> tuple[Counts, int]:
    counts = Counts()
    different = sum(1 for _ in differences(Reader([directory]), counts))
    return counts, different


def test_what_is_recorded_beside_the_loop_replays(tmp_path: Path):
    recorder = recorder_of(tmp_path)
    decide_some(h100_world(8), recorder, 60)
    recorder.close()
    counts, different = read(tmp_path)
    assert (counts.decisions, counts.missed, different) == (60, 0, 0)
    assert recorder.shared.counts.recorded == 60
    assert recorder.shared.counts.bytes > 1000
    assert recorder.problem() is None


def test_a_queue_that_is_full_leaves_a_gap_and_then_a_whole_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    may_write = threading.Event()
    original = RecordingWriter.decision

    def slow(self: RecordingWriter, *args: object) -> None:
        may_write.wait(20.0)
        original(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(RecordingWriter, "decision", slow)
    recorder = recorder_of(tmp_path, queue_max=3)
    world = h100_world(8)
    decide_some(world, recorder, 20)
    assert recorder.shared.counts.missed > 10
    may_write.set()
    until(lambda: recorder.shared.counts.recorded + recorder.shared.counts.missed >= 20)
    decide_some(world, recorder, 5, first=20)
    recorder.close()
    gaps = [each.record for each in Reader([tmp_path]) if isinstance(each.record, Gap)]
    assert "recorder is behind" in gaps[0].reason
    counts, different = read(tmp_path)
    assert counts.decisions + counts.missed == 25
    assert counts.missed == sum(gap.decisions for gap in gaps)
    assert different == 0


def test_a_full_disk_stops_the_recording_and_says_so_and_it_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = [0.0]
    full = threading.Event()
    original = SegmentWriter._put

    def put(self: SegmentWriter, data: bytes) -> None:
        if full.is_set():
            raise OSError(28, "No space left on device")
        original(self, data)

    monkeypatch.setattr(SegmentWriter, "_put", put)
    recorder = FlightRecorder(tmp_path, BOUNDS, writer="test", clock=lambda: clock[0], wall=lambda: clock[0])
    world = h100_world(8)
    decide_some(world, recorder, 5)
    until(lambda: recorder.shared.counts.recorded == 5)
    full.set()
    clock[0] = 10.0
    decide_some(world, recorder, 5, first=5)
    until(lambda: recorder.shared.counts.missed == 5)
    assert not recorder.shared.counts.recording
    problem = recorder.problem() or ""
    assert "No space left on device; decisions go on unrecorded; free space" in problem
    assert recorder.problem() is None, "told once"
    full.clear()
    clock[0] = 100.0
    one_by_one(world, recorder, 10, 15)
    recorder.close()
    counts, different = read(tmp_path)
    assert different == 0
    assert counts.decisions + counts.missed == 15
    assert counts.decisions >= 5


def test_a_directory_in_use_is_told_and_tried_again(tmp_path: Path):
    clock = [0.0]
    other = RecordingWriter(tmp_path, BOUNDS, code="", writer="", now=0.0)
    recorder = FlightRecorder(tmp_path, BOUNDS, writer="test", clock=lambda: clock[0], wall=lambda: clock[0])
    world = h100_world(2)
    decide_some(world, recorder, 1)
    until(lambda: recorder.shared.counts.missed == 1)
    assert "off: " in (recorder.problem() or "")
    other.close("stopped", 1.0)
    clock[0] = 100.0
    one_by_one(world, recorder, 1, 4)
    recorder.close()
    counts, different = read(tmp_path)
    assert (counts.decisions >= 2, different) == (True, 0)


def test_a_decision_that_failed_is_a_gap(tmp_path: Path):
    recorder = recorder_of(tmp_path)
    world = h100_world(2)
    decide_some(world, recorder, 2)
    recorder.decided(recorder.note(world.snapshot()), None, 5.0, 0.0)
    decide_some(world, recorder, 2, first=10)
    recorder.close()
    gaps = [each.record for each in Reader([tmp_path]) if isinstance(each.record, Gap)]
    assert [(gap.decisions, gap.reason) for gap in gaps] == [(1, "the decision failed")]
    assert read(tmp_path)[1] == 0


@pytest.mark.parametrize("at", [1, 2, 3, 4, 7, 10])
def test_decisions_are_counted_once_whichever_write_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int):
    """Some of what was written when a write or a flush failed is on the disk all the same, gaps among it."""
    clock, calls, arrives = [0.0], [0], [at % 2 == 0]
    original = SegmentWriter._put

    def put(self: SegmentWriter, data: bytes) -> None:
        calls[0] += 1
        failing = at <= calls[0] < at + 3
        if not failing or arrives[0]:
            original(self, data)
        if failing:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(SegmentWriter, "_put", put)
    recorder = FlightRecorder(tmp_path, BOUNDS, writer="test", clock=lambda: clock[0], wall=lambda: clock[0])
    world = h100_world(8)
    for number in range(30):
        clock[0] += 30.0
        one_by_one(world, recorder, number, number + 1)
    recorder.close()
    counts, different = read(tmp_path)
    assert different == 0
    assert counts.decisions + counts.missed == 30
    assert recorder.shared.counts.failures >= 1


def test_when_claims_came_free_is_read_back_from_decisions_that_saw_it_happen(tmp_path: Path):
    world, recorder = h100_world(2), recorder_of(tmp_path)
    decide_some(world, recorder, 12)
    recorder.close()
    records = [read.record for read in Reader([tmp_path]) if isinstance(read.record, Decision)]
    held = {uid for record in records for uid, claim in record.facts.claims.items() if claim is not None}
    ends = claim_ends(tmp_path, 1_000_000, held)
    assert sorted(ends.values()) == [5_000_000, 10_000_000]
    assert set(claim_ends(tmp_path, 7_000_000, held).values()) == {10_000_000}
    first = min(ends, key=lambda uid: ends[uid])
    assert claim_ends(tmp_path, 1_000_000, {first}) == {first: 5_000_000}
    # Another leader begins with a whole state: what it lacks may have ended long before.
    world.end(next(iter(world.running)))
    again = recorder_of(tmp_path)
    decide_some(world, again, 2, first=20)
    again.close()
    assert claim_ends(tmp_path, 1_000_000, held) == ends
    for path in tmp_path.glob("segment-*"):
        path.write_bytes(b"no segment")
    assert claim_ends(tmp_path, 1_000_000, held) == {}
    assert claim_ends(tmp_path / "nowhere", 1_000_000, held) == {}
