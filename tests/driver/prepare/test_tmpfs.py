"""The tmpfs of a claim's shared memory: bounded, on no disk, and gone with the claim."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.common import mounts
from fairlead.driver.common.trees import remove_tree
from fairlead.driver.prepare.mps_daemons import Daemons, Limits
from fairlead.driver.prepare.mps_directory import SizeLimits
from fairlead.driver.prepare.preparer import PrepareError
from tests.support.driver.claims import claim, mps
from tests.support.driver.nesting import nest
from tests.support.driver.node import Node


def can_mount(path: Path) -> bool:
    try:
        mounts.mount_tmpfs(path, size_bytes=4096, inodes=8, mode=0o700)
    except OSError:
        return False
    return mounts.unmount_below(path) == 1


class TestTmpfs:
    @pytest.fixture
    def limited(self, node: Node, tmp_path: Path, hgx: SimulatedBackend) -> Iterator[Callable[[], Daemons]]:
        if not can_mount(tmp_path):
            pytest.skip("a tmpfs cannot be mounted here: that takes CAP_SYS_ADMIN")
        limits = SizeLimits(shm_bytes=1024 * 1024)
        node.own_daemons = Daemons(tmp_path / "mps", hgx.mps_program, size_limits=limits)
        yield lambda: Daemons(tmp_path / "mps", hgx.mps_program, size_limits=limits)
        mounts.unmount_below(tmp_path)

    def test_a_container_fills_its_own_and_no_disk(self, node: Node, limited: Callable[[], Daemons]) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0", config=[mps()]))
        shm = node.path / "mps/u1/shm"
        assert stat.S_IMODE(shm.stat().st_mode) == 0o1777
        with pytest.raises(OSError, match="No space left"):
            (shm / "fill").write_bytes(b"x" * 2 * 1024 * 1024)
        with pytest.raises(OSError, match="No space left"):
            (node.path / "mps/u1/tmp/nvidia-mps/fill").write_bytes(b"x" * 32 * 1024 * 1024)
        with pytest.raises(OSError, match="No space left"):
            nest(shm, 100_000)
        driver.unprepare("u1")
        assert not node.leftovers()
        assert mounts.mounts_below(node.path) == []

    def test_a_link_in_it_is_not_followed(self, node: Node, limited: Callable[[], Daemons]) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0", config=[mps()]))
        link = node.path / "mps/u1/tmp/nvidia-mps/log"
        link.symlink_to(node.path / "victim")
        with pytest.raises(OSError, match="symbolic link"):
            link.write_text("overwritten")
        assert not (node.path / "victim").exists()
        driver.unprepare("u1")

    def test_one_whose_record_is_lost_is_removed_at_the_start(self, node: Node, limited: Callable[[], Daemons]) -> None:
        node.daemons.start("lost", ["GPU-0"], Limits())
        node.own_daemons = limited()
        node.start()
        assert mounts.mounts_below(node.path) == []
        assert not node.leftovers()

    def test_a_mount_in_a_tree_is_not_entered(self, tmp_path: Path, limited: Callable[[], Daemons]) -> None:
        inner = tmp_path / "tree/a"
        inner.mkdir(parents=True)
        mounts.mount_tmpfs(inner, size_bytes=65536, inodes=16, mode=0o777)
        (inner / "file").write_text("kept")
        with pytest.raises(OSError, match="busy"):
            remove_tree(tmp_path / "tree")
        assert (inner / "file").read_text() == "kept"

    @pytest.mark.parametrize("seen", [False, True])
    def test_whether_the_host_sees_it_is_read_from_its_own_table(self, tmp_path: Path, seen: bool) -> None:
        device = tmp_path.stat().st_dev
        own = f"{os.major(device)}:{os.minor(device)}" if seen else "0:1"
        for process, namespace in (("1", "mnt:[1]"), ("self", "mnt:[2]")):
            (tmp_path / process / "ns").mkdir(parents=True)
            (tmp_path / process / "ns/mnt").symlink_to(namespace)
        (tmp_path / "1/mountinfo").write_text(f"36 35 {own} / /data/kubelet rw shared:1 - tmpfs tmpfs rw\n")
        assert mounts.reaches_host(tmp_path, proc=tmp_path) is seen

    def test_without_the_privilege_it_is_refused_with_the_way_out(
        self, node: Node, hgx: SimulatedBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(target: Path, **_: object) -> None:
            raise PermissionError(1, "Operation not permitted", str(target))

        monkeypatch.setattr(mounts, "mount_tmpfs", refuse)
        node.own_daemons = Daemons(node.path / "mps", hgx.mps_program, size_limits=SizeLimits(shm_bytes=1))
        driver = node.start()
        with pytest.raises(
            PrepareError, match=r"tmpfs of .* Operation not permitted\); the driver has to run privileged"
        ):
            driver.prepare(claim("u1", "gpu-0", config=[mps()]))
        assert not node.leftovers()

    def test_a_mount_that_does_not_reach_the_host_is_refused_with_the_way_out(
        self, node: Node, limited: Callable[[], Daemons], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mounts, "reaches_host", lambda target: False)
        driver = node.start()
        with pytest.raises(PrepareError, match="set mountPropagation: Bidirectional"):
            driver.prepare(claim("u1", "gpu-0", config=[mps()]))
        assert mounts.mounts_below(node.path) == []
        assert not node.leftovers()
