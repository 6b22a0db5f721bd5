"""Segments that are cut, edited, reordered or of another version are refused by name; a crash loses what was not flushed, no more."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.history.recording.reader import Reader
from fairlead.history.recording.records import Decision, End, Gap, Header, RecordingError, link
from fairlead.history.recording.verify import Counts, differences
from fairlead.history.recording.writer import Bounds, RecordingWriter, segments

BOUNDS = Bounds(segment_s=10.0, age_max_s=1e12)


def decision(number: int, *, whole: bool = False) -> Decision:
    return Decision(number=number, at=float(number), digest=f"{number:032x}", whole=whole, plan={"waiting": number})


def opened(directory: Path, now: float = 0.0, bounds: Bounds = BOUNDS) -> RecordingWriter:
    return RecordingWriter(directory, bounds, code="a version", writer="a leader", now=now)


def three_segments(directory: Path) -> list[Path]:
    """Nine decisions, three in each."""
    writer = opened(directory)
    for number in range(1, 10):
        now = float(10 * (number - 1) / 2)
        writer.decision(decision(number, whole=writer.wants_whole(now)), now)
    writer.close("stopped", 50.0)
    return [path for _, path in segments(directory)]


def numbers(*paths: Path) -> list[int]:
    return [read.record.number for read in Reader(paths) if isinstance(read.record, Decision)]


def edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(gzip.compress(b"".join(change(gzip.decompress(path.read_bytes()).splitlines(keepends=True)))))


def test_what_was_written_is_read_in_order(tmp_path: Path):
    files = three_segments(tmp_path)
    assert len(files) == 3
    assert numbers(tmp_path) == list(range(1, 10))
    assert numbers(*reversed(files)) == list(range(1, 10)), "the order of arguments does not matter"
    kinds = [type(read.record) for read in Reader(files[:1])]
    assert kinds == [Header, Decision, Decision, Decision, End]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [lines[0], *lines[2:]], "its chain value is"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "its chain value is"),
        (lambda lines: [line.replace(b'"at":3', b'"at":4') for line in lines], "its chain value is"),
        (lambda lines: [line.replace(b'"version":1', b'"version":9') for line in lines], "version: 9: this fairlead reads version 1"),
        (lambda lines: [line.replace(b"fairlead-recording", b"other") for line in lines], "this is no recording"),
        (lambda lines: lines[1:], "this is no recording"),
        (lambda lines: [*lines[:2], b"nonsense\n", *lines[2:]], "not a record"),
        (lambda lines: lines[:-1], "has no end record"),
        (lambda lines: [*lines, lines[-1]], "its chain value is"),
        (lambda lines: [b"nonsense\n"], "its first line is no record"),
        (lambda lines: [], "holds no record"),
    ],
)  # fmt: skip
def test_an_edited_segment_is_named(change: Callable[[list[bytes]], list[bytes]], words: str, tmp_path: Path):
    files = three_segments(tmp_path)
    edit(files[1], change)
    with pytest.raises(RecordingError, match=words) as caught:
        numbers(*files)
    assert str(files[1]) in str(caught.value)


def test_a_segment_with_rewritten_digests_breaks_the_chain_to_the_next(tmp_path: Path):
    files = three_segments(tmp_path)

    def rewritten(lines: list[bytes]) -> list[bytes]:
        chain = json.loads(json.dumps(json.loads(lines[0])["record"]["previous"]))["chain"]
        made = []
        for line in lines:
            raw = line.rstrip(b"\n").partition(b'"record":')[2][:-1].replace(b'"waiting":5', b'"waiting":7')
            chain = link(chain, raw)
            made.append(b'{"chain":"%b","record":%b}\n' % (chain.encode(), raw))
        return made

    edit(files[1], rewritten)
    assert numbers(files[1]) == [4, 5, 6]
    with pytest.raises(RecordingError, match="goes on from chain value"):
        numbers(*files)


def test_a_missing_segment_is_named_and_the_parts_can_be_read(tmp_path: Path):
    files = three_segments(tmp_path)
    with pytest.raises(RecordingError, match="segment 2 is missing"):
        numbers(files[0], files[2])
    assert numbers(files[2]) == [7, 8, 9]


def test_zeros_in_place_of_what_was_not_kept_are_cut_wherever_they_begin(tmp_path: Path):
    """As a loss of power leaves them: they may unpack to anything, line ends included."""
    *_, last = three_segments(tmp_path)
    data = last.read_bytes()
    for cut in range(len(data.rstrip(b"\0"))):
        last.write_bytes(data[:cut] + bytes(len(data) - cut))
        writer = opened(tmp_path)
        (problem,) = writer.problems
        assert "closed behind record" in problem or "it is deleted" in problem
        writer.close("stopped", 60.0)
        found = numbers(tmp_path)
        assert found == list(range(1, 1 + len(found)))
        assert len(found) >= 6


def test_one_segment_twice_and_files_that_are_none_are_named(tmp_path: Path):
    files = three_segments(tmp_path)
    shutil.copy(files[0], tmp_path / "copy.jsonl.gz")
    for paths, words in (
        ([files[0], tmp_path / "copy.jsonl.gz"], "are both segment 1"),
        ([tmp_path / "absent"], "no such file"),
        ([tmp_path.parent / "empty"], "holds no segments"),
    ):
        (tmp_path.parent / "empty").mkdir(exist_ok=True)
        with pytest.raises(RecordingError, match=words):
            numbers(*paths)


@pytest.mark.parametrize("cut", [1, 40])
def test_the_last_segment_may_be_torn_and_any_other_not(cut: int, tmp_path: Path):
    files = three_segments(tmp_path)
    files[2].write_bytes(files[2].read_bytes()[:-cut])
    reader = Reader(files)
    read = [each.record.number for each in reader if isinstance(each.record, Decision)]
    assert read == list(range(1, len(read) + 1))
    assert len(read) >= 6
    assert str(files[2]) in reader.torn
    files[1].write_bytes(files[1].read_bytes()[:-cut])
    with pytest.raises(RecordingError, match="is cut"):
        numbers(*files)


@pytest.mark.parametrize("damage", [b"", b"\x00" * 100, b"\xff\x00\x12" * 30])
def test_the_next_writer_cuts_a_torn_tail_and_says_so(damage: bytes, tmp_path: Path):
    writer = opened(tmp_path)
    writer.decision(decision(1, whole=True), 1.0)
    writer.decision(decision(2), 2.0)
    writer.flush()
    writer.abandon()
    (path,) = (path for _, path in segments(tmp_path))
    path.write_bytes(path.read_bytes() + damage)
    again = opened(tmp_path, 3.0)
    assert "it was closed behind record 3" in again.problems[0]
    assert again.number == 2
    again.decision(decision(3, whole=True), 3.0)
    again.close("stopped", 4.0)
    assert numbers(tmp_path) == [1, 2, 3]
    assert gzip.decompress(path.read_bytes()), "gzip takes it, too"
    ends = [read.record.reason for read in Reader([tmp_path]) if isinstance(read.record, End)]
    assert ends[0].startswith("cut: ")


def test_a_last_segment_without_a_whole_record_is_told_and_the_others_are_read(tmp_path: Path):
    files = three_segments(tmp_path)
    last = tmp_path / "segment-00000004.jsonl.gz"
    last.write_bytes(files[0].read_bytes()[:40])
    reader = Reader([tmp_path])
    assert [each.record.number for each in reader if isinstance(each.record, Decision)] == list(range(1, 10))
    assert str(last) in reader.torn
    for file in files:
        file.unlink()
    assert [*(alone := Reader([tmp_path]))] == []
    assert str(last) in alone.torn
    with pytest.raises(RecordingError, match="holds no record"):
        [*Reader([last])]


def test_a_segment_that_ended_is_made_durable_by_the_writer_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The writer before may have been killed between the last record and fsync: a loss of power would cut what others follow."""
    files = three_segments(tmp_path)
    durable: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda number: durable.append(Path(f"/proc/self/fd/{number}").readlink()))
    opened(tmp_path, 60.0).abandon()
    assert files[-1] in durable


def test_a_broken_last_segment_is_kept_and_the_next_is_written_behind_it(tmp_path: Path):
    files = three_segments(tmp_path)
    edit(files[2], lambda lines: [lines[0], *lines[2:]])
    again = opened(tmp_path, 60.0)
    assert "it is kept as it is" in again.problems[0]
    again.decision(decision(10, whole=True), 60.0)
    again.close("stopped", 61.0)
    assert numbers(tmp_path / "segment-00000004.jsonl.gz") == [10]


def test_the_oldest_segments_are_deleted(tmp_path: Path):
    files = three_segments(tmp_path)
    size = files[0].stat().st_size
    opened(tmp_path, 60.0, Bounds(bytes_max=int(2.5 * size), age_max_s=1e12)).close("stopped", 60.0)
    assert [path for _, path in segments(tmp_path)] == files[1:]
    os.utime(files[1], (1000.0, 1000.0))
    os.utime(files[2], (2000.0, 2000.0))
    opened(tmp_path, 2500.0, Bounds(age_max_s=1000.0)).close("stopped", 2500.0)
    assert [path for _, path in segments(tmp_path)] == files[2:]
    assert numbers(tmp_path) == [7, 8, 9]


def test_a_decision_that_rests_on_a_missing_one_is_refused(tmp_path: Path):
    writer = opened(tmp_path)
    writer.decision(decision(1, whole=True), 1.0)
    writer.decision(decision(2), 2.0, Gap(at=2.0, decisions=3, reason="a test"))
    writer.close("stopped", 3.0)
    with pytest.raises(RecordingError, match="decision 2 rests on one that is not there"):
        list(differences(Reader([tmp_path]), Counts()))


WRITES = """
import os, sys
from pathlib import Path
from fairlead.history.recording.records import Decision
from fairlead.history.recording.writer import Bounds, RecordingWriter
writer = RecordingWriter(Path(sys.argv[1]), Bounds(segment_bytes=20_000, age_max_s=1e12), code="", writer="", now=0.0)
number = 0
while True:
    number += 1
    plan = {"noise": os.urandom(200).hex()}
    writer.decision(Decision(number=number, at=1.0, digest="", whole=writer.wants_whole(1.0), plan=plan), 1.0)
    if number % 7 == 0:
        writer.flush()
        print(number, flush=True)
"""


@pytest.mark.parametrize("after", [1, 30])
def test_a_kill_in_the_middle_of_a_write_loses_nothing_that_was_flushed(after: int, tmp_path: Path):
    process = subprocess.Popen([sys.executable, "-c", WRITES, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    flushed = 0
    for _ in range(after):
        flushed = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    rest = process.stdout.read().split("\n")[:-1]
    process.stdout.close()
    flushed = int(rest[-1]) if rest else flushed
    read = numbers(tmp_path)
    assert read == list(range(1, len(read) + 1))
    assert len(read) >= flushed
    again = opened(tmp_path, 2.0)
    assert again.number == len(read)
    again.decision(decision(again.number + 1, whole=True), 2.0)
    again.close("stopped", 3.0)
    assert numbers(tmp_path) == list(range(1, len(read) + 2))
