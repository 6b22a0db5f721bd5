"""Records on disk: cut in half, of another boot, of a newer version, on a full disk; and rebuilt from CDI files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.driver.common import files
from fairlead.driver.prepare.checkpoint import Checkpoint
from fairlead.driver.prepare.preparer import PrepareError
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord
from tests.support.driver.claims import claim
from tests.support.driver.node import Node

RECORD = ClaimRecord(
    uid="u1",
    namespace="ml",
    name="train",
    state="prepared",
    devices=(DeviceRecord(request="gpu", pool="n1", device="gpu-0", gpu_uuid="GPU-0", minor=0),),
)


def checkpoint(path: Path, boot_id: str = "boot-1") -> Checkpoint:
    return Checkpoint(path, boot_id=boot_id)


def test_a_record_of_an_earlier_boot_is_dropped(tmp_path: Path) -> None:
    checkpoint(tmp_path, "boot-1").write(RECORD)
    loaded = checkpoint(tmp_path, "boot-2").load()
    assert loaded.records == {}
    assert loaded.earlier_boot == ("u1",)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", [0, 1, 20, 60, 150, -2])
def test_a_truncated_file_is_kept_aside_and_reported(tmp_path: Path, keep: int) -> None:
    store = checkpoint(tmp_path)
    store.write(RECORD)
    whole = store.path("u1").read_bytes()
    store.path("u1").write_bytes(whole[:keep])
    loaded = store.load()
    assert loaded.records == {}
    [broken] = loaded.unreadable
    assert broken.uid == "u1"
    assert broken.path.read_bytes() == whole[:keep]
    assert broken.reason
    assert checkpoint(tmp_path).load().unreadable == ()  # once


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    store = checkpoint(tmp_path)
    store.write(RECORD)
    store.path("u1").write_bytes(store.path("u1").read_bytes().replace(b"gpu-0", b"gpu-1"))
    assert "sha256 does not match" in store.load().unreadable[0].reason


def test_a_field_of_a_newer_version_is_ignored(tmp_path: Path) -> None:
    class Newer(ClaimRecord, frozen=True, kw_only=True, rename="camel"):
        colour: str

    store = checkpoint(tmp_path)
    fields = {field: getattr(RECORD, field) for field in RECORD.__struct_fields__}
    store.write(Newer(**fields, colour="red"))
    assert store.load().records == {"u1": RECORD}


def test_a_second_unreadable_file_does_not_overwrite_the_first(tmp_path: Path) -> None:
    store = checkpoint(tmp_path)
    for content in (b"one", b"two"):
        store.path("u1").write_bytes(content)
        store.load()
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [b"one", b"two"]


class TestRecovery:
    def test_an_unreadable_record_is_rebuilt_from_the_cdi_file(self, node: Node) -> None:
        record = node.start().prepare(claim("u1", "gpu-0-mig-1g10gb-19-0", "gpu-1"))
        path = node.path / "claims" / "u1.json"
        path.write_bytes(path.read_bytes()[:50])
        driver = node.start()
        assert node.recovery.rebuilt == ("u1",)
        assert [broken.uid for broken in node.recovery.unreadable] == ["u1"]
        assert driver.record("u1") == record
        with pytest.raises(PrepareError, match="held by ResourceClaim ml/claim-u1"):
            driver.prepare(claim("u2", "gpu-1"))
        driver.unprepare("u1")
        assert node.leftovers() == {"claims": ["u1.json.unreadable"]}

    def test_a_broken_record_without_a_cdi_file_costs_only_its_claim(self, node: Node) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0"))
        driver.prepare(claim("u2", "gpu-1"))
        (node.path / "claims" / "u1.json").write_bytes(b"{")
        node.cdi_files.remove("u1")
        driver = node.start()
        assert [record.uid for record in driver.records()] == ["u2"]
        driver.prepare(claim("u1", "gpu-0"))

    def test_a_reboot_forgets_everything(self, node: Node) -> None:
        node.start().prepare(claim("u1", "gpu-0"))
        node.boot_id = "boot-2"
        driver = node.start()
        assert driver.records() == ()
        assert not node.leftovers()
        driver.prepare(claim("u2", "gpu-0"))

    def test_a_cdi_file_of_ours_that_cannot_be_read_is_removed_and_others_are_left(self, node: Node) -> None:
        node.start()
        node.cdi_files.path("u9").write_bytes(b"{}")
        other = node.path / "cdi" / "k8s.gpu.nvidia.com-claim_u9.yaml"
        other.write_bytes(b"{}")
        node.start()
        assert node.leftovers()["cdi"] == [other.name]


class TestFullDisk:
    @pytest.fixture
    def full(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
        def refuse(descriptor: int, content: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return lambda: monkeypatch.setattr(files, "_write_all", refuse)

    def test_prepare_fails_plainly_and_leaves_nothing(
        self, node: Node, full: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver = node.start()
        full()
        for devices in (("gpu-0",), ("gpu-0-mig-1g10gb-19-0",)):
            with pytest.raises(PrepareError, match="No space left on device"):
                driver.prepare(claim("u1", *devices))
        assert not node.leftovers()
        monkeypatch.undo()
        driver.prepare(claim("u1", "gpu-0"))

    def test_whole_gpus_are_unprepared_on_a_full_disk(self, node: Node, full: Callable[[], None]) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0"))
        full()
        driver.unprepare("u1")
        assert not node.leftovers()

    def test_the_driver_starts_all_the_same_and_knows_the_claims(self, node: Node, full: Callable[[], None]) -> None:
        node.start().prepare(claim("u1", "gpu-0"))
        (node.path / "claims" / "u1.json").write_bytes(b"{")
        full()
        driver = node.start()
        assert node.recovery.rebuilt == ("u1",)
        with pytest.raises(PrepareError, match="held by ResourceClaim ml/claim-u1"):
            driver.prepare(claim("u2", "gpu-0"))

    def test_a_mig_device_that_cannot_be_recorded_is_not_kept(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written = 0
        honest = files._write_all

        def refuse_the_second(descriptor: int, content: bytes) -> None:
            nonlocal written
            written += 1
            if written > 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            honest(descriptor, content)

        driver = node.start()
        monkeypatch.setattr(files, "_write_all", refuse_the_second)
        with pytest.raises(PrepareError, match="No space left on device"):
            driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0"))
        assert not node.leftovers()


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_an_error_of_a_write_names_the_file_and_no_temporary(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls on a descriptor raise errors without a name."""

    def failing(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(OSError, match="Input/output error") as raised:
        files.write(tmp_path / "x.json", b"new")
    assert files.describe(raised.value) == f"{tmp_path / 'x.json'}: Input/output error"
