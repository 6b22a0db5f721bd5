"""The Backend of a node without GPUs: a node profile with MIG placements that fill up, and faults on demand.

Driver, demo and tests run the real prepare path on it. It refuses what NVML refuses: a taken placement, a lost GPU's
every call, MIG mode on Ampere; instance IDs are reused. Its device nodes are backed by /dev/null, which exists on every
host and may be opened in every container, so a real containerd starts a container with a simulated GPU.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from fairlead.driver.backend import device_names, geometry, links, profiles
from fairlead.driver.backend.interface import BackendError, DeviceGone, InUse, NoShares, PlacementTaken, Shares
from fairlead.driver.backend.profiles.schema import NodeProfile
from fairlead.driver.backend.simulated import fault_file, mps_standin, readings
from fairlead.driver.backend.simulated.fault_file import InjectedFaults, Load, MemoryErrors, WantedFaults
from fairlead.driver.backend.simulated.state import HardwareState, Instance
from fairlead.driver.backend.types import (
    ComputeMode,
    DeviceNode,
    Gpu,
    GpuCondition,
    GpuStatus,
    Inventory,
    MigDevice,
    MigProfile,
    MpsProgram,
    PciDevice,
    PciTree,
    Process,
    Telemetry,
    TimeSlice,
    Xid,
)

_NULL_MAJOR, _NULL_MINOR = 1, 3
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


class SimulatedBackend:
    """Backend over a NodeProfile. `node` seeds the UUIDs; without `state_file` the hardware forgets at exit.

    `fault_file` is the path to which `fairlead fault` and `fairlead load` write. `held` gives the UUIDs of the devices
    that claims hold now; NVLink's bytes grow with `clock`, in seconds.
    """

    def __init__(
        self,
        node_profile: NodeProfile,
        *,
        node: str,
        state_file: Path | None = None,
        fault_file: Path | None = None,
        held: Callable[[], Collection[str]] = frozenset,
        shares: Shares | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.faults = InjectedFaults()
        self._profile = node_profile
        self._fault_file = fault_file
        self._wanted = WantedFaults()
        self._lock = threading.Lock()
        self._held = held
        self._shares = shares or NoShares()
        self._clock = clock
        self._last_s = clock()
        self._nvlink_bytes: defaultdict[int, float] = defaultdict(float)
        described = profiles.gpus(node_profile, node=node)
        self._gpus = {gpu.uuid: gpu for gpu, _ in described}
        mig_profiles = {gpu.uuid: frozenset(each.id for each in gpu.mig_profiles) for gpu, _ in described}
        self.state = HardwareState(mig_profiles, file=state_file)
        for gpu, placed in described:
            for mig_profile, start in placed:
                self.state.add(gpu.uuid, mig_profile.id, start)
        self.state.load()
        self._read_faults()
        self.faults.xids.clear()  # as NVML: what was reported before the driver ran is not reported again

    def inventory(self) -> Inventory:
        self._read_faults()
        with self._lock:
            lost = [gpu for gpu in self._gpus.values() if gpu.minor in self.faults.lost]
            return Inventory(
                driver_version=self._profile.driver_version,
                cuda_driver_version=self._profile.cuda_driver_version,
                gpus=tuple(self._current(gpu) for gpu in self._gpus.values() if gpu.minor not in self.faults.lost),
                warnings=tuple(f"gpu-{gpu.minor}: lost: it answers no query; it needs a reset" for gpu in lost),
            )

    def control_nodes(self) -> tuple[DeviceNode, ...]:
        return tuple(_node(path) for path in _CONTROL)

    def device_nodes(self, minor: int, instances: tuple[int, int] | None = None) -> tuple[DeviceNode, ...]:
        nodes = [_node(f"/dev/nvidia{minor}")]
        if instances is not None:
            gi_id, ci_id = instances
            # nvidia-caps numbers 1 + 8 nodes for each of 15 GPU instances of each GPU, from 3 on.
            gi_cap = 3 + minor * 135 + gi_id * 9
            nodes += [_node(f"/dev/nvidia-caps/nvidia-cap{cap}") for cap in (gi_cap, gi_cap + 1 + ci_id)]
        return tuple(nodes)

    def mig_devices(self, gpu_uuid: str) -> tuple[MigDevice, ...]:
        gpu = self._reach("mig_devices", gpu_uuid)
        with self._lock:
            return self._current(gpu).mig_devices

    def create_mig(self, gpu_uuid: str, profile_id: int, start: int) -> MigDevice:
        gpu = self._reach("create_mig", gpu_uuid)
        wanted = next((p for p in gpu.mig_profiles if p.id == profile_id), None)
        if wanted is None:
            raise BackendError(f"gpu-{gpu.minor}: no MIG profile has ID {profile_id}", permanent=True)
        with self._lock:
            if not self._mode(gpu) and not gpu.mig_mutable:
                raise BackendError(
                    f"gpu-{gpu.minor}: MIG mode is off and {gpu.architecture or 'this GPU'} needs a reset to switch it; "
                    "run `nvidia-smi -mig 1` and reset the GPU",
                    permanent=True,
                )
            if start not in wanted.starts:
                raise BackendError(f"gpu-{gpu.minor}: {wanted.name} cannot start at slice {start}", permanent=True)
            placed = [(_profile_of(gpu, instance), instance.start) for instance in self.state.instances[gpu_uuid]]
            if not geometry.fits(gpu.mig_profiles, placed, (wanted, start)):
                raise PlacementTaken(
                    f"gpu-{gpu.minor}: {wanted.name} at slice {start} overlaps "
                    + ", ".join(f"{other.name}@{at}" for other, at in placed)
                )
            instance = self.state.add(gpu_uuid, profile_id, start)
            self.state.save()
            return _mig_device(gpu, instance)

    def destroy_mig(self, gpu_uuid: str, profile_id: int, start: int) -> bool:
        gpu = self._reach("destroy_mig", gpu_uuid)
        with self._lock:
            for instance in self.state.instances[gpu_uuid]:
                if (instance.profile_id, instance.start) == (profile_id, start):
                    if (gpu.minor, start) in self.faults.busy:
                        raise InUse(f"gpu-{gpu.minor}: the MIG device at slice {start} is in use by another client")
                    self.state.instances[gpu_uuid].remove(instance)
                    if gpu.mig_mutable and not self.state.instances[gpu_uuid]:
                        self.state.mig_modes[gpu.minor] = False  # as the NVML backend leaves it
                    self.state.save()
                    return True
        return False

    def mig_mode(self, gpu_uuid: str) -> bool | None:
        gpu = self._reach("mig_mode", gpu_uuid)
        with self._lock:
            return self._mode(gpu)

    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        gpu = self._reach("set_mig_mode", gpu_uuid)
        with self._lock:
            before = self._mode(gpu)
            if before is None:
                raise BackendError(f"gpu-{gpu.minor}: has no MIG", permanent=True)
            if before == enabled:
                return
            if self.state.instances[gpu_uuid]:
                raise InUse(f"gpu-{gpu.minor}: MIG mode cannot be switched while it has MIG devices")
            if not gpu.mig_mutable:
                raise BackendError(
                    f"gpu-{gpu.minor}: switching MIG mode {'on' if enabled else 'off'} takes a reset of the GPU here; run "
                    f"`nvidia-smi -i {gpu.minor} -mig {int(enabled)}` on the node while nothing uses the GPU, and reset it "
                    "or reboot",
                    permanent=True,
                )
            self.state.mig_modes[gpu.minor] = enabled
            self.state.save()

    def set_time_slice(self, gpu_uuid: str, interval: TimeSlice) -> None:
        gpu = self._reach("set_time_slice", gpu_uuid)
        with self._lock:
            self.state.time_slices[gpu.minor] = interval
            self.state.save()

    def compute_mode(self, gpu_uuid: str) -> ComputeMode | None:
        gpu = self._reach("compute_mode", gpu_uuid)
        with self._lock:
            return self.state.compute_modes.get(gpu.minor, "Default")

    def set_compute_mode(self, gpu_uuid: str, mode: ComputeMode) -> None:
        gpu = self._reach("set_compute_mode", gpu_uuid)
        with self._lock:
            self.state.compute_modes[gpu.minor] = mode
            self.state.save()

    def processes(self, gpu_uuid: str) -> tuple[Process, ...]:
        return self.faults.processes.get(self._reach("processes", gpu_uuid).minor, ())

    def reset_refusal(self, gpu_uuid: str) -> str | None:
        return None

    def reset(self, gpu_uuids: Collection[str]) -> None:
        """As NVML's: of GPUs that are joined without a switch all at once, and none that has clients."""
        self._read_faults()
        gpus = [self._reach("reset", gpu_uuid) for gpu_uuid in sorted(gpu_uuids)]
        for gpu in gpus:
            missing = {each.uuid for each in links.reset_together(self._gpus.values(), gpu)} - set(gpu_uuids)
            if missing:
                raise BackendError(f"gpu-{gpu.minor}: these have to be reset with it: {', '.join(sorted(missing))}")
            clients = [str(each) for each in self.faults.processes.get(gpu.minor, ())]
            clients += [
                f"MIG device at slice {start}" for minor, start in sorted(self.faults.busy) if minor == gpu.minor
            ]
            if clients:
                raise InUse(f"gpu-{gpu.minor}: in use by another client: {', '.join(clients)}")
            if gpu.minor in self.faults.reset_fails:
                raise BackendError(f"gpu-{gpu.minor}: the reset failed: unknown error")
        minors = {gpu.minor for gpu in gpus}
        with self._lock:
            for gpu in gpus:
                self.state.instances[gpu.uuid] = []
                if gpu.mig_mutable:
                    self.state.mig_modes[gpu.minor] = False  # only Ampere keeps it
                self.state.time_slices.pop(gpu.minor, None)
                self.state.compute_modes.pop(gpu.minor, None)
            self.state.save()
            for minor in minors:
                if self.faults.recovery.get(minor) != "reboot":
                    self.faults.recovery.pop(minor, None)
                if minor in self.faults.memory_errors:
                    errors = self.faults.memory_errors[minor]
                    self.faults.memory_errors[minor] = msgspec.structs.replace(errors, pending=False)
            if self._fault_file is not None:
                fault_file.reset(self._fault_file, minors)

    def pci_tree(self, bus_ids: Collection[str]) -> PciTree:
        """Each GPU below a root complex of its own: a profile tells no switches and no network cards."""
        devices = [
            PciDevice(bus_id=gpu.pci_bus_id, numa_node=gpu.numa_node, kind="0x030200", vendor="0x10de")
            for gpu in self._gpus.values()
            if gpu.pci_bus_id in bus_ids and gpu.pci_bus_id is not None
        ]
        return PciTree(devices=tuple(sorted(devices, key=lambda device: device.bus_id)))

    def mps_program(self) -> MpsProgram:
        """A stand-in: a real process that accepts the same commands."""
        program = (sys.executable, "-I", "-S", mps_standin.__file__)
        return MpsProgram(daemon=(*program, "-f"), control=program)

    def statuses(self) -> tuple[GpuStatus, ...]:
        self._read_faults()
        return tuple(self._status(gpu) for gpu in sorted(self._gpus.values(), key=lambda gpu: gpu.uuid))

    def telemetry(self) -> tuple[Telemetry, ...]:
        """Idle unless a load is wanted: no program runs on simulated hardware."""
        self._read_faults()
        held = self._held()
        passed_s = self._since_last_telemetry()
        found = []
        for gpu in self._gpus.values():
            if gpu.minor in self.faults.lost:
                continue
            with self._lock:
                current = self._current(gpu)
            load = self._load(f"gpu-{gpu.minor}", gpu.uuid, gpu.memory_bytes, held)
            on_migs = [
                (
                    mig,
                    self._load(
                        device_names.mig_name(gpu.minor, mig.profile, mig.start),
                        mig.uuid,
                        mig.profile.memory_bytes,
                        held,
                    ),
                )
                for mig in current.mig_devices
            ]
            self._nvlink_bytes[gpu.minor] += readings.nvlink_bytes_per_s(current, load) * passed_s
            found.append(
                readings.of_gpu(
                    current,
                    load,
                    on_migs,
                    self.faults.throttled.get(gpu.minor, frozenset()),
                    int(self._nvlink_bytes[gpu.minor]),
                )
            )
            found += [readings.of_mig(current, mig, each) for mig, each in on_migs]
        return tuple(readings.shared(read, self._shares.of(read.uuid)) for read in sorted(found, key=lambda r: r.uuid))

    def conditions(self) -> tuple[GpuCondition, ...]:
        self._read_faults()
        return tuple(
            readings.condition(gpu, self.faults.memory_errors.get(gpu.minor, MemoryErrors()))
            for gpu in sorted(self._gpus.values(), key=lambda gpu: gpu.uuid)
            if gpu.minor not in self.faults.lost
        )

    def _load(self, name: str, uuid: str, memory_bytes: int | None, held: Collection[str]) -> Load:
        """What was wanted of this device, else of all that claims hold if one holds it."""
        wanted = self.faults.loads.get(name)
        if wanted is None and self.faults.held is not None and uuid in held:
            wanted = readings.within(self.faults.held, memory_bytes)
        return wanted or Load()

    def _since_last_telemetry(self) -> float:
        with self._lock:
            before_s, self._last_s = self._last_s, self._clock()
            return max(0.0, self._last_s - before_s)

    def xids(self) -> tuple[Xid, ...]:
        self._read_faults()
        by_minor = {gpu.minor: gpu.uuid for gpu in self._gpus.values()}
        events, self.faults.xids = self.faults.xids, []
        return tuple(Xid(uuid=by_minor[minor], code=code) for minor, code in events if minor in by_minor)

    def close(self) -> None:
        pass

    # ------------------------------------------------------------------------------------------------------------

    def _reach(self, operation: str, gpu_uuid: str) -> Gpu:
        gpu = self._gpus.get(gpu_uuid)
        if gpu is None:
            raise DeviceGone(f"no GPU {gpu_uuid} on this node")
        if self.faults.before is not None:
            self.faults.before(operation, gpu.minor)
        if gpu.minor in self.faults.lost:
            raise DeviceGone(f"gpu-{gpu.minor}: lost: it answers no query; it needs a reset")
        return gpu

    def _current(self, gpu: Gpu) -> Gpu:
        devices = [_mig_device(gpu, instance) for instance in self.state.instances[gpu.uuid]]
        return dataclasses.replace(
            gpu,
            # A mutable GPU is in MIG mode while it holds instances, as the NVML backend leaves it.
            mig_enabled=self._mode(gpu),
            mig_devices=tuple(sorted(devices, key=lambda device: device.start)),
        )

    def _mode(self, gpu: Gpu) -> bool | None:
        if not gpu.mig_profiles:
            return None
        return self.state.mig_modes.get(gpu.minor, bool(gpu.mig_enabled)) or bool(self.state.instances[gpu.uuid])

    def _status(self, gpu: Gpu) -> GpuStatus:
        if gpu.minor in self.faults.lost:
            return GpuStatus(uuid=gpu.uuid, responds=False, message="the GPU has fallen off the bus")
        return GpuStatus(uuid=gpu.uuid, responds=True, recovery_action=self.faults.recovery.get(gpu.minor, "none"))

    def _read_faults(self) -> None:
        """Apply what `fairlead fault` and `fairlead load` wrote since the last poll."""
        if self._fault_file is None:
            return
        wanted = fault_file.read(self._fault_file)
        if wanted is None or wanted == self._wanted:
            return
        self.faults.xids += [(event.minor, event.code) for event in wanted.xids if event not in self._wanted.xids]
        self._wanted = wanted
        self.faults.follow(copy.deepcopy(wanted))


def _node(path: str) -> DeviceNode:
    return DeviceNode(path=path, host_path="/dev/null", major=_NULL_MAJOR, minor=_NULL_MINOR, mode=0o666)


def _profile_of(gpu: Gpu, instance: Instance) -> MigProfile:
    return next(p for p in gpu.mig_profiles if p.id == instance.profile_id)


def _mig_device(gpu: Gpu, instance: Instance) -> MigDevice:
    return MigDevice(
        uuid=instance.uuid,
        parent_uuid=gpu.uuid,
        parent_minor=gpu.minor,
        profile=_profile_of(gpu, instance),
        start=instance.start,
        gi_id=instance.gi_id,
        ci_id=instance.ci_id,
    )
