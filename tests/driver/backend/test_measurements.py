"""NVML's measurements: what an old driver or other hardware does not tell is absent, and costs nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pynvml
import pytest

from fairlead.driver.backend import profiles
from fairlead.driver.backend.nvml.backend import NvmlBackend
from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.backend.types import THROTTLE_REASONS
from tests.support import cpu
from tests.support.driver.fake_nvml import FakeNvml
from tests.support.driver.fake_nvml.gpu import MIG_RESERVED, RESERVED

LOADS = {
    "nvmlDeviceGetUtilizationRates": {"utilization_percent"},
    "nvmlDeviceGetMemoryInfo": {"memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"},
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
    "nvmlDeviceGetFieldValues": {"nvlink_sent_bytes", "nvlink_received_bytes"},
    "nvmlDeviceGetClockInfo": {"sm_clock_hz", "memory_clock_hz"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttled"},
    "nvmlDeviceGetSupportedClocksEventReasons": {"throttled"},
    "nvmlGpmQueryDeviceSupport": {"sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"},
    "nvmlGpmSampleAlloc": {"sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"},
    "nvmlGpmSampleGet": {"sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"},
    "nvmlGpmMetricsGet": {"sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"},
}
CONDITIONS = {
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_w"},
    "nvmlDeviceGetTotalEccErrors": {"ecc_corrected", "ecc_uncorrected"},
    "nvmlDeviceGetRemappedRows": {"remapped_rows"},
    "nvmlDeviceGetNvLinkState": {"nvlink_active_links"},
}
CODES = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_UNKNOWN)


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    return FakeNvml(profiles.load("hgx-h100"), node="n1", root=tmp_path)


@pytest.fixture
def backend(fake: FakeNvml, tmp_path: Path) -> NvmlBackend:
    made = NvmlBackend(fake, kernel=Kernel(sys=tmp_path / "sys", proc=tmp_path / "proc", dev=tmp_path / "dev"))
    made.inventory()
    return made


def cut(backend: NvmlBackend, minors: range) -> None:
    """Cut these GPUs into seven MIG devices each."""
    for gpu in backend.inventory().gpus:
        profile = next(each for each in gpu.mig_profiles if each.name == "1g.10gb")
        for start in profile.starts[:7] if gpu.minor in minors else ():
            backend.create_mig(gpu.uuid, profile.id, start)
    backend.inventory()


def absent(reading: object) -> set[str]:
    assert dataclasses.is_dataclass(reading)
    found = {field.name for field in dataclasses.fields(reading) if getattr(reading, field.name) in (None, {})}
    return found - {"memory_by_claim"}  # of devices with shares alone


class TestAbsent:
    def test_a_hopper_tells_everything_from_the_second_poll_on(self, backend: NvmlBackend) -> None:
        backend.telemetry()
        assert set().union(*map(absent, (*backend.telemetry(), *backend.conditions()))) == set()

    @pytest.mark.one_in(4)
    @pytest.mark.parametrize("code", CODES)
    @pytest.mark.parametrize("call", LOADS)
    def test_a_reading_that_fails_is_absent_and_no_other_is(
        self, fake: FakeNvml, backend: NvmlBackend, call: str, code: int
    ) -> None:
        fake.errors[call] = code
        backend.telemetry()
        readings = backend.telemetry()
        assert len(readings) == 8
        for reading in readings:
            assert absent(reading) == LOADS[call]

    @pytest.mark.one_in(4)
    @pytest.mark.parametrize("code", CODES)
    @pytest.mark.parametrize("call", CONDITIONS)
    def test_a_condition_that_fails_is_absent_and_no_other_is(
        self, fake: FakeNvml, backend: NvmlBackend, call: str, code: int
    ) -> None:
        fake.errors[call] = code
        conditions = backend.conditions()
        assert len(conditions) == 8
        for condition in conditions:
            assert absent(condition) == CONDITIONS[call]

    @pytest.mark.one_in(3)
    @pytest.mark.parametrize("call", [*LOADS, *CONDITIONS, "nvmlGpmMigSampleGet", "nvmlGpmSampleFree"])
    def test_gpus_that_are_lost_during_a_poll_end_no_poll(
        self, fake: FakeNvml, backend: NvmlBackend, call: str
    ) -> None:
        cut(backend, range(1))
        backend.telemetry()
        fake.errors[call] = pynvml.NVML_ERROR_GPU_IS_LOST
        backend.telemetry()
        backend.conditions()
        fake.errors.clear()
        assert len(backend.telemetry()) == 8 + 7
        assert len(backend.conditions()) == 8

    @pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetGpuInstanceId"])
    def test_a_mig_device_keeps_what_else_is_known_of_it(self, fake: FakeNvml, backend: NvmlBackend, call: str) -> None:
        cut(backend, range(1))
        fake.errors[call] = pynvml.NVML_ERROR_NO_PERMISSION
        backend.telemetry()
        migs = [reading for reading in backend.telemetry() if reading.uuid.startswith("MIG-")]
        assert len(migs) == 7
        for mig in migs:
            assert (mig.memory_used_bytes is None) == (call == "nvmlDeviceGetMemoryInfo")
            assert (mig.sm_active_ratio is None) == (call != "nvmlDeviceGetMemoryInfo")

    def test_what_the_driver_reserves_is_not_in_use(self, fake: FakeNvml, backend: NvmlBackend) -> None:
        cut(backend, range(1))
        fake.memory_used[backend.inventory().gpus[1].uuid] = 4 * 2**30
        found = {reading.uuid: reading for reading in backend.telemetry()}
        for gpu in backend.inventory().gpus:
            reading = found[gpu.uuid]
            assert reading.memory_used_bytes == (4 * 2**30 if gpu.minor == 1 else 0)
            assert reading.memory_reserved_bytes == RESERVED
            assert gpu.memory_bytes == reading.memory_used_bytes + RESERVED + (reading.memory_free_bytes or 0)
        migs = [reading for uuid, reading in found.items() if uuid.startswith("MIG-")]
        assert {(each.memory_used_bytes, each.memory_reserved_bytes) for each in migs} == {(0, MIG_RESERVED)}

    def test_a_driver_before_510_has_it_in_what_is_used(self, fake: FakeNvml, backend: NvmlBackend) -> None:
        fake.memory_v2 = False
        [gpu, *_] = backend.inventory().gpus
        assert gpu.memory_bytes == 81559 * 2**20
        [reading, *_] = backend.telemetry()
        assert (reading.memory_used_bytes, reading.memory_reserved_bytes) == (RESERVED, None)

    def test_a_driver_before_535_calls_the_reasons_throttling(
        self, fake: FakeNvml, backend: NvmlBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for kind in ("Current", "Supported"):
            fake.errors[f"nvmlDeviceGet{kind}ClocksEventReasons"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
            monkeypatch.setattr(FakeNvml, f"nvmlDeviceGet{kind}ClocksThrottleReasons", lambda *_: 0x44, raising=False)
        assert backend.telemetry()[0].throttled == {"power_cap": True, "thermal_hw": True}

    def test_a_reason_that_the_gpu_cannot_tell_is_absent_not_false(
        self, fake: FakeNvml, backend: NvmlBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known = pynvml.nvmlClocksEventReasonAll & ~pynvml.nvmlClocksEventReasonSyncBoost
        monkeypatch.setattr(FakeNvml, "nvmlDeviceGetSupportedClocksEventReasons", lambda *_: known)
        assert backend.telemetry()[0].throttled.keys() == set(THROTTLE_REASONS) - {"sync_boost"}

    def test_links_that_are_all_down_count_zero(self, fake: FakeNvml, backend: NvmlBackend) -> None:
        assert {condition.nvlink_active_links for condition in backend.conditions()} == {18}
        for device in fake._devices:
            assert device.gpu.nvlink is not None
            device.gpu = dataclasses.replace(device.gpu, nvlink=dataclasses.replace(device.gpu.nvlink, links=0))
        assert {condition.nvlink_active_links for condition in backend.conditions()} == {0}

    def test_ecc_is_counted_over_the_gpus_life_so_that_mig_mode_has_it_too(
        self, fake: FakeNvml, backend: NvmlBackend
    ) -> None:
        cut(backend, range(8))
        fake.ecc = dict.fromkeys(range(8), (5, 1))
        assert {(each.ecc_corrected, each.ecc_uncorrected) for each in backend.conditions()} == {(5, 1)}


class TestActivity:
    def sm(self, backend: NvmlBackend, uuid: str) -> float | None:
        return {reading.uuid: reading for reading in backend.telemetry()}[uuid].sm_active_ratio

    def test_a_sample_that_fails_makes_the_next_one_the_baseline(self, fake: FakeNvml, backend: NvmlBackend) -> None:
        uuid = backend.inventory().gpus[0].uuid
        backend.telemetry()
        fake.errors["nvmlGpmSampleGet"] = pynvml.NVML_ERROR_UNKNOWN
        assert self.sm(backend, uuid) is None
        fake.errors.clear()
        assert self.sm(backend, uuid) is None
        assert self.sm(backend, uuid) == 0.0

    @pytest.mark.parametrize(
        ("percent", "ratio"), [(float("nan"), None), (float("inf"), None), (-3.0, None), (100.4, 1.0)]
    )
    def test_what_is_no_percentage_is_absent(
        self, fake: FakeNvml, backend: NvmlBackend, percent: float, ratio: float | None
    ) -> None:
        uuid = backend.inventory().gpus[0].uuid
        fake.activity[uuid] = (percent, 20.0, 10.0)
        backend.telemetry()
        reading = {each.uuid: each for each in backend.telemetry()}[uuid]
        assert reading.sm_active_ratio == (pytest.approx(ratio) if ratio is not None else None)
        assert reading.tensor_active_ratio == pytest.approx(0.2)

    def test_a_mig_device_with_anothers_instance_id_begins_anew(self, fake: FakeNvml, backend: NvmlBackend) -> None:
        gpu = backend.inventory().gpus[0]
        profile = next(each for each in gpu.mig_profiles if each.name == "1g.10gb")
        first = backend.create_mig(gpu.uuid, profile.id, 0)
        backend.inventory()
        fake.activity[first.uuid] = (100.0, 0.0, 0.0)
        backend.telemetry()
        assert self.sm(backend, first.uuid) == 1.0
        backend.destroy_mig(gpu.uuid, profile.id, 0)
        second = backend.create_mig(gpu.uuid, profile.id, 0)
        assert first.gi_id == second.gi_id
        assert first.uuid not in {reading.uuid for reading in backend.telemetry()}
        backend.inventory()
        assert self.sm(backend, second.uuid) is None
        assert self.sm(backend, second.uuid) == 0.0

    def test_samples_are_freed_with_their_device_and_at_the_end(self, fake: FakeNvml, backend: NvmlBackend) -> None:
        cut(backend, range(8))
        for _ in range(3):
            backend.telemetry()
        assert len(fake.gpm_samples) == 2 * (8 + 56)
        gpu = backend.inventory().gpus[0]
        for mig in gpu.mig_devices:
            backend.destroy_mig(gpu.uuid, mig.profile.id, mig.start)
        backend.telemetry()
        assert len(fake.gpm_samples) == 2 * (8 + 49)
        fake.lost.add(1)
        backend.telemetry()
        assert len(fake.gpm_samples) == 2 * (7 + 42)
        backend.close()
        assert fake.gpm_samples == {}


class TestCost:
    def test_a_poll_of_eight_gpus_in_seven_parts_each_is_a_bounded_number_of_calls(
        self, fake: FakeNvml, backend: NvmlBackend
    ) -> None:
        cut(backend, range(8))
        backend.telemetry()
        backend.telemetry()
        fake.calls.clear()
        with cpu.at_most(0.25):  # measured: 7 ms, the stand-in's part included; the limit is for a machine under load
            readings = backend.telemetry()
        assert len(readings) == 64
        # The stand-in asks itself whether GPM is supported.
        calls = sum(number for name, number in fake.calls.items() if name != "nvmlGpmQueryDeviceSupport")
        assert calls == 8 * 11 + 56 * 4
        fake.calls.clear()
        backend.conditions()
        assert sum(fake.calls.values()) == 8 * (5 + 19)

    def test_a_node_without_gpm_asks_once_per_gpu(self, tmp_path: Path) -> None:
        fake = FakeNvml(profiles.load("dgx-a100"), node="n1", root=tmp_path)
        backend = NvmlBackend(fake, kernel=Kernel(sys=tmp_path, proc=tmp_path, dev=tmp_path))
        backend.inventory()
        for _ in range(3):
            backend.telemetry()
        assert fake.calls["nvmlGpmQueryDeviceSupport"] == 8
        assert fake.calls["nvmlGpmSampleAlloc"] == 0
