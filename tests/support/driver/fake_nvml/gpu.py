"""NVML's queries of one GPU: what it is, how it is, how busy it is."""

from __future__ import annotations

import types
from typing import Any

import pynvml

from fairlead.driver.backend.nvml.tables import ARCHITECTURES, BRANDS, CORES
from tests.support.driver.fake_nvml.node import Device, FakeNode, MigHandle

# What an idle H200 of driver 580 answers; of a MIG device, what nvidia-smi shows of an idle one.
RESERVED, MIG_RESERVED = 644_939_776, 12 * 2**20


class GpuCalls(FakeNode):
    def nvmlDeviceGetUUID(self, device: Device | MigHandle) -> str:
        gpu = self._check(device)
        return device.uuid if isinstance(device, MigHandle) else gpu.uuid

    def nvmlDeviceGetMinorNumber(self, device: Device) -> int:
        return self._check(device).minor

    def nvmlDeviceGetName(self, device: Device) -> Any:
        return self._or_unsupported(self._check(device).product_name)

    def nvmlDeviceGetBrand(self, device: Device) -> int:
        return next((code for code, name in BRANDS.items() if name == self._check(device).brand), 0)

    def nvmlDeviceGetArchitecture(self, device: Device) -> int:
        known = (code for code, name in ARCHITECTURES.items() if name == self._check(device).architecture)
        return next(known, pynvml.NVML_DEVICE_ARCH_UNKNOWN)

    def nvmlDeviceGetCudaComputeCapability(self, device: Device) -> tuple[int, int]:
        major, minor = str(self._or_unsupported(self._check(device).cuda_compute_capability)).split(".")
        return int(major), int(minor)

    def nvmlDeviceGetNumGpuCores(self, device: Device) -> int:
        count = int(self._or_unsupported(self._check(device).multiprocessors))
        return count * CORES[self.nvmlDeviceGetCudaComputeCapability(device)]

    def nvmlDeviceGetMemoryInfo(self, device: Device | MigHandle, version: int | None = None) -> Any:
        if version is not None and not self.memory_v2:
            self._fail(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        gpu, info = self._check(device), pynvml.c_nvmlMemory_v2_t()
        if isinstance(device, MigHandle):
            if all(ci.mig is not device for ci in device.gpu_instance.compute_instances):
                self._fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
            info.total = self._or_unsupported(device.gpu_instance.profile.memory_bytes)
            info.used = self.memory_used.get(device.uuid, 0)
        else:
            info.total = self._or_unsupported(gpu.memory_bytes)
            info.used = self.memory_used.get(gpu.uuid, 0)
        info.reserved = MIG_RESERVED if isinstance(device, MigHandle) else RESERVED
        info.free = info.total - info.used - info.reserved
        if version is None:
            info.used += info.reserved  # as the library, which had no word for it
        return info

    def nvmlDeviceGetMemoryAffinity(self, device: Device, words: int, scope: int) -> Any:
        gpu = self._check(device)
        assert scope == pynvml.NVML_AFFINITY_SCOPE_NODE
        node = self._or_unsupported(gpu.numa_node)
        return [(1 << node) >> (64 * at) & (2**64 - 1) for at in range(words)]

    def nvmlDeviceGetAddressingMode(self, device: Device) -> int:
        return {"None": 0, "HMM": 1, "ATS": 2}[self._or_unsupported(self._check(device).addressing_mode)]

    def nvmlDeviceGetPciInfo(self, device: Device) -> Any:
        info = pci_info(self._or_unsupported(self._check(device).pci_bus_id))
        info.pciDeviceId = int(device.gpu.pci_device_id or "0", 16)
        return info

    def nvmlDeviceGetVirtualizationMode(self, device: Device) -> int:
        guest = self._check(device).minor in self.guests
        return int(pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU if guest else pynvml.NVML_GPU_VIRTUALIZATION_MODE_NONE)

    def nvmlDeviceGetComputeRunningProcesses(self, device: Device | MigHandle) -> list[Any]:
        where = device.uuid if isinstance(device, MigHandle) else self._check(device).minor
        return [
            types.SimpleNamespace(pid=pid, usedGpuMemory=self.process_memory.get(pid))
            for pid in self.processes.get(where, [])
        ]

    def nvmlDeviceGetComputeMode(self, device: Device) -> int:
        return self.compute_modes.get(self._check(device).minor, 0)

    def nvmlDeviceSetComputeMode(self, device: Device, mode: int) -> None:
        self.compute_modes[self._check(device).minor] = mode

    def nvmlDeviceGetFieldValues(self, device: Device, fields: list[int | tuple[int, int]]) -> Any:
        gpu = self._check(device)
        values = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for at, asked in enumerate(fields):
            field = asked[0] if isinstance(asked, tuple) else asked
            values[at].fieldId = field
            if field == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
                values[at].value.uiVal = self.recovery.get(gpu.minor, 0)
            elif gpu.nvlink is None:
                values[at].nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
        return values

    def nvmlDeviceGetUtilizationRates(self, device: Device) -> Any:
        gpu = self._check(device)
        if device.mode:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return types.SimpleNamespace(gpu=self.utilization.get(gpu.uuid, 0), memory=0)

    def nvmlDeviceGetPowerUsage(self, device: Device) -> int:
        self._check(device)
        return 60_000

    def nvmlDeviceGetTemperature(self, device: Device, sensor: int) -> int:
        self._check(device)
        return 30

    def nvmlDeviceGetClockInfo(self, device: Device, kind: int) -> int:
        self._check(device)
        return {pynvml.NVML_CLOCK_SM: 345, pynvml.NVML_CLOCK_MEM: 2619}[kind]

    def nvmlDeviceGetEnforcedPowerLimit(self, device: Device) -> int:
        self._check(device)
        return 700_000

    def nvmlDeviceGetSupportedClocksEventReasons(self, device: Device) -> int:
        self._check(device)
        return int(pynvml.nvmlClocksEventReasonAll)

    def nvmlDeviceGetCurrentClocksEventReasons(self, device: Device) -> int:
        return self.clock_events.get(self._check(device).minor, int(pynvml.nvmlClocksEventReasonGpuIdle))

    def nvmlDeviceGetTotalEccErrors(self, device: Device, kind: int, counter: int) -> int:
        gpu = self._check(device)
        if counter != pynvml.NVML_AGGREGATE_ECC and device.mode:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self.ecc.get(gpu.minor, (0, 0))[kind]

    def nvmlDeviceGetRemappedRows(self, device: Device) -> tuple[int, int, int, int]:
        gpu = self._check(device)
        if gpu.architecture in {"Volta", "Turing"}:  # they retire pages
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self.remapped.get(gpu.minor, (0, 0, 0, 0))


def pci_info(bus_id: str) -> Any:
    domain, bus, rest = bus_id.split(":")
    info = pynvml.nvmlPciInfo_t()
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(rest.partition(".")[0], 16)
    info.busId = f"{int(domain, 16):08X}:{bus}:{rest}".encode()
    return info
