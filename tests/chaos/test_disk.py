"""What is on a disk after a fault: what was made durable, and perhaps more."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.disk import Disk, Killed
from tests.chaos.loop import Process, VirtualLoop
from tests.chaos.recording import RecordingDisk


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    (tmp_path / "kept").write_text("old")
    made = Disk(tmp_path, volatile=(tmp_path / "run",))
    made.sync()
    return made


@pytest.fixture
def process() -> Iterator[Process]:
    loop = VirtualLoop()
    yield Process("driver", loop)
    loop.close()


def write(disk: Disk, name: str, text: str, *, durable: bool) -> None:
    path = disk.root / name
    path.write_text(text)
    if durable:
        for opened in (path, disk.root):
            descriptor = os.open(opened, os.O_RDONLY)
            disk.fsynced(descriptor)
            os.close(descriptor)


def outcomes(disk: Disk, name: str, text: str, *, durable: bool) -> set[str | None]:
    """What is there after a loss of power, over many of them; None: no file."""
    found: set[str | None] = set()
    path = disk.root / name
    for seed in range(40):
        (disk.root / "kept").write_text("old")
        (disk.root / "new").unlink(missing_ok=True)
        disk.sync()
        disk.random.seed(seed)
        write(disk, name, text, durable=durable)
        disk.lose_power()
        found.add(path.read_text() if path.exists() else None)
    return found


@pytest.mark.parametrize(
    ("name", "text", "durable", "found"),
    [
        pytest.param("new", "text", True, {"text"}, id="what was synced stays"),
        pytest.param("new", "text", False, {None, "", "text"}, id="else it is lost, or empty, or there"),
        pytest.param("kept", "newer", False, {"old", "newer"}, id="an old content may come back"),
    ],
)
def test_what_is_there_after_a_loss_of_power(disk: Disk, name: str, text: str, durable: bool, found: set[str | None]):
    assert outcomes(disk, name, text, durable=durable) == found


def test_of_what_was_appended_to_a_recording_a_part_is_lost_or_zeros(tmp_path: Path):
    disk = RecordingDisk(tmp_path)
    (tmp_path / "segment").write_text("ab")
    found = set()
    for seed in range(200):
        (tmp_path / "segment").write_text("ab")
        disk.random.seed(seed)
        disk.sync()
        write(disk, "segment", "abcd", durable=False)
        disk.lose_power()
        found.add((tmp_path / "segment").read_text())
    assert found == {"ab", "abc", "abcd", "ab\0\0", "abc\0"}


def test_a_disk_that_lies_keeps_nothing_for_certain(disk: Disk):
    disk.lying = True
    assert None in outcomes(disk, "new", "text", durable=True)


def test_what_is_in_memory_is_gone(disk: Disk):
    (disk.root / "run").mkdir()
    (disk.root / "run" / "cdi").write_text("x")
    disk.lose_power()
    assert not list((disk.root / "run").iterdir())


def test_a_full_disk_takes_nothing_new_and_reads_and_removes(disk: Disk, process: Process):
    disk.full = True
    with pytest.raises(OSError, match="space") as raised:
        disk.before(process, "write", creates=True)
    assert raised.value.errno == errno.ENOSPC
    disk.before(process, "unlink", "a", creates=False)


def test_a_process_dies_at_the_call_that_was_chosen_and_does_nothing_after(disk: Disk, process: Process):
    disk.dies_in = 2
    for _ in range(2):
        disk.before(process, "write", creates=True)
    with pytest.raises(Killed):
        disk.before(process, "rename", "a", creates=False)
    assert not process.alive
    with pytest.raises(Killed):
        disk.before(process, "unlink", "a", creates=False)


def test_directories_and_sockets_do_not_come_back_as_files(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(disk.root)  # the path of a socket is short
    (disk.root / "plugins").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("s")
    disk.sync()
    (disk.root / "s").unlink()
    (disk.root / "plugins").rmdir()
    for seed in range(20):
        disk.random.seed(seed)
        disk.lose_power()
        assert not (disk.root / "s").exists()
        assert not (disk.root / "plugins").exists()


def test_a_new_file_that_got_the_inode_of_a_removed_one_is_another_file(disk: Disk):
    """The content of the one that was removed was durable; that of the new one is not, and must not be taken for it."""
    written = set()
    for seed in range(40):
        path = disk.root / "file"
        path.write_text("first")
        disk.sync()
        path.unlink()
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        disk.created(descriptor)
        os.write(descriptor, b"second")
        os.close(descriptor)
        disk._entries[str(disk.root)] = disk._listing(str(disk.root))
        disk.random.seed(seed)
        disk.lose_power()
        written.add(path.read_text())
    assert written == {"second", ""}
