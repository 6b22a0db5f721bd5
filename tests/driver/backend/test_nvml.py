"""What NVML cannot tell is left out, and never costs the node; what goes wrong half-way leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from fairlead.driver.backend import profiles
from fairlead.driver.backend.factory import open_backend
from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.nvml import programs
from fairlead.driver.backend.nvml.backend import NvmlBackend
from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.backend.types import Gpu
from fairlead.driver.common.driver_root import DriverRoot
from fairlead.driver.common.threads import Threads
from fairlead.driver.publish import slices
from tests.support.driver.claims import claim
from tests.support.driver.fake_nvml import FakeNvml
from tests.support.driver.monitors import ON_DEMAND, monitor_of
from tests.support.driver.node import Node

UNSUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED


def on(fake: FakeNvml, path: Path) -> NvmlBackend:
    return NvmlBackend(fake, kernel=Kernel(sys=path / "sys", proc=path / "proc", dev=path / "dev"))


def fake_of(name: str, path: Path) -> FakeNvml:
    return FakeNvml(profiles.load(name), node="n1", root=path)


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Eight H100s."""
    return fake_of("hgx-h100", tmp_path)


@pytest.fixture
def backend(fake: FakeNvml, tmp_path: Path) -> NvmlBackend:
    return on(fake, tmp_path)


OPTIONAL = {
    "nvmlDeviceGetName": "product_name",
    "nvmlDeviceGetBrand": "brand",
    "nvmlDeviceGetArchitecture": "architecture",
    "nvmlDeviceGetCudaComputeCapability": "cuda_compute_capability",
    "nvmlDeviceGetNumGpuCores": "multiprocessors",
    "nvmlDeviceGetMemoryInfo": "memory_bytes",
    "nvmlDeviceGetAddressingMode": "addressing_mode",
    "nvmlDeviceGetPciInfo": "pci_bus_id",
    "nvmlDeviceGetMigMode": "mig_enabled",
    "nvmlDeviceGetNvLinkState": "nvlink",
}


class TestUnsupported:
    @pytest.mark.one_in(2)
    @pytest.mark.parametrize("code", [UNSUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN])
    @pytest.mark.parametrize("call", OPTIONAL)
    def test_a_query_that_fails_leaves_its_attribute_out_and_keeps_the_gpus(
        self, tmp_path: Path, call: str, code: int
    ) -> None:
        fake = fake_of("hgx-h100", tmp_path)
        fake.errors[call] = code
        inventory = on(fake, tmp_path).inventory()
        assert len(inventory.gpus) == 8
        assert {getattr(gpu, OPTIONAL[call]) for gpu in inventory.gpus} == {None}
        assert bool(inventory.warnings) == (code == pynvml.NVML_ERROR_UNKNOWN)
        assert len(slices.build(inventory).devices) == 8

    def test_all_optional_queries_at_once(self, tmp_path: Path) -> None:
        fake = fake_of("hgx-h100", tmp_path)
        fake.errors |= dict.fromkeys(
            [*OPTIONAL, "nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetGpuFabricInfoV", "nvmlSystemGetDriverVersion"],
            UNSUPPORTED,
        )
        devices = slices.build(on(fake, tmp_path).inventory()).devices
        assert [device.name for device in devices] == [f"gpu-{minor}" for minor in range(8)]
        assert set(devices[0].attributes) == {"type", "uuid", "cudaDriverVersion", "migCapable"}

    def test_a_minor_that_nvml_does_not_tell_is_read_from_the_kernel(self, tmp_path: Path) -> None:
        fake = fake_of("hgx-h100", tmp_path)
        fake.errors["nvmlDeviceGetMinorNumber"] = UNSUPPORTED
        assert [gpu.minor for gpu in on(fake, tmp_path).inventory().gpus] == list(range(8))

    def test_a_kernel_that_says_nothing_leaves_numa_and_root_out(self, tmp_path: Path) -> None:
        fake = FakeNvml(profiles.load("hgx-h100"), node="n1")
        fake.errors["nvmlDeviceGetMemoryAffinity"] = UNSUPPORTED
        backend = NvmlBackend(fake, kernel=Kernel(sys=tmp_path, proc=tmp_path, dev=tmp_path))
        gpu = backend.inventory().gpus[0]
        assert (gpu.numa_node, gpu.pcie_root, gpu.pci_bus_id) == (None, None, "0001:00:00.0")
        assert backend.control_nodes() == ()


class TestNumaNodes:
    """Where the kernel says -1 of every PCI device, as in many virtual machines."""

    @pytest.mark.parametrize(
        ("nodes", "told", "expected"),
        [(1, None, 0), (2, 1 << 0, 0), (2, 1 << 1, 1), (2, 1 << 70, 70), (2, None, None), (2, 0b11, None)],
        ids=["the only one", "NVML's first", "NVML's second", "NVML's 70th", "neither tells", "several at once"],
    )
    def test_it_is_the_only_one_or_the_one_that_nvml_names(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, told: int | None, expected: int | None
    ) -> None:
        fake = FakeNvml(profiles.load("l40s"), node="n1", root=tmp_path, numa_nodes=nodes, virtual=True)
        if told is None:
            fake.errors["nvmlDeviceGetMemoryAffinity"] = UNSUPPORTED
        else:
            words = [told >> 64 * index & (2**64 - 1) for index in range(16)]
            monkeypatch.setattr(FakeNvml, "nvmlDeviceGetMemoryAffinity", lambda *_: words)
        assert on(fake, tmp_path).inventory().gpus[0].numa_node == expected


class TestNvLink:
    def nvlinks(self, backend: Backend) -> dict[int, tuple[int, ...]]:
        return {gpu.minor: gpu.nvlink.peers for gpu in backend.inventory().gpus if gpu.nvlink}

    def test_in_a_guest_that_hides_the_remote_ends_peer_to_peer_status_decides(self, tmp_path: Path) -> None:
        fake = fake_of("hgx-h100", tmp_path)
        whole = self.nvlinks(on(fake, tmp_path))
        fake.errors["nvmlDeviceGetNvLinkRemoteDeviceType"] = UNSUPPORTED
        assert self.nvlinks(on(fake, tmp_path)) == whole

    def test_bridged_pairs_are_found_by_pci_address(self, tmp_path: Path) -> None:
        fake = fake_of("a100-pcie-nvlink-pairs", tmp_path)
        assert self.nvlinks(on(fake, tmp_path)) == {0: (1,), 1: (0,), 2: (3,), 3: (2,)}

    def test_an_all_zero_cluster_is_no_clique(self, tmp_path: Path) -> None:
        fake = fake_of("gb200-nvl72", tmp_path)
        [gpu, *_] = on(fake, tmp_path).inventory().gpus
        assert gpu.clique == "00000001-0000-0000-0000-000000000001.2"
        zero = fake_of("hgx-h100", tmp_path / "other")
        for device in zero._devices:
            object.__setattr__(device.gpu, "clique", "00000000-0000-0000-0000-000000000000.0")
        assert {gpu.clique for gpu in on(zero, tmp_path).inventory().gpus} == {None}


class TestMig:
    def first(self, backend: Backend) -> Gpu:
        return backend.inventory().gpus[0]

    def test_a_compute_instance_that_fails_takes_its_gpu_instance_with_it(
        self, fake: FakeNvml, backend: NvmlBackend
    ) -> None:
        gpu = self.first(backend).uuid
        fake.errors["nvmlGpuInstanceCreateComputeInstance"] = pynvml.NVML_ERROR_UNKNOWN
        with pytest.raises(BackendError) as raised:
            backend.create_mig(gpu, 19, 0)
        assert not raised.value.left_behind
        fake.errors.clear()
        backend.create_mig(gpu, 19, 0)

    def test_what_could_not_be_destroyed_is_reported_and_goes_with_the_retry(self, tmp_path: Path) -> None:
        fake = fake_of("hgx-h100", tmp_path / "root")
        node = Node(tmp_path, on(fake, tmp_path / "root"), dynamic=True)
        driver = node.start()
        fake.errors |= {
            "nvmlComputeInstanceGetInfo_v2": pynvml.NVML_ERROR_UNKNOWN,
            "nvmlGpuInstanceDestroy": pynvml.NVML_ERROR_UNKNOWN,
        }
        with pytest.raises(Exception, match="nvmlComputeInstanceGetInfo_v2"):
            driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0"))
        assert [record.state for record in driver.records()] == ["preparing"]
        fake.errors.clear()
        driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0"))
        driver.unprepare("u1")
        assert not node.leftovers()
        assert not fake._devices[0].instances

    def test_a_gpu_instance_without_compute_instance_is_destroyed_too(
        self, fake: FakeNvml, backend: NvmlBackend
    ) -> None:
        gpu = self.first(backend)
        fake._devices[0].mode = 1
        fake._add_gi(fake._devices[0], gpu.mig_profiles[0], 3)
        assert backend.mig_devices(gpu.uuid) == ()
        assert backend.destroy_mig(gpu.uuid, gpu.mig_profiles[0].id, 3) is True
        assert fake._devices[0].instances == []

    def test_mig_mode_goes_off_with_the_last_instance(self, fake: FakeNvml, backend: NvmlBackend) -> None:
        gpu = self.first(backend).uuid
        backend.create_mig(gpu, 19, 0)
        backend.create_mig(gpu, 19, 1)
        backend.destroy_mig(gpu, 19, 0)
        assert self.first(backend).mig_enabled is True
        backend.destroy_mig(gpu, 19, 1)
        assert self.first(backend).mig_enabled is False

    def test_a_gpu_instance_shared_by_compute_instances_is_left_out_with_a_warning(self, tmp_path: Path) -> None:
        fake = fake_of("dgx-a100", tmp_path)
        fake.split(7, 0)
        inventory = on(fake, tmp_path).inventory()
        assert [mig.start for mig in inventory.gpus[7].mig_devices] == [4, 6]
        assert any("shared by 2 compute instances" in warning for warning in inventory.warnings)

    def test_a_vgpu_guest_does_not_switch_mig_mode(self, tmp_path: Path) -> None:
        fake = fake_of("hgx-h100", tmp_path)
        fake.guests = {0}
        backend = on(fake, tmp_path)
        gpu = self.first(backend)
        assert not gpu.mig_mutable
        with pytest.raises(BackendError, match="needs a reset"):
            backend.create_mig(gpu.uuid, 19, 0)

    def test_a_capability_that_the_kernel_does_not_list_is_an_error_with_the_likely_cause(self, tmp_path: Path) -> None:
        with pytest.raises(BackendError, match="was the MIG device destroyed"):
            on(fake_of("dgx-a100", tmp_path), tmp_path).device_nodes(7, (14, 0))


class TestHealth:
    @pytest.mark.parametrize(
        ("action", "recovery"),
        [
            (pynvml.NVML_GPU_RECOVERY_ACTION_NONE, "none"),
            (pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET, "reset"),
            (pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET, "drain"),
            (pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT, "reboot"),
            (pynvml.NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN, "imex"),
            (99, "reset"),  # one that only a newer driver knows
        ],
    )
    def test_every_recovery_action_has_a_word(
        self, fake: FakeNvml, backend: NvmlBackend, action: int, recovery: str
    ) -> None:
        uuid = backend.inventory().gpus[2].uuid
        fake.recovery[2] = action
        assert {status.uuid: status.recovery_action for status in backend.statuses()}[uuid] == recovery

    def test_a_passing_error_is_not_taken_for_a_lost_gpu(self, fake: FakeNvml, backend: NvmlBackend) -> None:
        backend.inventory()
        fake.errors["nvmlDeviceGetFieldValues"] = pynvml.NVML_ERROR_UNKNOWN
        assert {status.responds for status in backend.statuses()} == {None}

    @pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])
    def test_a_gpu_without_events_is_watched_without_them(
        self, fake: FakeNvml, backend: NvmlBackend, call: str
    ) -> None:
        backend.inventory()
        fake.errors[call] = UNSUPPORTED
        assert backend.xids() == ()
        assert all(status.responds for status in backend.statuses())


class TestBoundElsewhere:
    def test_a_node_whose_gpus_are_all_with_virtual_machines_publishes_one_empty_slice(self, tmp_path: Path) -> None:
        fake = fake_of("l40s", tmp_path)
        for minor in range(8):
            fake.bind(minor)
        inventory = on(fake, tmp_path).inventory()
        assert inventory.gpus == ()
        assert len(slices.build(inventory).slices) == 1

    def test_a_gpu_that_goes_to_a_virtual_machine_is_not_lost_and_not_ours(self, tmp_path: Path) -> None:
        fake = fake_of("l40s", tmp_path)
        backend = on(fake, tmp_path)
        before = [gpu.uuid for gpu in backend.inventory().gpus]
        fake.bind(3)
        assert {status.uuid: status.responds for status in backend.statuses()} == dict.fromkeys(
            (uuid for uuid in before if uuid != before[3]), True
        )
        assert [gpu.minor for gpu in backend.inventory().gpus] == [0, 1, 2, 4, 5, 6, 7]

    def test_a_gpu_without_any_driver_is_lost(self, tmp_path: Path) -> None:
        fake = fake_of("l40s", tmp_path)
        backend = on(fake, tmp_path)
        uuid = backend.inventory().gpus[3].uuid
        fake._devices.pop(3)
        assert {status.uuid: status.responds for status in backend.statuses()}[uuid] is False


class TestStart:
    @pytest.mark.parametrize("name", ["dgx-a100", "hgx-h100"])
    async def test_polling_and_recovering_never_switch_mig_mode(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: Threads
    ) -> None:
        fake = fake_of(name, tmp_path)
        for device in fake._devices:
            device.mode = int(device.gpu.mig_enabled is not None)  # an administrator's, without instances
        switched: list[object] = []
        monkeypatch.setattr(FakeNvml, "nvmlDeviceSetMigMode", lambda *asked: switched.append(asked))
        backend = on(fake, tmp_path)
        await monitor_of(backend, threads, offer=ON_DEMAND).poll()
        Node(tmp_path / "node", backend, dynamic=True).start()
        assert switched == []

    async def test_a_vgpu_guest_offers_its_gpus_whole_with_dynamic_mig(
        self, fake: FakeNvml, backend: NvmlBackend, threads: Threads
    ) -> None:
        fake.guests = set(range(8))
        hardware = monitor_of(backend, threads, offer=ON_DEMAND)
        await hardware.poll()
        assert [device.name for device in hardware.built.devices] == [f"gpu-{minor}" for minor in range(8)]


class TestTimeSlices:
    def smi(self, path: Path, script: str) -> programs.Runner:
        binary = path / "usr/bin/nvidia-smi"
        binary.parent.mkdir(parents=True)
        binary.write_text(f"#!/bin/sh\n{script}\n")
        binary.chmod(0o755)
        return programs.smi(DriverRoot(path))

    def test_nvidia_smi_under_the_drivers_root_is_run(self, tmp_path: Path) -> None:
        said = tmp_path / "said"
        programs.set_time_slice(self.smi(tmp_path, f'echo "$@" > {said}'), "GPU-1", "Medium")
        assert said.read_text() == "compute-policy -i GPU-1 --set-timeslice 2\n"

    def test_its_output_is_in_the_error_when_it_fails(self, tmp_path: Path) -> None:
        with pytest.raises(BackendError, match="exit status 3: not supported"):
            programs.set_time_slice(self.smi(tmp_path, "echo not supported >&2; exit 3"), "GPU-1", "Long")

    def test_a_host_without_it_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(BackendError, match="time slices and resets need nvidia-smi") as raised:
            programs.set_time_slice(programs.smi(DriverRoot(tmp_path)), "GPU-1", "Long")
        assert raised.value.permanent


def test_without_the_library_the_error_says_what_to_look_at(tmp_path: Path) -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(BackendError, match=r"does nvidia-smi work.*--driver-root"):
            open_backend("nvml", node="n1", data=tmp_path)
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this machine has NVML")
