"""A stand-in for the `pynvml` module: NVML's calls, structs and exceptions over a node profile.

Exists so that the NVML backend is tested down to the module it calls, on machines without a GPU. Behaves as the library
does where callers depend on it: handles are opaque, arrays are filled by reference, a query that a GPU lacks raises
NVMLError_NotSupported, instance IDs are used again, a taken placement is "insufficient resources". Constants, struct
types and exceptions are the real module's. Not imported by the programs.
"""

from __future__ import annotations

import ctypes
import types
import uuid
from pathlib import Path
from typing import Any

import pynvml

from fairlead.driver.backend.nvml.tables import ARCHITECTURES, BRANDS, CORES
from fairlead.driver.backend.profiles.schema import NodeProfile
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import Gpu
from tests.support.driver.fakenvml_kernel import FakeKernel
from tests.support.driver.fakenvml_mig import Device, FakeMig, Mig


class FakeNvml(FakeMig):
    """`nv` for NvmlBackend. With `root`, the kernel's /sys, /proc and /dev of the node are kept there.

    `errors` makes a call fail with an NVML error code, by function's name; `lost` holds minors of GPUs off the bus.
    `recovery` is NVML's recovery action by minor; `xids` are (minor, code) to be reported; `guests` holds minors of GPUs
    that a hypervisor lends, as vGPUs.
    """

    def __init__(self, node_profile: NodeProfile, *, node: str, root: Path | None = None) -> None:
        self.errors: dict[str, int] = {}
        self.lost: set[int] = set()
        self.recovery: dict[int, int] = {}
        self.xids: list[tuple[int, int]] = []
        self.registered: set[int] = set()
        self.compute_modes: dict[int, int] = {}
        self.guests: set[int] = set()
        self.open = 0
        super().__init__(FakeKernel(root))
        inventory = SimulatedBackend(node_profile, node=node).inventory()
        self._versions = inventory.driver_version, inventory.cuda_driver_version
        self._devices = [Device(gpu=gpu, mode=int(bool(gpu.mig_enabled))) for gpu in inventory.gpus]
        for device in self._devices:
            self._kernel.add_gpu(device.gpu)
            for mig in device.gpu.mig_devices:
                self._add(device, mig.profile, mig.start, mig)

    def __getattr__(self, name: str) -> Any:
        """The real module's constants and types; a call that is not faked is one that the library lacks."""
        real = getattr(pynvml, name)
        if name.startswith("nvml") and isinstance(real, types.FunctionType):
            return lambda *_: self._fail(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return real

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            code = object.__getattribute__(self, "errors").get(name)
            if code is not None:
                return lambda *_: self._fail(code)
        return object.__getattribute__(self, name)

    def _check(self, device: Device | Mig) -> Gpu:
        if not self.open:
            self._fail(pynvml.NVML_ERROR_UNINITIALIZED)
        gpu = device.gi.device.gpu if isinstance(device, Mig) else device.gpu
        if gpu.minor in self.lost:
            self._fail(pynvml.NVML_ERROR_GPU_IS_LOST)
        return gpu

    def _or_unsupported(self, value: Any) -> Any:
        return self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED) if value is None else value

    # -- library and system ------------------------------------------------------------------------------------------

    def nvmlInitWithFlags(self, flags: int) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        if not self.open:
            self._fail(pynvml.NVML_ERROR_UNINITIALIZED)
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return str(self._or_unsupported(self._versions[0]))

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        major, minor = str(self._or_unsupported(self._versions[1])).split(".")
        return int(major) * 1000 + int(minor) * 10

    def nvmlDeviceGetCount(self) -> int:
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        # Index order is the library's own; here the reverse of the minors, so that nobody takes one for the other.
        device = self._devices[len(self._devices) - 1 - index]
        self._check(device)
        return device

    def nvmlDeviceGetHandleByUUID(self, wanted: str) -> Device:
        for device in self._devices:
            if device.gpu.uuid == wanted:
                self._check(device)
                return device
        return self._fail(pynvml.NVML_ERROR_NOT_FOUND)

    def take(self, minor: int, driver: str = "vfio-pci") -> None:
        """A GPU is bound to another kernel driver: NVML knows it no more."""
        [device] = [device for device in self._devices if device.gpu.minor == minor]
        self._devices.remove(device)
        self._kernel.bind(device.gpu, driver)

    # -- one GPU -----------------------------------------------------------------------------------------------------

    def nvmlDeviceGetUUID(self, device: Device | Mig) -> str:
        gpu = self._check(device)
        return device.uuid if isinstance(device, Mig) else gpu.uuid

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

    def nvmlDeviceGetMemoryInfo(self, device: Device) -> Any:
        info = pynvml.c_nvmlMemory_t()
        info.total = self._or_unsupported(self._check(device).memory_bytes)
        return info

    def nvmlDeviceGetAddressingMode(self, device: Device) -> int:
        return {"None": 0, "HMM": 1, "ATS": 2}[self._or_unsupported(self._check(device).addressing_mode)]

    def nvmlDeviceGetPciInfo(self, device: Device) -> Any:
        return _pci(self._or_unsupported(self._check(device).pci_bus_id))

    def nvmlDeviceGetVirtualizationMode(self, device: Device) -> int:
        guest = self._check(device).minor in self.guests
        return int(pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU if guest else pynvml.NVML_GPU_VIRTUALIZATION_MODE_NONE)

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
        self._check(device)
        return types.SimpleNamespace(gpu=0, memory=0)

    def nvmlDeviceGetPowerUsage(self, device: Device) -> int:
        self._check(device)
        return 60_000

    def nvmlDeviceGetTemperature(self, device: Device, sensor: int) -> int:
        self._check(device)
        return 30

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, device: Device, kinds: int, events: object) -> None:
        self.registered.add(self._check(device).minor)

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Any:
        while self.xids:
            minor, code = self.xids.pop(0)
            if minor in self.registered:
                device = next(device for device in self._devices if device.gpu.minor == minor)
                return types.SimpleNamespace(
                    device=device, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=code
                )
        return self._fail(pynvml.NVML_ERROR_TIMEOUT)

    # -- NVLink ------------------------------------------------------------------------------------------------------

    def nvmlDeviceGetNvLinkState(self, device: Device, link: int) -> int:
        gpu = self._check(device)
        if gpu.nvlink is None or link >= 18:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED if gpu.nvlink is None else pynvml.NVML_ERROR_INVALID_ARGUMENT)
        assert gpu.nvlink is not None
        return int(link < gpu.nvlink.links)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, device: Device, link: int) -> int:
        gpu = self._check(device)
        peers = len(gpu.nvlink.peers) if gpu.nvlink else 0
        direct = peers == 1 and len(self._devices) > 2
        return int(pynvml.NVML_NVLINK_DEVICE_TYPE_GPU if direct else pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: Device, link: int) -> Any:
        gpu = self._check(device)
        assert gpu.nvlink is not None
        peer = next(other.gpu for other in self._devices if other.gpu.minor == gpu.nvlink.peers[0])
        return _pci(peer.pci_bus_id or "0000:00:00.0")

    def nvmlDeviceGetP2PStatus(self, device: Device, other: Device, index: int) -> int:
        gpu = self._check(device)
        connected = gpu.nvlink is not None and other.gpu.minor in gpu.nvlink.peers
        return 0 if connected else 5

    def nvmlDeviceGetGpuFabricInfoV(self, device: Device, reference: Any) -> int:
        gpu, info = self._check(device), reference._obj
        if gpu.clique is None:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        assert gpu.clique is not None
        cluster, _, clique = gpu.clique.rpartition(".")
        info.clusterUuid = (ctypes.c_uint8 * 16)(*uuid.UUID(cluster).bytes)
        info.cliqueId = int(clique)
        info.state = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
        info.status = pynvml.NVML_SUCCESS
        return 0


def _pci(bus_id: str) -> Any:
    domain, bus, rest = bus_id.split(":")
    info = pynvml.nvmlPciInfo_t()
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(rest.partition(".")[0], 16)
    info.busId = f"{int(domain, 16):08X}:{bus}:{rest}".encode()
    return info
