"""The GPUs of a real node, through NVML.

Exists to turn NVML's answers into Inventory. A query that is not supported, not permitted or unknown to an older driver
leaves its attribute out; a GPU that cannot be identified is left out with a warning; the node goes on. MIG devices are
read with their instances and placement, and made and destroyed on demand: MIG mode is only ever switched where that
needs no reset (Hopper and later, not in a vGPU guest), never at start.
Device nodes come from the kernel's own list of capabilities, so nothing but this library is needed at run time.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead.driver.backend import (
    Backend,
    BackendError,
    DeviceGone,
    DeviceNode,
    Gpu,
    Inventory,
    MigDevice,
    MigProfile,
    NvLink,
    Recovery,
    Watched,
    Xid,
)
from fairlead.driver.locks import KeyedLocks
from fairlead.driver.nvml_calls import Calls, GpuInstance
from fairlead.driver.nvml_events import Events
from fairlead.driver.nvml_links import links
from fairlead.driver.sysfs import Kernel

log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
_BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
_ADDRESSING = {0: "None", 1: "HMM", 2: "ATS"}
_RECOVERY: dict[int, Recovery] = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain",
    4: "drain",
    5: "imex",
    6: "reset",
    7: "reboot",
}
_HOPPER = 9
# CUDA cores in a multiprocessor, by compute capability; NVML counts only cores.
_CORES = {(7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 9): 128, (9, 0): 128, (10, 0): 128, (10, 3): 128}
_LIBRARY_DIRS = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "usr/lib")


class NvmlBackend:
    """Backend over an NVML session that lasts as long as the process: opening one can take seconds."""

    def __init__(self, nv: Any, *, kernel: Kernel | None = None) -> None:
        """Raises BackendError when the library or the kernel driver is missing."""
        self._calls = Calls(nv)
        self._kernel = kernel or Kernel()
        self._locks = KeyedLocks()
        self._mutex = threading.Lock()
        self._seen: dict[str, int] = {}  # minor by UUID of every GPU that ever answered
        self._events: Events | None = None
        try:
            # With all GPUs lost or bound elsewhere there is still a node, with none to publish.
            nv.nvmlInitWithFlags(nv.NVML_INIT_FLAG_NO_GPUS)
        except nv.NVMLError as error:
            raise BackendError(
                f"NVML: {error}: is NVIDIA's driver installed and loaded on this host (does nvidia-smi work), and is "
                "--driver-root where it is installed?"
            ) from error
        self._open = True

    @classmethod
    def open(cls, *, driver_root: Path = Path("/")) -> Backend:
        """NVML from under `driver_root`. Raises BackendError."""
        import pynvml

        for directory in _LIBRARY_DIRS:
            library = driver_root / directory / "libnvidia-ml.so.1"
            if driver_root != Path("/") and library.is_file():
                # Loaded once by path, it is found by name from then on.
                with contextlib.suppress(OSError):
                    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
                    break
        return cls(pynvml)

    def close(self) -> None:
        with self._mutex:
            if self._open:
                self._open = False
                self._calls.ask("Shutdown")

    # -- discovery ---------------------------------------------------------------------------------------------------

    def inventory(self) -> Inventory:
        warnings: list[str] = []
        gpus: list[tuple[Any, Gpu]] = []
        for index in range(int(self._calls.must("DeviceGetCount"))):
            try:
                device = self._calls.must("DeviceGetHandleByIndex", index)
                gpu = self._gpu(device, warnings)
            except BackendError as error:
                warnings.append(f"GPU with NVML index {index}: {error}; it is left out")
                continue
            if gpu is not None:
                gpus.append((device, gpu))
        with self._mutex:
            self._seen |= {gpu.uuid: gpu.minor for _, gpu in gpus}
        cuda = self._calls.ask("SystemGetCudaDriverVersion")
        return Inventory(
            driver_version=_text(self._calls.ask("SystemGetDriverVersion")),
            cuda_driver_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
            gpus=tuple(sorted(links(self._calls, gpus, warnings), key=lambda gpu: gpu.minor)),
            warnings=tuple(warnings),
        )

    def _gpu(self, device: Any, warnings: list[str]) -> Gpu | None:
        """One GPU, but for its NVLink peers. A query that fails outright costs its attribute and a warning."""
        uuid = _text(self._calls.must("DeviceGetUUID", device))
        assert uuid is not None

        def ask(name: str, *arguments: Any) -> Any:
            try:
                return self._calls.ask(name, device, *arguments)
            except DeviceGone:
                raise
            except BackendError as error:
                warnings.append(f"{uuid}: {error}; what it would tell is left out")
                return None

        bus_id = _bus_id(ask("DeviceGetPciInfo"))
        minor = ask("DeviceGetMinorNumber")
        if minor is None and bus_id is not None:
            minor = self._kernel.minor(bus_id)
        if minor is None:
            warnings.append(f"{uuid}: its device minor cannot be read; it is left out")
            return None
        architecture = ask("DeviceGetArchitecture")
        capability = ask("DeviceGetCudaComputeCapability")
        cores = ask("DeviceGetNumGpuCores")
        memory = ask("DeviceGetMemoryInfo")
        mode = ask("DeviceGetMigMode")
        virtualization = ask("DeviceGetVirtualizationMode")
        try:
            profiles = self._profiles(device) if mode is not None else ()
            migs = self._mig_devices(device, uuid, int(minor), profiles, warnings) if mode and mode[0] else ()
        except DeviceGone:
            raise
        except BackendError as error:
            warnings.append(f"{uuid}: {error}; its MIG devices are left out")
            profiles, migs = (), ()
        per_multiprocessor = _CORES.get(tuple(capability)) if capability else None
        return Gpu(
            minor=int(minor),
            uuid=uuid,
            product_name=_text(ask("DeviceGetName")),
            brand=_BRANDS.get(ask("DeviceGetBrand") or 0),
            architecture=_ARCHITECTURES.get(architecture or 0),
            cuda_compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            memory_bytes=int(memory.total) if memory is not None and memory.total else None,
            multiprocessors=cores // per_multiprocessor if cores and per_multiprocessor else None,
            addressing_mode=_ADDRESSING.get(ask("DeviceGetAddressingMode")),
            pci_bus_id=bus_id,
            pcie_root=self._kernel.pcie_root(bus_id) if bus_id else None,
            numa_node=self._kernel.numa_node(bus_id) if bus_id else None,
            nvlink=self._nvlink(ask, capability),
            clique=self._clique(device, warnings),
            mig_enabled=None if mode is None else bool(mode[0]),
            mig_mutable=mode is not None and (architecture or 0) >= _HOPPER and not self._guest(virtualization),
            mig_profiles=profiles,
            mig_devices=migs,
        )

    def _nvlink(self, ask: Callable[..., Any], capability: Any) -> NvLink | None:
        """Active links; the peers at their other ends are found once all GPUs are known (nvml_links)."""
        active = 0
        for link in range(self._calls.nv.NVML_NVLINK_MAX_LINKS):
            state = ask("DeviceGetNvLinkState", link)
            if state is None and link == 0:
                return None
            active += bool(state)
        # NVML's version counts revisions of the protocol; users speak of the generation, which the architecture fixes.
        version = {6: 1, 7: 2, 8: 3, 9: 4, 10: 5}.get(capability[0]) if capability else None
        return NvLink(version=version, links=active, peers=()) if active else None

    def _clique(self, device: Any, warnings: list[str]) -> str | None:
        try:
            return self._calls.clique(device)
        except DeviceGone:
            raise
        except BackendError as error:
            warnings.append(f"fabric: {error}; nvlinkClique is left out")
            return None

    def _guest(self, virtualization: Any) -> bool:
        return bool(virtualization == self._calls.nv.NVML_GPU_VIRTUALIZATION_MODE_VGPU)

    def _vgpu_guest(self, device: Any) -> bool:
        return self._guest(self._calls.ask("DeviceGetVirtualizationMode", device))

    # -- MIG ---------------------------------------------------------------------------------------------------------

    def _profiles(self, device: Any) -> tuple[MigProfile, ...]:
        found = []
        for info in self._calls.profiles(device):
            placements = self._calls.placements(device, info.id)
            sizes = {size for _, size in placements}
            if len(sizes) != 1:
                continue  # nowhere to put it
            name = (_text(info.name) or "").lower().removeprefix("mig ")
            found.append(
                MigProfile(
                    name=name or f"{info.sliceCount}g.{_gigabytes(int(info.memorySizeMB))}gb",
                    id=int(info.id),
                    compute_slices=int(info.sliceCount),
                    memory_slices=sizes.pop(),
                    starts=tuple(start for start, _ in placements),
                    memory_bytes=int(info.memorySizeMB) * _MIB,  # NVML's MB is a MiB
                    multiprocessors=int(info.multiprocessorCount),
                    copy_engines=int(info.copyEngineCount),
                    decoders=int(info.decoderCount),
                    encoders=int(info.encoderCount),
                    jpeg_engines=int(info.jpegCount),
                    ofa_engines=int(info.ofaCount),
                )
            )
        return tuple(found)

    def _mig_devices(
        self, device: Any, uuid: str, minor: int, profiles: tuple[MigProfile, ...], warnings: list[str]
    ) -> tuple[MigDevice, ...]:
        found: dict[int, list[tuple[Any, GpuInstance]]] = {}
        for index in range(self._calls.ask("DeviceGetMaxMigDeviceCount", device) or 0):
            mig = self._calls.ask("DeviceGetMigDeviceHandleByIndex", device, index)
            if mig is None:
                continue
            gi_id = int(self._calls.must("DeviceGetGpuInstanceId", mig))
            instance = self._calls.gpu_instance(self._calls.must("DeviceGetGpuInstanceById", device, gi_id))
            found.setdefault(gi_id, []).append((mig, instance))
        devices = []
        by_id = {profile.id: profile for profile in profiles}
        for gi_id, in_instance in sorted(found.items()):
            mig, instance = in_instance[0]
            profile = by_id.get(instance.profile_id)
            if len(in_instance) > 1 or profile is None or not self._fills(mig):
                warnings.append(
                    f"gpu-{minor}: GPU instance {gi_id} is shared by {len(in_instance)} compute instances or not "
                    "filled by one; its MIG devices are left out"
                )
                continue
            devices.append(
                MigDevice(
                    uuid=_text(self._calls.must("DeviceGetUUID", mig)) or "",
                    parent_uuid=uuid,
                    parent_minor=minor,
                    profile=profile,
                    start=instance.start,
                    gi_id=gi_id,
                    ci_id=int(self._calls.must("DeviceGetComputeInstanceId", mig)),
                )
            )
        return tuple(sorted(devices, key=lambda mig: mig.start))

    def _fills(self, mig: Any) -> bool:
        attributes = self._calls.ask("DeviceGetAttributes", mig)
        return attributes is None or attributes.gpuInstanceSliceCount == attributes.computeInstanceSliceCount

    def mig_devices(self, gpu_uuid: str) -> tuple[MigDevice, ...]:
        device, minor = self._find(gpu_uuid)
        if not (self._calls.ask("DeviceGetMigMode", device) or (0,))[0]:
            return ()
        return self._mig_devices(device, gpu_uuid, minor, self._profiles(device), [])

    def create_mig(self, gpu_uuid: str, profile_id: int, start: int) -> MigDevice:
        with self._locks.hold([gpu_uuid]):
            device, minor = self._find(gpu_uuid)
            profile = next((p for p in self._profiles(device) if p.id == profile_id), None)
            if profile is None or start not in profile.starts:
                raise BackendError(f"gpu-{minor}: no MIG profile {profile_id} at slice {start}", permanent=True)
            self._switch_on(device, minor)
            instance = self._calls.create_gpu_instance(device, profile_id, start, profile.memory_slices)
            try:
                kind = self._calls.filling_profile(instance, profile.compute_slices)
                compute = self._calls.must("GpuInstanceCreateComputeInstance", instance, kind)
                info = self._calls.must("ComputeInstanceGetInfo_v2", compute)
                return MigDevice(
                    # From the compute instance's own handle: walking all MIG devices takes seconds under load.
                    uuid=_text(self._calls.must("DeviceGetUUID", info.device)) or "",
                    parent_uuid=gpu_uuid,
                    parent_minor=minor,
                    profile=profile,
                    start=start,
                    gi_id=self._calls.gpu_instance(instance).id,
                    ci_id=int(info.id),
                )
            except BackendError as error:
                error.left_behind = not self._clear(instance)
                raise

    def destroy_mig(self, gpu_uuid: str, profile_id: int, start: int) -> bool:
        with self._locks.hold([gpu_uuid]):
            device, _minor = self._find(gpu_uuid)
            infos = self._calls.profiles(device)
            there = [
                instance
                for info in infos
                if int(info.id) == profile_id
                for instance in self._calls.gpu_instances(device, profile_id, int(info.instanceCount))
                if instance.start == start
            ]
            for instance in there:
                for compute in self._calls.compute_instances(instance.handle):
                    self._calls.must("ComputeInstanceDestroy", compute)
                self._calls.must("GpuInstanceDestroy", instance.handle)
            if there:
                self._switch_off(device, infos)
            return bool(there)

    def _clear(self, instance: Any) -> bool:
        """Whether a GPU instance whose compute instance failed could be taken back."""
        try:
            for compute in self._calls.compute_instances(instance):
                self._calls.must("ComputeInstanceDestroy", compute)
            self._calls.must("GpuInstanceDestroy", instance)
        except BackendError as error:
            log.error("a GPU instance could not be taken back: %s", error)
            return False
        return True

    def _switch_on(self, device: Any, minor: int) -> None:
        mode = self._calls.ask("DeviceGetMigMode", device)
        if mode is not None and mode[0]:
            return
        architecture = self._calls.ask("DeviceGetArchitecture", device) or 0
        if mode is None or architecture < _HOPPER or self._vgpu_guest(device):
            raise BackendError(
                f"gpu-{minor}: MIG mode is off, and switching it here needs a reset of the GPU; run "
                "`nvidia-smi -mig 1` and reset it",
                permanent=True,
            )
        status = self._calls.must("DeviceSetMigMode", device, self._calls.nv.NVML_DEVICE_MIG_ENABLE)
        if status:
            raise self._calls.translated(self._calls.nv.NVMLError(status), "DeviceSetMigMode")

    def _switch_off(self, device: Any, infos: list[Any]) -> None:
        """Out of MIG mode once the last instance is gone, so that the GPU can be given whole. Failing that is no harm."""
        architecture = self._calls.ask("DeviceGetArchitecture", device) or 0
        if architecture < _HOPPER or self._vgpu_guest(device):
            return
        if any(self._calls.gpu_instances(device, info.id, int(info.instanceCount)) for info in infos):
            return
        try:
            self._calls.must("DeviceSetMigMode", device, self._calls.nv.NVML_DEVICE_MIG_DISABLE)
        except BackendError as error:
            log.warning("MIG mode stays on: %s", error)

    def _find(self, gpu_uuid: str) -> tuple[Any, int]:
        """NVML's handle and the minor of a GPU. Raises DeviceGone."""
        device = self._calls.ask("DeviceGetHandleByUUID", gpu_uuid)
        with self._mutex:
            minor = self._seen.get(gpu_uuid)
        if device is None or minor is None:
            raise DeviceGone(f"no GPU {gpu_uuid} on this node")
        return device, minor

    # -- nodes, health -----------------------------------------------------------------------------------------------

    def control_nodes(self) -> tuple[DeviceNode, ...]:
        return tuple(DeviceNode(path=path) for path in _CONTROL if self._kernel.has_device(path))

    def device_nodes(self, minor: int, instances: tuple[int, int] | None = None) -> tuple[DeviceNode, ...]:
        nodes = [DeviceNode(path=f"/dev/nvidia{minor}")]
        if instances is None:
            return tuple(nodes)
        major = self._kernel.caps_major()
        gi_id, ci_id = instances
        capabilities = [self._kernel.capability(minor, gi_id), self._kernel.capability(minor, gi_id, ci_id)]
        for capability in capabilities:
            if major is None or capability is None:
                raise BackendError(
                    f"gpu-{minor}: the kernel lists no capability for GPU instance {gi_id}, compute instance {ci_id} "
                    "under /proc/driver/nvidia/capabilities; was the MIG device destroyed?"
                )
            number, mode = capability
            # The runtime makes the node by its numbers: the host need not have it.
            path = f"/dev/nvidia-caps/nvidia-cap{number}"
            nodes.append(DeviceNode(path=path, major=major, minor=number, mode=mode))
        return tuple(nodes)

    def watch(self) -> tuple[Watched, ...]:
        with self._mutex:
            seen = sorted(self._seen)
        return tuple(self._watch(uuid) for uuid in seen)

    def _watch(self, uuid: str) -> Watched:
        try:
            device = self._calls.must("DeviceGetHandleByUUID", uuid)
            action = self._calls.recovery_action(device)
        except BackendError as error:
            lost = isinstance(error, DeviceGone) or error.permanent
            return Watched(uuid=uuid, answers=False if lost else None, message=str(error))
        return Watched(uuid=uuid, answers=True, recovery=None if action is None else _RECOVERY.get(action, "reset"))

    def xids(self) -> tuple[Xid, ...]:
        """Drained, not waited for: the caller looks often enough, and a wait would hold a thread for ever."""
        with self._mutex:
            if self._events is None:
                self._events = Events(self._calls)
            return self._events.drain(self._seen)


def _text(value: Any) -> str | None:
    """NVML's strings are str or bytes, by version of the library."""
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _bus_id(info: Any) -> str | None:
    """As sysfs names it, lower case with a domain of four digits: NVML's has eight."""
    if info is None:
        return None
    text = f"{int(info.domain):04x}:{int(info.bus):02x}:{int(info.device):02x}.0"
    return text if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0", text) else None


def _gigabytes(mebibytes: int) -> int:
    return -(-mebibytes // 1024)
