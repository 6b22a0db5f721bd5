"""The Backend of a real node: operations, device nodes, health and load of its GPUs through NVML.

Discovery reads the inventory, Measurements the load, NvmlMig changes MIG devices; this holds the session, lets one operation at a time change
a GPU's MIG devices, and records which GPUs responded before. Device nodes come from the kernel's list of
capabilities, so nothing but this library is needed at run time.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from fairlead.driver.backend.interface import Backend, BackendError, DeviceGone, InUse, NoShares, Shares
from fairlead.driver.backend.nvml import programs, tables
from fairlead.driver.backend.nvml.calls import Calls
from fairlead.driver.backend.nvml.discovery import Discovery
from fairlead.driver.backend.nvml.measurements import Measurements
from fairlead.driver.backend.nvml.mig import NvmlMig
from fairlead.driver.backend.nvml.session import Events, Session, SessionBusy
from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.backend.types import (
    ComputeMode,
    DeviceNode,
    GpuCondition,
    GpuStatus,
    Inventory,
    MigDevice,
    MpsProgram,
    PciTree,
    Process,
    Telemetry,
    TimeSlice,
    Xid,
)
from fairlead.driver.common.driver_root import LIBRARY_DIRS, DriverRoot
from fairlead.driver.common.locks import KeyedLocks

P = ParamSpec("P")
T = TypeVar("T")

# What a call on another GPU may take before a reset gives up.
QUIET_TIMEOUT_S = 30.0
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


def _in_session(
    method: Callable[Concatenate[NvmlBackend, P], T],
) -> Callable[Concatenate[NvmlBackend, P], T]:
    """Not while GPUs are reset: the session, and each handle, is another afterwards."""

    @functools.wraps(method)
    def call(self: NvmlBackend, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._session.call():
            return method(self, *args, **kwargs)

    return call


class NvmlBackend:
    """Backend over one NVML session, which only a reset replaces: opening one can take seconds."""

    def __init__(
        self,
        nv: Any,
        *,
        kernel: Kernel | None = None,
        smi_runner: programs.Runner | None = None,
        smi_reset: programs.Runner | None = None,
        mps: Callable[[], MpsProgram] | None = None,
        shares: Shares | None = None,
    ) -> None:
        """Raises BackendError when the library or the kernel driver is missing."""
        self._calls = Calls(nv)
        self._mig = NvmlMig(self._calls)
        self._kernel = kernel or Kernel()
        self._discovery = Discovery(self._calls, self._mig, self._kernel)
        self._measurements = Measurements(self._calls, shares or NoShares())
        self._smi = smi_runner or programs.smi(DriverRoot(Path("/")))
        self._smi_reset = smi_reset or smi_runner or programs.smi(DriverRoot(Path("/")), programs.RESET_TIMEOUT_S)
        self._mps = mps or (lambda: programs.mps(DriverRoot(Path("/"))))
        self._session = Session()
        self._locks = KeyedLocks()
        self._mutex = threading.Lock()
        # Minor and bus ID by UUID, of every GPU that responded once and was not bound to another kernel driver since.
        self._seen: dict[str, tuple[int, str | None]] = {}
        # Of the last inventory.
        self._migs: tuple[MigDevice, ...] = ()
        self._events: Events | None = None
        self._open = False
        self._start_session()

    @classmethod
    def open(cls, *, driver_root: Path = Path("/"), shares: Shares | None = None) -> Backend:
        """NVML from under `driver_root`. Raises BackendError."""
        import pynvml

        for directory in (*LIBRARY_DIRS, "usr/lib"):
            library = driver_root / directory / "libnvidia-ml.so.1"
            if driver_root != Path("/") and library.is_file():
                # Once loaded by path, the library is found by its name.
                with contextlib.suppress(OSError):
                    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
                    break
        root = DriverRoot(driver_root.absolute())
        return cls(
            pynvml,
            smi_runner=programs.smi(root),
            smi_reset=programs.smi(root, programs.RESET_TIMEOUT_S),
            mps=lambda: programs.mps(root),
            shares=shares,
        )

    def close(self) -> None:
        self._end_session()

    def _start_session(self) -> None:
        nv = self._calls.nv
        try:
            # Without the flag this fails on a node whose GPUs are all lost or bound to another kernel driver.
            nv.nvmlInitWithFlags(nv.NVML_INIT_FLAG_NO_GPUS)
        except nv.NVMLError as error:
            raise BackendError(
                f"NVML: {error}: is NVIDIA's driver installed and loaded on this host (does nvidia-smi work), and is "
                "--driver-root where it is installed?"
            ) from error
        self._open = True

    def _end_session(self) -> None:
        with self._mutex:
            if self._open:
                self._open = False
                self._events = None
                self._measurements.close()
                self._calls.query("Shutdown")

    @_in_session
    def inventory(self) -> Inventory:
        found = self._discovery.inventory()
        with self._mutex:
            self._seen |= {gpu.uuid: (gpu.minor, gpu.pci_bus_id) for gpu in found.gpus}
            self._migs = tuple(mig for gpu in found.gpus for mig in gpu.mig_devices)
        return found

    # -- MIG ---------------------------------------------------------------------------------------------------------

    @_in_session
    def mig_devices(self, gpu_uuid: str) -> tuple[MigDevice, ...]:
        device, minor = self._find(gpu_uuid)
        return self._mig.devices(device, gpu_uuid, minor, [])

    @_in_session
    def create_mig(self, gpu_uuid: str, profile_id: int, start: int) -> MigDevice:
        with self._locks.hold([gpu_uuid]):
            device, minor = self._find(gpu_uuid)
            return self._mig.create(device, gpu_uuid, minor, profile_id, start)

    @_in_session
    def destroy_mig(self, gpu_uuid: str, profile_id: int, start: int) -> bool:
        with self._locks.hold([gpu_uuid]):
            device, _minor = self._find(gpu_uuid)
            return self._mig.destroy(device, profile_id, start)

    @_in_session
    def mig_mode(self, gpu_uuid: str) -> bool | None:
        device, _minor = self._find(gpu_uuid)
        return self._mig.mode(device)

    @_in_session
    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        with self._locks.hold([gpu_uuid]):
            device, minor = self._find(gpu_uuid)
            self._mig.set_mode(device, minor, enabled)

    @_in_session
    def set_time_slice(self, gpu_uuid: str, interval: TimeSlice) -> None:
        self._find(gpu_uuid)
        programs.set_time_slice(self._smi, gpu_uuid, interval)

    @_in_session
    def compute_mode(self, gpu_uuid: str) -> ComputeMode | None:
        device, _minor = self._find(gpu_uuid)
        mode = self._calls.query("DeviceGetComputeMode", device)
        return None if mode is None else tables.COMPUTE_MODES.get(int(mode))

    @_in_session
    def set_compute_mode(self, gpu_uuid: str, mode: ComputeMode) -> None:
        device, _minor = self._find(gpu_uuid)
        number = next(number for number, name in tables.COMPUTE_MODES.items() if name == mode)
        self._calls.call("DeviceSetComputeMode", device, number)

    # -- reset -------------------------------------------------------------------------------------------------------

    @_in_session
    def processes(self, gpu_uuid: str) -> tuple[Process, ...]:
        device, _minor = self._find(gpu_uuid)
        pids = sorted(self._calls.running(device) or ())
        return tuple(Process(pid=pid, name=self._kernel.process_name(pid)) for pid in pids)

    @_in_session
    def reset_refusal(self, gpu_uuid: str) -> str | None:
        try:
            device, minor = self._find(gpu_uuid)
        except BackendError:
            return None
        nv = self._calls.nv
        mode = self._calls.query("DeviceGetVirtualizationMode", device)
        if mode == nv.NVML_GPU_VIRTUALIZATION_MODE_VGPU:
            return (
                f"gpu-{minor} is a vGPU of a virtual machine, which cannot reset the GPU; restart the virtual machine"
            )
        if mode in {nv.NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU, nv.NVML_GPU_VIRTUALIZATION_MODE_HOST_VSGA}:
            return f"gpu-{minor} serves vGPUs of virtual machines; end those and reset it on the host"
        return None

    def reset(self, gpu_uuids: Collection[str]) -> None:
        try:
            with self._session.alone(QUIET_TIMEOUT_S):
                self._end_session()
                try:
                    programs.reset(self._smi_reset, gpu_uuids)
                finally:
                    self._start_session()
        except SessionBusy:
            raise InUse(
                f"a call of this driver to a GPU has not returned for {QUIET_TIMEOUT_S:g} s; if none does, reboot the node"
            ) from None

    def pci_tree(self, bus_ids: Collection[str]) -> PciTree:
        return self._kernel.pci_tree(bus_ids)

    def mps_program(self) -> MpsProgram:
        return self._mps()

    def _find(self, gpu_uuid: str) -> tuple[Any, int]:
        """NVML's handle and the minor of a GPU. Raises DeviceGone."""
        device = self._calls.query("DeviceGetHandleByUUID", gpu_uuid)
        with self._mutex:
            known = self._seen.get(gpu_uuid)
        if device is None or known is None:
            raise DeviceGone(f"no GPU {gpu_uuid} on this node")
        return device, known[0]

    # -- device nodes, health, load ----------------------------------------------------------------------------------

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
            # The runtime makes the node from its numbers: it need not exist on the host.
            path = f"/dev/nvidia-caps/nvidia-cap{number}"
            nodes.append(DeviceNode(path=path, major=major, minor=number, mode=mode))
        return tuple(nodes)

    @_in_session
    def statuses(self) -> tuple[GpuStatus, ...]:
        with self._mutex:
            seen = sorted(self._seen.items())
        return tuple(found for uuid, (_, bus_id) in seen if (found := self._status(uuid, bus_id)) is not None)

    def _status(self, uuid: str, bus_id: str | None) -> GpuStatus | None:
        try:
            device = self._calls.call("DeviceGetHandleByUUID", uuid)
            action = self._calls.recovery_action(device)
        except BackendError as error:
            lost = isinstance(error, DeviceGone) or error.permanent
            if lost and bus_id and self._kernel.driver(bus_id) not in {None, "nvidia"}:
                # It was bound to another kernel driver, for a virtual machine for example: healthy, but not ours.
                with self._mutex:
                    self._seen.pop(uuid, None)
                return None
            return GpuStatus(uuid=uuid, responds=False if lost else None, message=str(error))
        return GpuStatus(
            uuid=uuid,
            responds=True,
            recovery_action=None if action is None else tables.RECOVERY_ACTIONS.get(action, "reset"),
        )

    @_in_session
    def telemetry(self) -> tuple[Telemetry, ...]:
        with self._mutex:
            seen, migs = list(self._seen), self._migs
        return self._measurements.telemetry(seen, migs)

    @_in_session
    def conditions(self) -> tuple[GpuCondition, ...]:
        with self._mutex:
            seen = list(self._seen)
        return self._measurements.conditions(seen)

    @_in_session
    def xids(self) -> tuple[Xid, ...]:
        """Drains the events without waiting: the caller polls, and a wait would block a thread forever."""
        with self._mutex:
            if self._events is None:
                self._events = Events(self._calls)
            return self._events.drain(self._seen)
