"""Whose share a process works for: told by the files of claims in its mount namespace, and by nothing that it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.driver.backend import profiles
from fairlead.driver.backend.nvml.backend import NvmlBackend
from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.prepare.record_cache import RecordCache, SharePrograms
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord, MigRecord
from tests.support.driver.fake_nvml import FakeNvml

GIB = 2**30
OWN = """\
25 1 8:1 / / rw - ext4 /dev/sda1 rw
60 25 8:1 /kubelet/plugins/gpu.fairlead.dev /var/lib/plugin rw - ext4 /dev/sda1 rw
61 60 0:71 / /var/lib/plugin/mps/a/tmp rw - tmpfs tmpfs rw
62 60 0:72 / /var/lib/plugin/mps/b/tmp rw - tmpfs tmpfs rw
"""
METADATA = "/kubelet/plugins/gpu.fairlead.dev/metadata"


class Machine:
    """/proc of a host, the claims of its node, and NVML."""

    def __init__(self, path: Path) -> None:
        self.proc = path / "proc"
        (self.proc / "self/ns").mkdir(parents=True)
        (self.proc / "self/ns/pid").symlink_to("pid:[4026531836]")
        (self.proc / "self/mountinfo").write_text(OWN)
        self.records, plugin = RecordCache(), Path("/var/lib/plugin")
        self.nvml = FakeNvml(profiles.load("hgx-h100"), node="n1", root=path)
        self.backend = NvmlBackend(
            self.nvml,
            kernel=Kernel(sys=path / "sys", proc=path / "proc", dev=path / "dev"),
            shares=SharePrograms(
                self.records,
                lambda uid: (plugin / "metadata" / uid, plugin / "mps" / uid, plugin / "mps" / uid / "tmp"),
                proc=self.proc,
            ),
        )
        self.uuid = self.backend.inventory().gpus[0].uuid

    def hold(self, uid: str, device: str = "gpu-0", mig: MigRecord | None = None) -> None:
        share = DeviceRecord(
            request="gpu", pool="n1", device=device, gpu_uuid=self.uuid, minor=0, share_id=uid, mig=mig,
            consumed={"memory": 20 * GIB},
        )  # fmt: skip
        self.records.put(ClaimRecord(uid=uid, namespace="ml", name=uid, state="prepared", devices=(share,)))

    def run(self, pid: int, *mounts: str, memory: int | None = GIB, on: int | str = 0) -> None:
        """A process on the GPU, whose container has these mounts beside its own root."""
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / "mountinfo").write_text("\n".join(("90 1 0:50 / / rw - overlay overlay rw", *mounts)))
        self.nvml.processes.setdefault(on, []).append(pid)
        if memory is not None:
            self.nvml.process_memory[pid] = memory

    def by_claim(self, uuid: str | None = None) -> dict[str, int]:
        [read] = [each for each in self.backend.telemetry() if each.uuid == (uuid or self.uuid)]
        return dict(read.memory_by_claim)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    for uid in ("a", "b"):
        made.hold(uid)
    return made


def metadata(uid: str, device: str = "8:1") -> str:
    return f"91 90 {device} {METADATA}/{uid}/gpu.json /var/run/kubernetes.io/x.json ro - ext4 /dev/sda1 rw"


def test_memory_is_that_of_the_claim_whose_files_the_container_has(machine: Machine) -> None:
    machine.run(11, metadata("a"))
    machine.run(12, metadata("a"), memory=2 * GIB)
    machine.run(13, "91 90 0:72 /nvidia-mps /tmp/nvidia-mps rw - tmpfs tmpfs rw", memory=5 * GIB)
    machine.run(14, memory=7 * GIB)  # of the host
    assert machine.by_claim() == {"a": 3 * GIB, "b": 5 * GIB}


def test_a_path_on_another_device_is_no_file_of_a_claim(machine: Machine) -> None:
    """A container with a user namespace mounts a tmpfs of its own with the name of another claim's file."""
    machine.run(11, metadata("a"), metadata("b", device="0:99"))
    assert machine.by_claim() == {"a": GIB, "b": 0}


def test_what_nvml_does_not_tell_of_one_process_is_not_known_of_its_claim(machine: Machine) -> None:
    machine.run(11, metadata("a"), memory=None)
    machine.run(12, metadata("b"))
    assert machine.by_claim() == {"b": GIB}


def test_a_container_with_two_shares_of_one_gpu_leaves_both_unknown(machine: Machine) -> None:
    machine.run(11, metadata("a"), metadata("b"))
    assert machine.by_claim() == {}


def test_a_driver_that_does_not_see_the_hosts_processes_knows_nothing(machine: Machine) -> None:
    (machine.proc / "self/ns/pid").unlink()
    (machine.proc / "self/ns/pid").symlink_to("pid:[4026532999]")
    machine.run(11, metadata("a"))
    assert machine.by_claim() == {}


def test_a_device_without_shares_costs_no_call(machine: Machine) -> None:
    for uid in ("a", "b"):
        machine.records.remove(uid)
    machine.nvml.calls.clear()
    assert machine.by_claim() == {}
    assert not any("RunningProcesses" in name for name in machine.nvml.calls)


def test_the_programs_of_a_mig_device_are_its_own(machine: Machine) -> None:
    [gpu, *_] = machine.backend.inventory().gpus
    profile = next(each for each in gpu.mig_profiles if each.name == "3g.40gb")
    mig = machine.backend.create_mig(gpu.uuid, profile.id, 0)
    machine.backend.inventory()
    made = MigRecord(profile=profile.name, profile_id=profile.id, start=0, size=4, uuid=mig.uuid)
    machine.hold("c", "gpu-0-mig-3g40gb-9-0", made)
    machine.run(11, metadata("c"), memory=3 * GIB, on=mig.uuid)
    machine.run(12, metadata("c"), memory=9 * GIB)  # of the GPU's own list, where MIG devices' are not
    assert machine.by_claim(mig.uuid) == {"c": 3 * GIB}
