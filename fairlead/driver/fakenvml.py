"""A stand-in for the `pynvml` module: NVML's calls, structs and exceptions over a node profile.

Exists so that the NVML backend is tested down to the module it calls, on machines without a GPU. Behaves as the library
does where callers depend on it: handles are opaque, arrays are filled by reference, a query that a GPU lacks raises
NVMLError_NotSupported, instance IDs are used again, a taken placement is "insufficient resources". Constants, struct
types and exceptions are the real module's. Not imported by the programs.
"""

from __future__ import annotations

import ctypes
import dataclasses
import types
import uuid
from pathlib import Path
from typing import Any

import pynvml

from fairlead.driver import geometry, profile
from fairlead.driver.backend import Gpu, MigDevice, MigProfile
from fairlead.driver.nvml import _ARCHITECTURES, _BRANDS, _CORES
from fairlead.driver.simulated import SimulatedBackend

_CI_SLICES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 5: 8, 6: 6, 7: 1}
_CAPS_MAJOR = 237
_MIB = 1024 * 1024


@dataclasses.dataclass
class _Ci:
    address: int
    id: int
    profile_index: int
    mig: _Mig


@dataclasses.dataclass
class _Gi:
    address: int
    id: int
    profile: MigProfile
    start: int
    device: _Device
    cis: list[_Ci] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class _Device:
    gpu: Gpu
    mode: int
    instances: list[_Gi] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class _Mig:
    uuid: str
    gi: _Gi
    ci_id: int


class FakeNvml:
    """`nv` for NvmlBackend. With `root`, the kernel's /sys, /proc and /dev of the node are kept there.

    `errors` makes a call fail with an NVML error code, by function's name; `lost` holds minors of GPUs off the bus.
    `recovery` is NVML's recovery action by minor; `xids` are (minor, code) to be reported.
    """

    def __init__(self, node_profile: profile.NodeProfile, *, node: str, root: Path | None = None) -> None:
        self.errors: dict[str, int] = {}
        self.lost: set[int] = set()
        self.recovery: dict[int, int] = {}
        self.xids: list[tuple[int, int]] = []
        self.registered: set[int] = set()
        self.busy = False
        self.open = 0
        self._profile = node_profile
        self._root = root
        self._address = 0x1000
        self._made = 0
        self._by_address: dict[int, _Gi | _Ci] = {}
        inventory = SimulatedBackend(node_profile, node=node).inventory()
        self._versions = inventory.driver_version, inventory.cuda_driver_version
        self._devices = [_Device(gpu=gpu, mode=int(bool(gpu.mig_enabled))) for gpu in inventory.gpus]
        for device in self._devices:
            self._kernel_gpu(device.gpu)
            for mig in device.gpu.mig_devices:
                self._add(device, mig.profile, mig.start, mig)
        if root is not None:
            _put(root / "proc/devices", f"Character devices:\n195 nvidia\n{_CAPS_MAJOR} nvidia-caps\n")
            for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
                _put(root / "dev" / name, "")

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

    @staticmethod
    def _fail(code: int) -> Any:
        raise pynvml.NVMLError(code)

    def _check(self, device: _Device | _Mig) -> Gpu:
        if not self.open:
            self._fail(pynvml.NVML_ERROR_UNINITIALIZED)
        gpu = device.gi.device.gpu if isinstance(device, _Mig) else device.gpu
        if gpu.minor in self.lost:
            self._fail(pynvml.NVML_ERROR_GPU_IS_LOST)
        return gpu

    def _or_unsupported(self, value: Any) -> Any:
        return self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED) if value is None else value

    # -- library and system ------------------------------------------------------------------------------------------

    def nvmlInitWithFlags(self, flags: int) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        if not self.open:
            self._fail(pynvml.NVML_ERROR_UNINITIALIZED)
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return str(self._or_unsupported(self._versions[0]))

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        major, minor = str(self._or_unsupported(self._versions[1])).split(".")
        return int(major) * 1000 + int(minor) * 10

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> _Device:  # noqa: N802
        # Index order is the library's own; here the reverse of the minors, so that nobody takes one for the other.
        device = self._devices[len(self._devices) - 1 - index]
        self._check(device)
        return device

    def nvmlDeviceGetHandleByUUID(self, wanted: str) -> _Device:  # noqa: N802
        for device in self._devices:
            if device.gpu.uuid == wanted:
                self._check(device)
                return device
        return self._fail(pynvml.NVML_ERROR_NOT_FOUND)  # type: ignore[no-any-return]

    # -- one GPU -----------------------------------------------------------------------------------------------------

    def nvmlDeviceGetUUID(self, device: _Device | _Mig) -> str:  # noqa: N802
        gpu = self._check(device)
        return device.uuid if isinstance(device, _Mig) else gpu.uuid

    def nvmlDeviceGetMinorNumber(self, device: _Device) -> int:  # noqa: N802
        return self._check(device).minor

    def nvmlDeviceGetName(self, device: _Device) -> Any:  # noqa: N802
        return self._or_unsupported(self._check(device).product_name)

    def nvmlDeviceGetBrand(self, device: _Device) -> int:  # noqa: N802
        return next((code for code, name in _BRANDS.items() if name == self._check(device).brand), 0)

    def nvmlDeviceGetArchitecture(self, device: _Device) -> int:  # noqa: N802
        known = (code for code, name in _ARCHITECTURES.items() if name == self._check(device).architecture)
        return next(known, pynvml.NVML_DEVICE_ARCH_UNKNOWN)

    def nvmlDeviceGetCudaComputeCapability(self, device: _Device) -> tuple[int, int]:  # noqa: N802
        major, minor = str(self._or_unsupported(self._check(device).cuda_compute_capability)).split(".")
        return int(major), int(minor)

    def nvmlDeviceGetNumGpuCores(self, device: _Device) -> int:  # noqa: N802
        count = int(self._or_unsupported(self._check(device).multiprocessors))
        return count * _CORES[self.nvmlDeviceGetCudaComputeCapability(device)]

    def nvmlDeviceGetMemoryInfo(self, device: _Device) -> Any:  # noqa: N802
        info = pynvml.c_nvmlMemory_t()
        info.total = self._or_unsupported(self._check(device).memory_bytes)
        return info

    def nvmlDeviceGetAddressingMode(self, device: _Device) -> int:  # noqa: N802
        return {"None": 0, "HMM": 1, "ATS": 2}[self._or_unsupported(self._check(device).addressing_mode)]

    def nvmlDeviceGetPciInfo(self, device: _Device) -> Any:  # noqa: N802
        return _pci(self._or_unsupported(self._check(device).pci_bus_id))

    def nvmlDeviceGetVirtualizationMode(self, device: _Device) -> int:  # noqa: N802
        self._check(device)
        return int(pynvml.NVML_GPU_VIRTUALIZATION_MODE_NONE)

    def nvmlDeviceGetFieldValues(self, device: _Device, fields: list[int]) -> Any:  # noqa: N802
        gpu = self._check(device)
        values = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for at, field in enumerate(fields):
            values[at].fieldId = field
            values[at].value.uiVal = self.recovery.get(gpu.minor, 0)
        return values

    def nvmlDeviceGetUtilizationRates(self, device: _Device) -> Any:  # noqa: N802
        self._check(device)
        return types.SimpleNamespace(gpu=0, memory=0)

    def nvmlDeviceGetPowerUsage(self, device: _Device) -> int:  # noqa: N802
        self._check(device)
        return 60_000

    def nvmlDeviceGetTemperature(self, device: _Device, sensor: int) -> int:  # noqa: N802
        self._check(device)
        return 30

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlDeviceRegisterEvents(self, device: _Device, kinds: int, events: object) -> None:  # noqa: N802
        self.registered.add(self._check(device).minor)

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Any:  # noqa: N802
        while self.xids:
            minor, code = self.xids.pop(0)
            if minor in self.registered:
                device = next(device for device in self._devices if device.gpu.minor == minor)
                return types.SimpleNamespace(
                    device=device, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=code
                )
        return self._fail(pynvml.NVML_ERROR_TIMEOUT)

    # -- NVLink ------------------------------------------------------------------------------------------------------

    def nvmlDeviceGetNvLinkState(self, device: _Device, link: int) -> int:  # noqa: N802
        gpu = self._check(device)
        if gpu.nvlink is None or link >= 18:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED if gpu.nvlink is None else pynvml.NVML_ERROR_INVALID_ARGUMENT)
        assert gpu.nvlink is not None
        return int(link < gpu.nvlink.links)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, device: _Device, link: int) -> int:  # noqa: N802
        gpu = self._check(device)
        peers = len(gpu.nvlink.peers) if gpu.nvlink else 0
        direct = peers == 1 and len(self._devices) > 2
        return int(pynvml.NVML_NVLINK_DEVICE_TYPE_GPU if direct else pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: _Device, link: int) -> Any:  # noqa: N802
        gpu = self._check(device)
        assert gpu.nvlink is not None
        peer = next(other.gpu for other in self._devices if other.gpu.minor == gpu.nvlink.peers[0])
        return _pci(peer.pci_bus_id or "0000:00:00.0")

    def nvmlDeviceGetP2PStatus(self, device: _Device, other: _Device, index: int) -> int:  # noqa: N802
        gpu = self._check(device)
        connected = gpu.nvlink is not None and other.gpu.minor in gpu.nvlink.peers
        return 0 if connected else 5

    def nvmlDeviceGetGpuFabricInfoV(self, device: _Device, reference: Any) -> int:  # noqa: N802
        gpu, info = self._check(device), reference._obj  # noqa: SLF001 - what byref points at
        if gpu.clique is None:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        assert gpu.clique is not None
        cluster, _, clique = gpu.clique.rpartition(".")
        info.clusterUuid = (ctypes.c_uint8 * 16)(*uuid.UUID(cluster).bytes)
        info.cliqueId = int(clique)
        info.state = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
        info.status = pynvml.NVML_SUCCESS
        return 0

    # -- MIG: mode, profiles, placements -------------------------------------------------------------------------------

    def nvmlDeviceGetMigMode(self, device: _Device) -> list[int]:  # noqa: N802
        if self._check(device).mig_enabled is None:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [device.mode, device.mode]

    def nvmlDeviceSetMigMode(self, device: _Device, mode: int) -> int:  # noqa: N802
        if self._check(device).architecture == "Ampere":
            return int(pynvml.NVML_ERROR_RESET_REQUIRED)
        if device.instances:
            self._fail(pynvml.NVML_ERROR_IN_USE)
        device.mode = mode
        return 0

    def nvmlDeviceGetGpuInstanceProfileInfo(self, device: _Device, index: int) -> Any:  # noqa: N802
        profiles = self._check(device).mig_profiles
        if index >= len(profiles):
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        found = profiles[index]
        info = pynvml.c_nvmlGpuInstanceProfileInfo_v2_t()
        info.id, info.sliceCount, info.instanceCount = found.id, found.compute_slices, len(found.starts)
        info.multiprocessorCount, info.copyEngineCount = found.multiprocessors or 0, found.copy_engines or 0
        info.decoderCount, info.encoderCount = found.decoders or 0, found.encoders or 0
        info.jpegCount, info.ofaCount = found.jpeg_engines or 0, found.ofa_engines or 0
        info.memorySizeMB = (found.memory_bytes or 0) // _MIB
        info.name = f"MIG {found.name}".encode()
        return info

    def nvmlDeviceGetGpuInstancePossiblePlacements(  # noqa: N802
        self, device: _Device, profile_id: int, array: Any, count: Any
    ) -> int:
        found = self._profile_of(device, profile_id)
        if array is not None:
            for at, start in enumerate(found.starts):
                array[at].start, array[at].size = start, found.memory_slices
        count._obj.value = len(found.starts)  # noqa: SLF001
        return 0

    def _profile_of(self, device: _Device, profile_id: int) -> MigProfile:
        for found in self._check(device).mig_profiles:
            if found.id == profile_id:
                return found
        return self._fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)  # type: ignore[no-any-return]

    # -- MIG: instances ------------------------------------------------------------------------------------------------

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, device: _Device, profile_id: int, placement: Any) -> Any:  # noqa: N802
        found, start = self._profile_of(device, profile_id), int(placement._obj.start)  # noqa: SLF001
        if not device.mode:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        placed = [(gi.profile, gi.start) for gi in device.instances]
        if not geometry.fits(device.gpu.mig_profiles, placed, (found, start)):
            self._fail(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
        return self._pointer(self._add_gi(device, found, start), pynvml.c_nvmlGpuInstance_t)

    def nvmlGpuInstanceCreateComputeInstance(self, handle: Any, profile_id: int) -> Any:  # noqa: N802
        gi = self._gi(handle)
        if gi.cis:
            self._fail(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
        self._made += 1
        ci = self._add_ci(
            gi, 0, profile_id, f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{gi.device.gpu.uuid}/{self._made}')}"
        )
        return self._pointer(ci, pynvml.c_nvmlComputeInstance_t)

    def nvmlGpuInstanceDestroy(self, handle: Any) -> int:  # noqa: N802
        gi = self._gi(handle)
        if gi.cis:
            self._fail(pynvml.NVML_ERROR_IN_USE)
        gi.device.instances.remove(gi)
        self._kernel_forget(gi, None)
        return 0

    def nvmlComputeInstanceDestroy(self, handle: Any) -> int:  # noqa: N802
        ci = self._by_address[_address(handle)]
        assert isinstance(ci, _Ci)
        if self.busy:
            self._fail(pynvml.NVML_ERROR_IN_USE)
        ci.mig.gi.cis.remove(ci)
        self._kernel_forget(ci.mig.gi, ci.id)
        return 0

    def nvmlDeviceGetGpuInstances(self, device: _Device, profile_id: int, array: Any, count: Any) -> int:  # noqa: N802
        self._check(device)
        found = [gi for gi in device.instances if gi.profile.id == profile_id]
        for at, gi in enumerate(found):
            array[at] = self._pointer(gi, pynvml.c_nvmlGpuInstance_t)
        count._obj.value = len(found)  # noqa: SLF001
        return 0

    def nvmlDeviceGetGpuInstanceById(self, device: _Device, gi_id: int) -> Any:  # noqa: N802
        self._check(device)
        for gi in device.instances:
            if gi.id == gi_id:
                return self._pointer(gi, pynvml.c_nvmlGpuInstance_t)
        return self._fail(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlGpuInstanceGetInfo(self, handle: Any) -> Any:  # noqa: N802
        gi = self._gi(handle)
        info = pynvml.c_nvmlGpuInstanceInfo_t()
        info.id, info.profileId = gi.id, gi.profile.id
        info.placement.start, info.placement.size = gi.start, gi.profile.memory_slices
        return info

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(self, handle: Any, index: int, engines: int) -> Any:  # noqa: N802
        gi, slices = self._gi(handle), _CI_SLICES.get(index, 99)
        if slices > gi.profile.compute_slices:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        info = pynvml.c_nvmlComputeInstanceProfileInfo_v2_t()
        info.id, info.sliceCount = index, slices
        info.instanceCount = gi.profile.compute_slices // slices
        return info

    def nvmlGpuInstanceGetComputeInstances(self, handle: Any, profile_id: int, array: Any, count: Any) -> int:  # noqa: N802
        found = [ci for ci in self._gi(handle).cis if ci.profile_index == profile_id]
        for at, ci in enumerate(found):
            array[at] = self._pointer(ci, pynvml.c_nvmlComputeInstance_t)
        count._obj.value = len(found)  # noqa: SLF001
        return 0

    def nvmlComputeInstanceGetInfo_v2(self, handle: Any) -> Any:  # noqa: N802
        ci = self._by_address[_address(handle)]
        assert isinstance(ci, _Ci)
        return types.SimpleNamespace(device=ci.mig, id=ci.id, profileId=ci.profile_index)

    # -- MIG devices ---------------------------------------------------------------------------------------------------

    def nvmlDeviceGetMaxMigDeviceCount(self, device: _Device) -> int:  # noqa: N802
        return 7 if self._check(device).mig_profiles else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: _Device, index: int) -> _Mig:  # noqa: N802
        self._check(device)
        migs = [ci.mig for gi in sorted(device.instances, key=lambda gi: gi.id) for ci in gi.cis]
        if index >= len(migs):
            self._fail(pynvml.NVML_ERROR_NOT_FOUND)
        return migs[index]

    def nvmlDeviceGetGpuInstanceId(self, mig: _Mig) -> int:  # noqa: N802
        self._check(mig)
        return mig.gi.id

    def nvmlDeviceGetComputeInstanceId(self, mig: _Mig) -> int:  # noqa: N802
        self._check(mig)
        return mig.ci_id

    def nvmlDeviceGetAttributes(self, mig: _Mig) -> Any:  # noqa: N802
        self._check(mig)
        info = pynvml.c_nvmlDeviceAttributes()
        info.gpuInstanceSliceCount = mig.gi.profile.compute_slices
        ci = next(ci for ci in mig.gi.cis if ci.id == mig.ci_id)
        info.computeInstanceSliceCount = _CI_SLICES[ci.profile_index]
        return info

    # -- inside --------------------------------------------------------------------------------------------------------

    def split(self, minor: int, start: int) -> None:
        """An administrator puts a second compute instance into a GPU instance."""
        [gi] = [
            gi for device in self._devices for gi in device.instances if (device.gpu.minor, gi.start) == (minor, start)
        ]
        self._add_ci(gi, len(gi.cis), 0, "MIG-second")

    def _add(self, device: _Device, found: MigProfile, start: int, mig: MigDevice) -> None:
        gi = self._add_gi(device, found, start)
        gi.id = mig.gi_id
        index = next(index for index, slices in _CI_SLICES.items() if slices == found.compute_slices)
        self._add_ci(gi, mig.ci_id, index, mig.uuid)
        self._kernel_access(gi, None)

    def _add_gi(self, device: _Device, found: MigProfile, start: int) -> _Gi:
        taken = {gi.id for gi in device.instances}
        gi = _Gi(
            address=self._next(),
            id=next(number for number in range(1, 16) if number not in taken),
            profile=found,
            start=start,
            device=device,
        )
        self._by_address[gi.address] = gi
        device.instances.append(gi)
        self._kernel_access(gi, None)
        return gi

    def _add_ci(self, gi: _Gi, ci_id: int, index: int, mig_uuid: str) -> _Ci:
        ci = _Ci(address=self._next(), id=ci_id, profile_index=index, mig=_Mig(uuid=mig_uuid, gi=gi, ci_id=ci_id))
        self._by_address[ci.address] = ci
        gi.cis.append(ci)
        self._kernel_access(gi, ci_id)
        return ci

    def _next(self) -> int:
        self._address += 0x100
        return self._address

    def _gi(self, handle: Any) -> _Gi:
        gi = self._by_address[_address(handle)]
        assert isinstance(gi, _Gi)
        self._check(gi.device)
        return gi

    @staticmethod
    def _pointer(of: _Gi | _Ci, kind: Any) -> Any:
        return ctypes.cast(ctypes.c_void_p(of.address), kind)

    # -- the kernel ----------------------------------------------------------------------------------------------------

    def _kernel_gpu(self, gpu: Gpu) -> None:
        if self._root is None or gpu.pci_bus_id is None:
            return
        device = self._root / "sys/devices" / (gpu.pcie_root or "pci0000:00") / "0000:00:01.0" / gpu.pci_bus_id
        _put(device / "numa_node", f"{-1 if gpu.numa_node is None else gpu.numa_node}\n")
        link = self._root / "sys/bus/pci/devices" / gpu.pci_bus_id
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(device)
        _put(
            self._root / "proc/driver/nvidia/gpus" / gpu.pci_bus_id / "information",
            f"Model: \t\t {gpu.product_name}\nDevice Minor: \t {gpu.minor}\n",
        )

    def _access(self, gi: _Gi, ci_id: int | None) -> Path | None:
        if self._root is None:
            return None
        path = self._root / f"proc/driver/nvidia/capabilities/gpu{gi.device.gpu.minor}/mig/gi{gi.id}"
        return (path if ci_id is None else path / f"ci{ci_id}") / "access"

    def _kernel_access(self, gi: _Gi, ci_id: int | None) -> None:
        if (path := self._access(gi, ci_id)) is not None:
            minor = 3 + gi.device.gpu.minor * 135 + gi.id * 9 + (0 if ci_id is None else 1 + ci_id)
            _put(path, f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")

    def _kernel_forget(self, gi: _Gi, ci_id: int | None) -> None:
        if (path := self._access(gi, ci_id)) is not None:
            path.unlink(missing_ok=True)


def _address(handle: Any) -> int:
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def _pci(bus_id: str) -> Any:
    domain, bus, rest = bus_id.split(":")
    info = pynvml.nvmlPciInfo_t()
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(rest.partition(".")[0], 16)
    info.busId = f"{int(domain, 16):08X}:{bus}:{rest}".encode()
    return info


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
