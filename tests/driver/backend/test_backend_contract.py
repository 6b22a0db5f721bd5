"""What every Backend has to do, on simulated hardware and on NVML over a stand-in for its Python module."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.driver.backend import device_names, links, profiles
from fairlead.driver.backend.interface import Backend, BackendError, DeviceGone, InUse, PlacementTaken
from fairlead.driver.backend.types import THROTTLE_REASONS, Process, RemappedRows, Telemetry, Xid
from tests.support.driver.backends import Case, nvml, simulated
from tests.support.driver.claims import claim
from tests.support.driver.node import Node


@pytest.mark.parametrize("name", profiles.known())
def test_both_backends_see_the_same_node(name: str, tmp_path: Path) -> None:
    expected = simulated(name, tmp_path).backend.inventory()
    found = nvml(name, tmp_path).backend.inventory()
    if name in {"gb200-nvl72", "hgx-b200"}:
        # Their tables leave out counts that no source shows; a library always says a number.
        expected, found = (
            dataclasses.replace(
                inventory, gpus=tuple(dataclasses.replace(gpu, mig_profiles=()) for gpu in inventory.gpus)
            )
            for inventory in (expected, found)
        )
    assert found == expected


class TestInventory:
    def test_a_lost_gpu_is_left_out_with_a_warning_and_the_rest_stays(self, case: Case) -> None:
        before = case.backend.inventory()
        case.lose(3)
        inventory = case.backend.inventory()
        assert [gpu.minor for gpu in inventory.gpus] == [0, 1, 2, 4, 5, 6, 7]
        assert inventory.warnings
        [unhealthy] = [status for status in case.backend.statuses() if not status.responds]
        assert (unhealthy.uuid, unhealthy.responds) == (before.gpus[3].uuid, False)


class TestHealth:
    def test_each_xid_is_reported_once_and_for_its_gpu(self, case: Case) -> None:
        uuids = [gpu.uuid for gpu in case.backend.inventory().gpus]
        assert case.backend.xids() == ()
        case.report(3, 79)
        case.report(5, 31)
        assert case.backend.xids() == (Xid(uuid=uuids[3], code=79), Xid(uuid=uuids[5], code=31))
        assert case.backend.xids() == ()

    def test_every_gpu_that_responds_reports_its_load(self, case: Case) -> None:
        uuids = [gpu.uuid for gpu in case.backend.inventory().gpus]
        case.lose(3)
        readings = case.backend.telemetry()
        assert [reading.uuid for reading in readings] == sorted(set(uuids) - {uuids[3]})
        assert {(r.utilization_percent, r.memory_used_bytes, r.power_w, r.temperature_c) for r in readings} == {
            (0.0, 0, 60.0, 30.0)
        }
        assert {(r.nvlink_sent_bytes, r.nvlink_received_bytes) for r in readings} == {(0, 0)}

    def test_the_load_is_each_devices_own_and_in_mig_mode_only_the_memory_is_known(
        self, make: Callable[[str], Case]
    ) -> None:
        case = make("dgx-a100")
        gpus = case.backend.inventory().gpus
        whole, cut = (
            next(gpu for gpu in gpus if bool(gpu.mig_devices) is partitioned) for partitioned in (False, True)
        )
        mig = cut.mig_devices[0]
        case.load(f"gpu-{whole.minor}", whole.uuid, 80, 7)
        case.load(device_names.mig_name(cut.minor, mig.profile, mig.start), mig.uuid, 0, 5)
        readings = {reading.uuid: reading for reading in case.backend.telemetry()}
        assert list(readings) == sorted(
            [*(gpu.uuid for gpu in gpus), *(m.uuid for gpu in gpus for m in gpu.mig_devices)]
        )
        assert (readings[whole.uuid].utilization_percent, readings[whole.uuid].memory_used_bytes) == (80, 7)
        assert readings[cut.uuid].utilization_percent is None
        found = readings[mig.uuid]
        assert found.memory_reserved_bytes is not None
        assert found.memory_free_bytes == (mig.profile.memory_bytes or 0) - 5 - found.memory_reserved_bytes
        assert dataclasses.replace(found, memory_free_bytes=None, memory_reserved_bytes=None) == Telemetry(
            uuid=mig.uuid, memory_used_bytes=5
        )

    def test_a_mig_device_that_is_made_and_destroyed_is_read_while_it_exists(self, case: Case) -> None:
        gpu = case.backend.inventory().gpus[0]
        profile = gpu.mig_profiles[0]
        made = case.backend.create_mig(gpu.uuid, profile.id, profile.starts[0])
        case.backend.inventory()
        for _ in range(2):
            assert made.uuid in {reading.uuid for reading in case.backend.telemetry()}
        case.backend.destroy_mig(gpu.uuid, profile.id, profile.starts[0])
        for _ in range(2):
            assert made.uuid not in {reading.uuid for reading in case.backend.telemetry()}
        again = case.backend.create_mig(gpu.uuid, profile.id, profile.starts[0])
        case.backend.inventory()
        assert again.uuid in {reading.uuid for reading in case.backend.telemetry()}

    def test_the_recovery_action_of_a_gpu_is_reported(self, case: Case) -> None:
        uuid = case.backend.inventory().gpus[2].uuid
        case.ask_for_reset(2)
        assert {status.uuid: status.recovery_action for status in case.backend.statuses()}[uuid] == "reset"

    def test_activity_follows_the_load_of_gpus_and_mig_devices_from_the_second_poll_on(self, case: Case) -> None:
        whole, cut = case.backend.inventory().gpus[:2]
        profile = next(each for each in cut.mig_profiles if each.name == "1g.10gb")
        migs = [case.backend.create_mig(cut.uuid, profile.id, start) for start in profile.starts[:2]]
        case.backend.inventory()
        case.load("gpu-0", whole.uuid, 80, 7)
        case.load(device_names.mig_name(cut.minor, profile, migs[1].start), migs[1].uuid, 100, 5)
        case.backend.telemetry()
        readings = {reading.uuid: reading for reading in case.backend.telemetry()}
        idle, busy = readings[migs[0].uuid], readings[migs[1].uuid]
        assert (idle.sm_active_ratio, idle.tensor_active_ratio, idle.dram_active_ratio) == (0, 0, 0)
        for reading in (busy, readings[whole.uuid]):
            assert reading.sm_active_ratio is not None
            assert reading.tensor_active_ratio is not None
            assert 0 < reading.tensor_active_ratio < reading.sm_active_ratio <= 1
        assert busy.utilization_percent is None
        assert (busy.power_w, busy.sm_clock_hz, dict(busy.throttled)) == (None, None, {})

    def test_throttling_is_told_by_reason(self, case: Case) -> None:
        gpus = case.backend.inventory().gpus
        case.throttle(2)
        readings = {reading.uuid: reading for reading in case.backend.telemetry()}
        assert readings[gpus[2].uuid].throttled == {reason: reason == "thermal_hw" for reason in THROTTLE_REASONS}
        assert readings[gpus[3].uuid].throttled == dict.fromkeys(THROTTLE_REASONS, False)

    def test_the_condition_of_memory_links_and_limit_is_each_gpus_own(self, case: Case) -> None:
        gpus = case.backend.inventory().gpus
        case.lose(3)
        case.break_memory(2)
        found = {condition.uuid: condition for condition in case.backend.conditions()}
        assert list(found) == sorted(gpu.uuid for gpu in gpus if gpu.minor != 3)
        broken, well = found[gpus[2].uuid], found[gpus[1].uuid]
        assert (broken.ecc_corrected, broken.ecc_uncorrected) == (0, 1)
        assert broken.remapped_rows == RemappedRows(corrected=0, uncorrected=1, pending=True, failed=False)
        assert (well.ecc_uncorrected, well.nvlink_active_links, well.power_limit_w) == (0, 18, 700)


class TestDeviceNodes:
    def test_a_mig_device_adds_the_capabilities_of_its_two_instances(self, make: Callable[[str], Case]) -> None:
        backend = make("dgx-a100").backend
        mig = backend.inventory().gpus[7].mig_devices[0]
        nodes = backend.device_nodes(7, (mig.gi_id, mig.ci_id))
        gi_cap = 3 + 7 * 135 + mig.gi_id * 9
        assert [node.path for node in nodes] == [
            "/dev/nvidia7",
            f"/dev/nvidia-caps/nvidia-cap{gi_cap}",
            f"/dev/nvidia-caps/nvidia-cap{gi_cap + 1}",
        ]
        assert all(node.major is not None for node in nodes[1:])

    def test_control_nodes_are_those_that_exist(self, make: Callable[[str], Case]) -> None:
        paths = [node.path for node in make("hgx-h100").backend.control_nodes()]
        assert paths == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]


class TestMig:
    def test_a_mig_device_is_created_at_its_placement_and_destroyed(self, backend: Backend) -> None:
        before = backend.inventory()
        gpu = before.gpus[2]
        made = backend.create_mig(gpu.uuid, 9, 4)
        assert (made.profile.name, made.start, made.parent_uuid, made.parent_minor) == ("3g.40gb", 4, gpu.uuid, 2)
        assert made.uuid.startswith("MIG-")
        assert backend.mig_devices(gpu.uuid) == (made,)
        now = backend.inventory().gpus[2]
        assert now.mig_enabled
        assert now.mig_devices == (made,)
        assert backend.destroy_mig(gpu.uuid, 9, 4) is True
        assert backend.inventory() == before
        assert backend.destroy_mig(gpu.uuid, 9, 4) is False

    def test_a_taken_placement_is_refused_and_leaves_nothing(self, backend: Backend) -> None:
        gpu = backend.inventory().gpus[0].uuid
        made = backend.create_mig(gpu, 19, 0)
        for profile_id, start in ((19, 0), (5, 0), (0, 0)):
            with pytest.raises(PlacementTaken) as raised:
                backend.create_mig(gpu, profile_id, start)
            assert not raised.value.left_behind
        assert backend.mig_devices(gpu) == (made,)

    @pytest.mark.parametrize(("profile_id", "start"), [(99, 0), (9, 1), (19, 7)])
    def test_what_the_gpu_has_no_place_for_is_refused_for_good(
        self, backend: Backend, profile_id: int, start: int
    ) -> None:
        with pytest.raises(BackendError) as raised:
            backend.create_mig(backend.inventory().gpus[0].uuid, profile_id, start)
        assert raised.value.permanent

    def test_ids_are_used_again_and_uuids_are_not(self, backend: Backend) -> None:
        gpu = backend.inventory().gpus[0].uuid
        first = backend.create_mig(gpu, 19, 0)
        backend.destroy_mig(gpu, 19, 0)
        second = backend.create_mig(gpu, 19, 3)
        assert first.gi_id == second.gi_id
        assert first.uuid != second.uuid

    def test_a_busy_device_is_not_destroyed(self, case: Case) -> None:
        gpu = case.backend.inventory().gpus[0].uuid
        made = case.backend.create_mig(gpu, 19, 0)
        case.keep_busy(True)
        with pytest.raises(InUse):
            case.backend.destroy_mig(gpu, 19, 0)
        assert case.backend.mig_devices(gpu) == (made,)
        case.keep_busy(False)
        assert case.backend.destroy_mig(gpu, 19, 0)

    def test_mig_mode_of_an_ampere_is_not_switched(self, make: Callable[[str], Case]) -> None:
        backend = make("dgx-a100").backend
        with pytest.raises(BackendError, match="MIG mode is off") as raised:
            backend.create_mig(backend.inventory().gpus[0].uuid, 19, 0)
        assert raised.value.permanent

    def test_mig_mode_is_switched_without_mig_devices(self, backend: Backend) -> None:
        gpu = backend.inventory().gpus[0].uuid
        assert backend.mig_mode(gpu) is False
        backend.set_mig_mode(gpu, True)
        assert backend.mig_mode(gpu) is True
        assert backend.inventory().gpus[0].mig_enabled
        backend.create_mig(gpu, 19, 0)
        with pytest.raises(InUse):
            backend.set_mig_mode(gpu, False)
        backend.destroy_mig(gpu, 19, 0)
        assert backend.mig_mode(gpu) is False
        backend.set_mig_mode(gpu, False)

    def test_mig_mode_that_takes_a_reset_is_refused_and_not_left_pending(self, make: Callable[[str], Case]) -> None:
        backend = make("dgx-a100").backend
        gpu = backend.inventory().gpus[0].uuid
        with pytest.raises(BackendError, match=r"gpu-0: switching MIG mode on takes a reset.*-mig 1") as raised:
            backend.set_mig_mode(gpu, True)
        assert raised.value.permanent
        assert backend.mig_mode(gpu) is False
        backend.set_mig_mode(gpu, False)

    def test_a_gpu_without_mig_has_no_mode(self, make: Callable[[str], Case]) -> None:
        backend = make("l40s").backend
        gpu = backend.inventory().gpus[0].uuid
        assert backend.mig_mode(gpu) is None
        with pytest.raises(BackendError, match="has no MIG"):
            backend.set_mig_mode(gpu, True)

    def test_a_lost_gpu_refuses(self, case: Case) -> None:
        gpu = case.backend.inventory().gpus[0].uuid
        case.lose(0)
        for call in (
            lambda: case.backend.create_mig(gpu, 19, 0),
            lambda: case.backend.destroy_mig(gpu, 19, 0),
            lambda: case.backend.mig_devices(gpu),
        ):
            with pytest.raises(DeviceGone):
                call()


class TestReset:
    def test_it_cures_what_waits_for_one_and_removes_mig_devices(self, make: Callable[[str], Case]) -> None:
        case = make("dgx-a100")
        backend = case.backend
        gpus = {gpu.minor: gpu for gpu in backend.inventory().gpus}
        case.ask_for_reset(7)
        case.break_memory(7)
        backend.set_compute_mode(gpus[7].uuid, "ExclusiveProcess")
        assert gpus[7].mig_devices
        backend.reset([gpus[7].uuid])
        found = backend.inventory().gpu(gpus[7].uuid)
        assert found is not None
        assert (found.mig_enabled, found.mig_devices) == (True, ())  # Ampere keeps the mode
        status = next(each for each in backend.statuses() if each.uuid == gpus[7].uuid)
        assert (status.responds, status.recovery_action) == (True, "none")
        rows = next(each for each in backend.conditions() if each.uuid == gpus[7].uuid).remapped_rows
        assert rows is not None
        assert (rows.uncorrected, rows.pending) == (1, False)
        assert backend.compute_mode(gpus[7].uuid) == "Default"
        assert [gpu.mig_devices for gpu in backend.inventory().gpus if gpu.minor != 7] == [
            gpu.mig_devices for minor, gpu in sorted(gpus.items()) if minor != 7
        ]

    def test_hopper_is_out_of_mig_mode_afterwards(self, backend: Backend) -> None:
        uuid = backend.inventory().gpus[2].uuid
        backend.set_mig_mode(uuid, True)
        backend.reset([uuid])
        assert backend.mig_mode(uuid) is False

    def test_a_gpu_with_processes_is_not_reset_and_they_are_named(self, case: Case) -> None:
        uuid = case.backend.inventory().gpus[2].uuid
        case.run_on(2)
        assert case.backend.processes(uuid) == (Process(pid=4711),)
        with pytest.raises(InUse, match="in use by another client"):
            case.backend.reset([uuid])

    def test_xids_are_reported_after_a_reset_as_before(self, case: Case) -> None:
        gpus = case.backend.inventory().gpus
        case.backend.xids()
        case.backend.reset([gpus[2].uuid])
        case.report(2, 79)
        case.backend.xids()
        case.report(3, 48)
        assert Xid(uuid=gpus[3].uuid, code=48) in case.backend.xids()

    def test_gpus_that_bridges_join_are_reset_together_or_not_at_all(self, make: Callable[[str], Case]) -> None:
        backend = make("a100-pcie-nvlink-pairs").backend
        gpus = backend.inventory().gpus
        with pytest.raises(BackendError, match="reset"):
            backend.reset([gpus[2].uuid])
        backend.reset([each.uuid for each in links.reset_together(gpus, gpus[2])])

    @pytest.mark.parametrize(
        ("profile", "minor", "together"),
        [("hgx-h100", 3, [3]), ("a100-pcie-nvlink-pairs", 3, [2, 3]), ("l40s", 1, [1]), ("dgx-a100", 7, [7])],
    )
    def test_who_is_reset_together(
        self, make: Callable[[str], Case], profile: str, minor: int, together: list[int]
    ) -> None:
        gpus = make(profile).backend.inventory().gpus
        [gpu] = [each for each in gpus if each.minor == minor]
        assert [each.minor for each in links.reset_together(gpus, gpu)] == together
        old = dataclasses.replace(gpu, cuda_compute_capability="7.0")
        if gpu.nvlink and gpu.nvlink.peers:  # before Ampere all that are connected, over switches as well
            assert len(links.reset_together(gpus, old)) == len(gpu.nvlink.peers) + 1


def test_claims_are_prepared_alike_on_both(make: Callable[[str], Case], tmp_path: Path) -> None:
    node = Node(tmp_path / "node", make("hgx-h100").backend, dynamic=True)
    driver = node.start()
    driver.prepare(claim("u1", "gpu-0", "gpu-1-mig-3g40gb-9-4", "gpu-1-mig-1g10gb-19-0"))
    driver.unprepare("u1")
    assert not node.leftovers()


def test_a_time_slice_is_set_and_a_lost_or_unknown_gpu_refuses(case: Case) -> None:
    gpus = case.backend.inventory().gpus
    case.backend.set_time_slice(gpus[1].uuid, "Long")
    case.backend.set_time_slice(gpus[1].uuid, "Default")
    case.lose(0)
    for uuid in (gpus[0].uuid, "GPU-nowhere"):
        with pytest.raises(DeviceGone):
            case.backend.set_time_slice(uuid, "Long")


def test_a_compute_mode_is_read_and_set(case: Case) -> None:
    gpus = case.backend.inventory().gpus
    assert case.backend.compute_mode(gpus[1].uuid) == "Default"
    case.backend.set_compute_mode(gpus[1].uuid, "ExclusiveProcess")
    assert [case.backend.compute_mode(gpu.uuid) for gpu in gpus[:3]] == ["Default", "ExclusiveProcess", "Default"]
    case.lose(0)
    for uuid in (gpus[0].uuid, "GPU-nowhere"):
        with pytest.raises(DeviceGone):
            case.backend.set_compute_mode(uuid, "Default")


def test_closing_twice_is_no_error(backend: Backend) -> None:
    backend.close()
    backend.close()
