"""What a container left in a directory is removed and read within bounds, whatever it is: no links followed, no time without end."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.driver.common import files
from fairlead.driver.common.trees import remove_tree
from tests.support.driver.nesting import nest

MEMORY = Path("/dev/shm")


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is one."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, ignore_cleanup_errors=True) as path:
        yield Path(path)


def removed(path: Path, attempts: int = 500) -> bool:
    return any(remove_tree(path) for _ in range(attempts))


class TestTrees:
    @pytest.mark.parametrize("depth", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
    def test_any_depth_is_removed_with_few_descriptors(self, shared: Path, depth: int) -> None:
        path = shared / "deep"
        path.mkdir()
        nest(path, depth)
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert removed(path)
        assert not path.exists()
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_links_are_removed_and_not_followed(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        (outside / "inner").mkdir(parents=True)
        (outside / "file").write_text("kept")
        path = tmp_path / "tree"
        (path / "a").mkdir(parents=True)
        for where in (path, path / "a"):
            (where / "directory").symlink_to(outside, target_is_directory=True)
            (where / "up").symlink_to("..")
            (where / "zero").symlink_to("/dev/zero")
            (where / "circle").symlink_to("circle")
        os.link(outside / "file", path / "hard")
        assert removed(path)
        assert (outside / "file").read_text() == "kept"
        assert (outside / "inner").is_dir()

    def test_a_link_in_the_trees_own_place_is_removed_itself(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (tmp_path / "tree").symlink_to(outside)
        assert remove_tree(tmp_path / "tree")
        assert outside.is_dir()
        assert not (tmp_path / "tree").is_symlink()

    def test_pipes_sockets_modes_and_names_of_any_kind(self, tmp_path: Path) -> None:
        path = tmp_path / "tree"
        inner = path / "inner"
        inner.mkdir(parents=True)
        os.mkfifo(path / "pipe")
        os.mkfifo(inner / "pipe")
        for name in (b"\xff\xfe", b"new\nline", b"-rf", b" ", b"n" * 255):
            (path / os.fsdecode(name)).write_text("")
            (inner / os.fsdecode(name)).mkdir()
        (inner / "closed").mkdir()
        (inner / "closed" / "file").write_text("")
        (inner / "closed").chmod(0)
        inner.chmod(0)
        assert removed(path)
        assert not path.exists()

    def test_one_attempt_is_bounded_in_time_and_the_next_goes_on(self, tmp_path: Path) -> None:
        path = tmp_path / "tree"
        path.mkdir()
        nest(path, 300)
        ticks = iter(range(100_000))
        attempts = 0
        while not remove_tree(path, timeout_s=50, clock=lambda: float(next(ticks))):
            attempts += 1
        assert 5 <= attempts <= 100

    def test_entries_that_appear_and_move_meanwhile_are_tolerated(self, tmp_path: Path) -> None:
        path = tmp_path / "tree"
        for name in ("a", "b", "c"):
            (path / name / "inner").mkdir(parents=True)
        calls = 0

        def clock() -> float:
            nonlocal calls
            calls += 1
            if calls <= 20:
                with contextlib.suppress(OSError):
                    (path / "b").rename(path / "moved")
                with contextlib.suppress(OSError):
                    (path / f"new-{calls}" / "x").mkdir(parents=True)
                with contextlib.suppress(OSError):
                    (path / "c").rename(path / "a" / "c")
            return 0.0

        assert any(remove_tree(path, clock=clock) for _ in range(30))
        assert not path.exists()

    def test_what_cannot_be_removed_is_said_after_the_rest_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "tree"
        for name in ("a", "b/immutable", "c"):
            (path / name).mkdir(parents=True)
        (path / "b/immutable/file").write_text("")
        unlink = os.unlink

        def refuse(name: Any, **more: Any) -> None:
            if name == "file":
                raise PermissionError(1, "Operation not permitted", "file")
            unlink(name, **more)

        monkeypatch.setattr(os, "unlink", refuse)
        with pytest.raises(PermissionError):
            remove_tree(path)
        assert len(list(path.iterdir())) == 1
        monkeypatch.undo()
        assert removed(path)


class TestReading:
    @pytest.mark.parametrize("kind", ["fifo", "link", "directory", "large"])
    def test_what_is_no_small_regular_file_is_refused_and_never_waited_for(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "file"
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to("/dev/zero")
        elif kind == "directory":
            path.mkdir()
        else:
            path.write_bytes(b"x" * 101)
        with pytest.raises(OSError):
            files.read(path, bytes_max=100)
