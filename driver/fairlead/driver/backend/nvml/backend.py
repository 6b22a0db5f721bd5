"""The GPUs of a real node, through NVML.

Exists to turn NVML's answers into Inventory. A query that is not supported, not permitted or unknown to an older driver
leaves its attribute out; a GPU that cannot be identified is left out with a warning; the node goes on.
Device nodes come from the kernel's own list of capabilities, so nothing but this library is needed at run time.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead.driver.backend.nvml import mps_programs, smi, tables
from fairlead.driver.backend.nvml.calls import Calls, text
from fairlead.driver.backend.nvml.events import Events
from fairlead.driver.backend.nvml.mig import NvmlMig
from fairlead.driver.backend.nvml.nvlink import links
from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.backend.types import (
    Backend,
    BackendError,
    ComputeMode,
    DeviceGone,
    DeviceNode,
    Gpu,
    Inventory,
    MigDevice,
    MpsProgram,
    NvLink,
    Telemetry,
    TimeSlice,
    Watched,
    Xid,
)
from fairlead.driver.common.driver_root import LIBRARY_DIRS, DriverRoot
from fairlead.driver.common.locks import KeyedLocks

_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


class NvmlBackend:
    """Backend over an NVML session that lasts as long as the process: opening one can take seconds."""

    def __init__(
        self,
        nv: Any,
        *,
        kernel: Kernel | None = None,
        smi_runner: smi.Runner | None = None,
        mps: Callable[[], MpsProgram] | None = None,
    ) -> None:
        """Raises BackendError when the library or the kernel driver is missing."""
        self._calls = Calls(nv)
        self._mig = NvmlMig(self._calls)
        self._kernel = kernel or Kernel()
        self._smi = smi_runner or smi.runner(DriverRoot(Path("/")))
        self._mps = mps or (lambda: mps_programs.locate(DriverRoot(Path("/"))))
        self._locks = KeyedLocks()
        self._mutex = threading.Lock()
        # Minor and bus ID by UUID of every GPU that ever answered, and was not bound to another driver since.
        self._seen: dict[str, tuple[int, str | None]] = {}
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

        for directory in (*LIBRARY_DIRS, "usr/lib"):
            library = driver_root / directory / "libnvidia-ml.so.1"
            if driver_root != Path("/") and library.is_file():
                # Loaded once by path, it is found by name from then on.
                with contextlib.suppress(OSError):
                    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
                    break
        root = DriverRoot(driver_root.absolute())
        return cls(pynvml, smi_runner=smi.runner(root), mps=lambda: mps_programs.locate(root))

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
            self._seen |= {gpu.uuid: (gpu.minor, gpu.pci_bus_id) for _, gpu in gpus}
        cuda = self._calls.ask("SystemGetCudaDriverVersion")
        return Inventory(
            driver_version=text(self._calls.ask("SystemGetDriverVersion")),
            cuda_driver_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
            gpus=tuple(sorted(links(self._calls, gpus, warnings), key=lambda gpu: gpu.minor)),
            warnings=tuple(warnings),
        )

    def _gpu(self, device: Any, warnings: list[str]) -> Gpu | None:
        """One GPU, but for its NVLink peers. A query that fails outright costs its attribute and a warning."""
        uuid = text(self._calls.must("DeviceGetUUID", device))
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
        try:
            profiles = self._mig.profiles(device) if mode is not None else ()
            migs = self._mig.devices(device, uuid, int(minor), warnings)
        except DeviceGone:
            raise
        except BackendError as error:
            warnings.append(f"{uuid}: {error}; its MIG devices are left out")
            profiles, migs = (), ()
        per_multiprocessor = tables.CORES.get(tuple(capability)) if capability else None
        return Gpu(
            minor=int(minor),
            uuid=uuid,
            product_name=text(ask("DeviceGetName")),
            brand=tables.BRANDS.get(ask("DeviceGetBrand") or 0),
            architecture=tables.ARCHITECTURES.get(architecture or 0),
            cuda_compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            memory_bytes=int(memory.total) if memory is not None and memory.total else None,
            multiprocessors=cores // per_multiprocessor if cores and per_multiprocessor else None,
            addressing_mode=tables.ADDRESSING.get(ask("DeviceGetAddressingMode")),
            pci_bus_id=bus_id,
            pcie_root=self._kernel.pcie_root(bus_id) if bus_id else None,
            numa_node=self._kernel.numa_node(bus_id) if bus_id else None,
            nvlink=self._nvlink(ask, capability),
            clique=self._clique(device, warnings),
            mig_enabled=None if mode is None else bool(mode[0]),
            mig_mutable=mode is not None and self._mig.mutable(device),
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

    # -- MIG ---------------------------------------------------------------------------------------------------------

    def mig_devices(self, gpu_uuid: str) -> tuple[MigDevice, ...]:
        device, minor = self._find(gpu_uuid)
        return self._mig.devices(device, gpu_uuid, minor, [])

    def create_mig(self, gpu_uuid: str, profile_id: int, start: int) -> MigDevice:
        with self._locks.hold([gpu_uuid]):
            device, minor = self._find(gpu_uuid)
            return self._mig.create(device, gpu_uuid, minor, profile_id, start)

    def destroy_mig(self, gpu_uuid: str, profile_id: int, start: int) -> bool:
        with self._locks.hold([gpu_uuid]):
            device, _minor = self._find(gpu_uuid)
            return self._mig.destroy(device, profile_id, start)

    def set_time_slice(self, gpu_uuid: str, interval: TimeSlice) -> None:
        self._find(gpu_uuid)
        smi.set_time_slice(self._smi, gpu_uuid, interval)

    def compute_mode(self, gpu_uuid: str) -> ComputeMode | None:
        device, _minor = self._find(gpu_uuid)
        mode = self._calls.ask("DeviceGetComputeMode", device)
        return None if mode is None else tables.COMPUTE_MODES.get(int(mode))

    def set_compute_mode(self, gpu_uuid: str, mode: ComputeMode) -> None:
        device, _minor = self._find(gpu_uuid)
        number = next(number for number, name in tables.COMPUTE_MODES.items() if name == mode)
        self._calls.must("DeviceSetComputeMode", device, number)

    def mps_program(self) -> MpsProgram:
        return self._mps()

    def _find(self, gpu_uuid: str) -> tuple[Any, int]:
        """NVML's handle and the minor of a GPU. Raises DeviceGone."""
        device = self._calls.ask("DeviceGetHandleByUUID", gpu_uuid)
        with self._mutex:
            known = self._seen.get(gpu_uuid)
        if device is None or known is None:
            raise DeviceGone(f"no GPU {gpu_uuid} on this node")
        return device, known[0]

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
            seen = sorted(self._seen.items())
        return tuple(found for uuid, (_, bus_id) in seen if (found := self._watch(uuid, bus_id)) is not None)

    def _watch(self, uuid: str, bus_id: str | None) -> Watched | None:
        try:
            device = self._calls.must("DeviceGetHandleByUUID", uuid)
            action = self._calls.recovery_action(device)
        except BackendError as error:
            lost = isinstance(error, DeviceGone) or error.permanent
            if lost and bus_id and self._kernel.driver(bus_id) not in {None, "nvidia"}:
                # Somebody took it for a virtual machine: it is well, and none of ours any more.
                with self._mutex:
                    self._seen.pop(uuid, None)
                return None
            return Watched(uuid=uuid, answers=False if lost else None, message=str(error))
        return Watched(
            uuid=uuid, answers=True, recovery=None if action is None else tables.RECOVERY.get(action, "reset")
        )

    def telemetry(self) -> tuple[Telemetry, ...]:
        with self._mutex:
            seen = sorted(self._seen)
        return tuple(found for uuid in seen if (found := self._telemetry(uuid)) is not None)

    def _telemetry(self, uuid: str) -> Telemetry | None:
        try:
            device = self._calls.must("DeviceGetHandleByUUID", uuid)
            utilization = self._calls.ask("DeviceGetUtilizationRates", device)
            memory = self._calls.ask("DeviceGetMemoryInfo", device)
            power = self._calls.ask("DeviceGetPowerUsage", device)
            temperature = self._calls.ask("DeviceGetTemperature", device, self._calls.nv.NVML_TEMPERATURE_GPU)
            sent, received = self._calls.nvlink_bytes(device)
        except BackendError:
            return None  # watch() says why
        return Telemetry(
            uuid=uuid,
            utilization_percent=None if utilization is None else float(utilization.gpu),
            memory_used_bytes=None if memory is None else int(memory.used),
            power_w=None if power is None else power / 1000,
            temperature_c=None if temperature is None else float(temperature),
            nvlink_sent_bytes=sent,
            nvlink_received_bytes=received,
        )

    def xids(self) -> tuple[Xid, ...]:
        """Drained, not waited for: the caller looks often enough, and a wait would hold a thread for ever."""
        with self._mutex:
            if self._events is None:
                self._events = Events(self._calls)
            return self._events.drain(self._seen)


def _bus_id(info: Any) -> str | None:
    """As sysfs names it, lower case with a domain of four digits: NVML's has eight."""
    if info is None:
        return None
    text = f"{int(info.domain):04x}:{int(info.bus):02x}:{int(info.device):02x}.0"
    return text if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0", text) else None
