"""A node's GPUs without the GPUs: a profile brought to life, with MIG placements that fill up and faults on demand.

Exists so that driver, demo and tests run the real prepare path on any machine. Behaves as NVML does where that hurts:
a taken placement is refused, instance IDs are used again, a lost GPU fails every call, MIG mode on Ampere is not ours to
switch. Its device nodes stand on /dev/null, which every host has and every container may open, so a real containerd
starts a container with a simulated GPU. Keeps its instances in `state_file`, as hardware would, across driver restarts.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead.driver.backend import geometry, profiles
from fairlead.driver.backend.profiles.loading import NodeProfile
from fairlead.driver.backend.simulated import fault_file, mps_standin
from fairlead.driver.backend.simulated.fault_file import Wanted
from fairlead.driver.backend.types import (
    BackendError,
    ComputeMode,
    DeviceGone,
    DeviceNode,
    Gpu,
    InUse,
    Inventory,
    MigDevice,
    MigProfile,
    MpsProgram,
    PlacementTaken,
    Recovery,
    Telemetry,
    TimeSlice,
    Watched,
    Xid,
)

_UUID_SPACE = uuid.UUID("1f4d9f5c-2a3b-5d47-8a36-6d5a3a1d9c02")
_NULL_MAJOR, _NULL_MINOR = 1, 3
_IDLE_W, _IDLE_C = 60.0, 30.0
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


@dataclasses.dataclass(slots=True)
class Faults:
    """What is wrong with the hardware now. Tests and `fairlead fault` set it; the backend only reads it.

    `lost` holds minors, `recovery` what a GPU needs by minor, `xids` (minor, code) not yet reported, `busy` the
    (minor, start) of instances with clients.
    `before` is called with operation and minor before each mutation: it may sleep, block, or raise.
    """

    lost: set[int] = dataclasses.field(default_factory=set)
    recovery: dict[int, Recovery] = dataclasses.field(default_factory=dict)
    xids: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    busy: set[tuple[int, int]] = dataclasses.field(default_factory=set)
    before: Callable[[str, int], None] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Instance:
    profile_id: int
    start: int
    gi_id: int
    ci_id: int
    uuid: str


class SimulatedBackend:
    """Backend over a NodeProfile. `node` seeds the UUIDs; without `state_file` the hardware forgets at exit.

    `fault_file` is where `fairlead fault` says what shall go wrong.
    """

    def __init__(
        self,
        node_profile: NodeProfile,
        *,
        node: str,
        state_file: Path | None = None,
        fault_file: Path | None = None,
    ) -> None:
        self.faults = Faults()
        self._profile = node_profile
        self._state_file = state_file
        self._fault_file = fault_file
        self._wanted: Wanted | None = None
        self._lock = threading.Lock()
        self._made = 0
        self.time_slices: dict[int, TimeSlice] = {}
        self.compute_modes: dict[int, ComputeMode] = {}
        self._gpus: dict[str, Gpu] = {}
        self._instances: dict[str, list[_Instance]] = {}
        for gpu, placed in profiles.gpus(node_profile, node=node):
            self._gpus[gpu.uuid] = gpu
            self._instances[gpu.uuid] = []
            for mig_profile, start in placed:
                self._add(gpu, mig_profile, start)
        self._remember()

    def inventory(self) -> Inventory:
        self._read_faults()
        with self._lock:
            lost = [gpu for gpu in self._gpus.values() if gpu.minor in self.faults.lost]
            return Inventory(
                driver_version=self._profile.driver_version,
                cuda_driver_version=self._profile.cuda_driver_version,
                gpus=tuple(self._now(gpu) for gpu in self._gpus.values() if gpu.minor not in self.faults.lost),
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
            return self._now(gpu).mig_devices

    def create_mig(self, gpu_uuid: str, profile_id: int, start: int) -> MigDevice:
        gpu = self._reach("create_mig", gpu_uuid)
        wanted = next((p for p in gpu.mig_profiles if p.id == profile_id), None)
        if wanted is None:
            raise BackendError(f"gpu-{gpu.minor}: no MIG profile has ID {profile_id}", permanent=True)
        with self._lock:
            if not gpu.mig_enabled and not gpu.mig_mutable:
                raise BackendError(
                    f"gpu-{gpu.minor}: MIG mode is off and {gpu.architecture or 'this GPU'} needs a reset to switch it; "
                    "run `nvidia-smi -mig 1` and reset the GPU",
                    permanent=True,
                )
            if start not in wanted.starts:
                raise BackendError(f"gpu-{gpu.minor}: {wanted.name} cannot start at slice {start}", permanent=True)
            placed = [(_profile(gpu, instance), instance.start) for instance in self._instances[gpu_uuid]]
            if not geometry.fits(gpu.mig_profiles, placed, (wanted, start)):
                raise PlacementTaken(
                    f"gpu-{gpu.minor}: {wanted.name} at slice {start} overlaps "
                    + ", ".join(f"{other.name}@{at}" for other, at in placed)
                )
            instance = self._add(gpu, wanted, start)
            self._persist()
            return _mig_device(gpu, instance)

    def destroy_mig(self, gpu_uuid: str, profile_id: int, start: int) -> bool:
        gpu = self._reach("destroy_mig", gpu_uuid)
        with self._lock:
            for instance in self._instances[gpu_uuid]:
                if (instance.profile_id, instance.start) == (profile_id, start):
                    if (gpu.minor, start) in self.faults.busy:
                        raise InUse(f"gpu-{gpu.minor}: the MIG device at slice {start} is in use by another client")
                    self._instances[gpu_uuid].remove(instance)
                    self._persist()
                    return True
        return False

    def set_time_slice(self, gpu_uuid: str, interval: TimeSlice) -> None:
        gpu = self._reach("set_time_slice", gpu_uuid)
        with self._lock:
            self.time_slices[gpu.minor] = interval
            self._persist()

    def compute_mode(self, gpu_uuid: str) -> ComputeMode | None:
        gpu = self._reach("compute_mode", gpu_uuid)
        with self._lock:
            return self.compute_modes.get(gpu.minor, "Default")

    def set_compute_mode(self, gpu_uuid: str, mode: ComputeMode) -> None:
        gpu = self._reach("set_compute_mode", gpu_uuid)
        with self._lock:
            self.compute_modes[gpu.minor] = mode
            self._persist()

    def mps_program(self) -> MpsProgram:
        """A stand-in: a real process that takes the same commands."""
        program = (sys.executable, "-I", "-S", mps_standin.__file__)
        return MpsProgram(daemon=(*program, "-f"), control=program)

    def watch(self) -> tuple[Watched, ...]:
        self._read_faults()
        return tuple(self._watch(gpu) for gpu in sorted(self._gpus.values(), key=lambda gpu: gpu.uuid))

    def telemetry(self) -> tuple[Telemetry, ...]:
        """Idle, always: nothing runs on hardware that is not there."""
        return tuple(
            Telemetry(
                uuid=gpu.uuid,
                utilization_percent=0.0,
                memory_used_bytes=0,
                power_w=_IDLE_W,
                temperature_c=_IDLE_C,
                nvlink_sent_bytes=0 if gpu.nvlink else None,
                nvlink_received_bytes=0 if gpu.nvlink else None,
            )
            for gpu in sorted(self._gpus.values(), key=lambda gpu: gpu.uuid)
            if gpu.minor not in self.faults.lost
        )

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

    def _now(self, gpu: Gpu) -> Gpu:
        devices = [_mig_device(gpu, instance) for instance in self._instances[gpu.uuid]]
        return dataclasses.replace(
            gpu,
            # A mutable GPU is in MIG mode while it holds instances, as the NVML backend leaves it.
            mig_enabled=gpu.mig_enabled or bool(devices) if gpu.mig_profiles else None,
            mig_devices=tuple(sorted(devices, key=lambda device: device.start)),
        )

    def _add(self, gpu: Gpu, mig_profile: MigProfile, start: int) -> _Instance:
        taken = {instance.gi_id for instance in self._instances[gpu.uuid]}
        gi_id = next(number for number in range(1, 16) if number not in taken)
        self._made += 1
        made = uuid.uuid5(_UUID_SPACE, f"{gpu.uuid}/{self._made}")
        instance = _Instance(profile_id=mig_profile.id, start=start, gi_id=gi_id, ci_id=0, uuid=f"MIG-{made}")
        self._instances[gpu.uuid].append(instance)
        return instance

    def _watch(self, gpu: Gpu) -> Watched:
        if gpu.minor in self.faults.lost:
            return Watched(uuid=gpu.uuid, answers=False, message="the GPU has fallen off the bus")
        return Watched(uuid=gpu.uuid, answers=True, recovery=self.faults.recovery.get(gpu.minor, "none"))

    def _read_faults(self) -> None:
        """Take up what `fairlead fault` wrote since the last look."""
        if self._fault_file is None:
            return
        wanted = fault_file.read(self._fault_file)
        if wanted is None or wanted == self._wanted:
            return
        new = [(e.minor, e.code) for e in wanted.xids if self._wanted is None or e not in self._wanted.xids]
        self._wanted = wanted
        self.faults.lost = set(wanted.lost)
        self.faults.recovery = dict(wanted.recovery)
        self.faults.xids += new

    def _persist(self) -> None:
        if self._state_file is None:
            return
        state = {
            "made": self._made,
            "time_slices": self.time_slices,
            "compute_modes": self.compute_modes,
            "instances": {gpu: [dataclasses.asdict(i) for i in held] for gpu, held in self._instances.items()},
        }
        temporary = self._state_file.with_name(self._state_file.name + ".tmp")
        temporary.write_text(json.dumps(state))
        temporary.replace(self._state_file)

    def _remember(self) -> None:
        """Take up the instances of an earlier process; a file of another profile, or a broken one, is no memory."""
        if self._state_file is None:
            return
        try:
            state: dict[str, Any] = json.loads(self._state_file.read_text())
            held = {gpu: [_Instance(**instance) for instance in found] for gpu, found in state["instances"].items()}
            made = int(state["made"])
            time_slices = {int(minor): interval for minor, interval in state.get("time_slices", {}).items()}
            compute_modes = {int(minor): mode for minor, mode in state.get("compute_modes", {}).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
        if held.keys() == self._instances.keys():
            self._instances, self._made = held, made
            self.time_slices, self.compute_modes = time_slices, compute_modes


def _node(path: str) -> DeviceNode:
    return DeviceNode(path=path, host_path="/dev/null", major=_NULL_MAJOR, minor=_NULL_MINOR, mode=0o666)


def _profile(gpu: Gpu, instance: _Instance) -> MigProfile:
    return next(p for p in gpu.mig_profiles if p.id == instance.profile_id)


def _mig_device(gpu: Gpu, instance: _Instance) -> MigDevice:
    return MigDevice(
        uuid=instance.uuid,
        parent_uuid=gpu.uuid,
        parent_minor=gpu.minor,
        profile=_profile(gpu, instance),
        start=instance.start,
        gi_id=instance.gi_id,
        ci_id=instance.ci_id,
    )
