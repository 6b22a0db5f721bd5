"""What a node's GPUs are and what can be done to them, said once for every kind of hardware behind it.

Exists so that slices, prepare, health and tests know one vocabulary: frozen facts (Gpu, MigDevice, Inventory) and one
Protocol with two implementations, NVML and Simulated. Holds no I/O, no names of Kubernetes and no policy.
Keeps: an attribute that a device cannot tell is None, never a guess; lists are sorted (GPUs by minor, MIG devices by
placement), so the same hardware gives the same inventory.
"""

# ruff: noqa: N818 - errors are named after what went wrong

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, Protocol

from fairlead.driver.common.driver_root import DriverRoot


class BackendError(Exception):
    """The hardware or its library refused or failed an operation. Retrying may help; `.permanent` says it will not.

    `.left_behind` says that a creation failed and what it had made could not be taken back.
    """

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.left_behind = False


class DeviceGone(BackendError):
    """The GPU that an operation names is not on this node, or fell off the bus."""


class PlacementTaken(BackendError):
    """A MIG instance already covers part of the placement that was asked for."""


class InUse(BackendError):
    """The instance has clients and cannot be destroyed now."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """A GPU's NVLink connections within the node. `peers` are minors, sorted, over switches or bridges alike."""

    version: int | None
    links: int
    peers: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A size that a GPU can be cut into. Counts that the hardware did not tell are None.

    `id` is the GPU instance profile ID that nvidia-smi prints; `starts` are the legal first memory slices.
    """

    name: str
    id: int
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    copy_engines: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpeg_engines: int | None = None
    ofa_engines: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """A MIG device that exists: one GPU instance with one compute instance that fills it."""

    uuid: str
    parent_uuid: str
    parent_minor: int
    profile: MigProfile
    start: int
    gi_id: int
    ci_id: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A physical GPU. `mig_enabled` is None where the hardware has no MIG.

    `mig_mutable` says that MIG mode can be switched without a reset (Hopper and later, not in a vGPU guest).
    """

    minor: int
    uuid: str
    product_name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    cuda_compute_capability: str | None = None
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    addressing_mode: str | None = None
    pci_bus_id: str | None = None
    pcie_root: str | None = None
    numa_node: int | None = None
    nvlink: NvLink | None = None
    clique: str | None = None
    mig_enabled: bool | None = None
    mig_mutable: bool = False
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_devices: tuple[MigDevice, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything on the node, at one moment. `warnings` say what could not be read, and of which GPU."""

    driver_version: str | None = None
    cuda_driver_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    warnings: tuple[str, ...] = ()

    def gpu(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A character device as a container shall see it. `major` None: the runtime looks the path up on the host."""

    path: str
    host_path: str | None = None
    major: int | None = None
    minor: int | None = None
    mode: int | None = None


TimeSlice = Literal["Default", "Short", "Medium", "Long"]

# Who may have a CUDA context on a GPU: any process, one (an MPS server, which then serves many), or none.
ComputeMode = Literal["Default", "ExclusiveProcess", "Prohibited"]

# What the hardware says it needs; "imex": its multi-node domain, not the GPU.
Recovery = Literal["none", "reset", "drain", "reboot", "imex"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One look at a GPU that was seen before. `answers` None: it could not be told. `recovery` None: not supported."""

    uuid: str
    answers: bool | None
    recovery: Recovery | None = None
    message: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """An error that the kernel driver reported of a GPU."""

    uuid: str
    code: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """How busy a GPU is now; None where the hardware does not tell (utilisation in MIG mode, for one).

    The NVLink bytes are all that went over all links since the driver was loaded.
    """

    uuid: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    nvlink_sent_bytes: int | None = None
    nvlink_received_bytes: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MpsProgram:
    """How MPS is run here: the daemon in the foreground, and its front end, which reads commands from standard input.

    With `root` both run in a view of the files of their own: with /tmp and /dev/shm that only the claim's containers share,
    and, where the driver is installed elsewhere, with its root.
    """

    daemon: tuple[str, ...]
    control: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    root: DriverRoot | None = None


class Backend(Protocol):
    """The hardware of one node. Calls block, and may hang: callers run them in threads, with deadlines.

    Safe for concurrent use. A call on one GPU does not wait for a call on another.
    """

    def inventory(self) -> Inventory:
        """Look at everything now. A GPU that cannot be read is left out with a warning; raises BackendError only
        when nothing can be read at all.
        """
        ...

    def control_nodes(self) -> tuple[DeviceNode, ...]:
        """The device nodes that every container with a GPU needs, those that exist."""
        ...

    def device_nodes(self, minor: int, instances: tuple[int, int] | None = None) -> tuple[DeviceNode, ...]:
        """The device nodes of a GPU, or of a MIG device on it: the GPU's own, and its instances' capabilities.

        `instances` are the IDs of GPU instance and compute instance. Raises BackendError when those are not there.
        """
        ...

    def mig_devices(self, gpu_uuid: str) -> tuple[MigDevice, ...]:
        """The MIG devices that one GPU has now, sorted by placement. Raises DeviceGone or BackendError."""
        ...

    def create_mig(self, gpu_uuid: str, profile_id: int, start: int) -> MigDevice:
        """Cut one MIG device out of the GPU. Raises PlacementTaken, DeviceGone or BackendError.

        After an error nothing is left, unless it says `left_behind`.
        """
        ...

    def destroy_mig(self, gpu_uuid: str, profile_id: int, start: int) -> bool:
        """Take back the MIG device at that placement; False when there is none.

        A creation that was cut short may have left half of one (a GPU instance without compute instance): that goes
        too. Raises InUse, DeviceGone or BackendError.

        Named by placement, not by instance IDs or UUID: those are known only after the creation that an intent
        record precedes, and IDs are used again.
        """
        ...

    def set_time_slice(self, gpu_uuid: str, interval: TimeSlice) -> None:
        """How long each process holds the GPU in turn, until it is set again.

        Raises DeviceGone or BackendError; then it is what it was.
        """
        ...

    def compute_mode(self, gpu_uuid: str) -> ComputeMode | None:
        """The GPU's compute mode now, None where it has none. Raises DeviceGone or BackendError."""
        ...

    def set_compute_mode(self, gpu_uuid: str, mode: ComputeMode) -> None:
        """Until it is set again, or the node reboots. Raises DeviceGone or BackendError; then it is what it was."""
        ...

    def mps_program(self) -> MpsProgram:
        """How to run an MPS control daemon here. Raises a permanent BackendError where that is impossible."""
        ...

    def watch(self) -> tuple[Watched, ...]:
        """How each GPU is that was ever in the inventory, sorted by UUID."""
        ...

    def telemetry(self) -> tuple[Telemetry, ...]:
        """How busy each GPU is that was ever in the inventory and answers, sorted by UUID."""
        ...

    def xids(self) -> tuple[Xid, ...]:
        """The errors reported since the last call, in their order."""
        ...

    def close(self) -> None:
        """Let go of the hardware. Not an error when done twice."""
        ...
