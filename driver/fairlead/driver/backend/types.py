"""The facts about a node's GPUs, in the same frozen types for every kind of hardware.

Holds no I/O, no names of Kubernetes and no policy. Keeps: an attribute that the hardware does not report is None, never
a guess; lists are sorted (GPUs by minor, MIG devices by placement), so the same hardware gives the same inventory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, get_args

from fairlead.driver.common.driver_root import DriverRoot


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """A GPU's NVLink connections within the node. `peers` are minors, sorted, over switches or bridges alike.

    `switched` says that its links are known to end at NVSwitches.
    """

    version: int | None
    links: int
    peers: tuple[int, ...]
    switched: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A size into which a GPU can be partitioned. Counts that the hardware does not report are None.

    `id` is the GPU instance profile ID that nvidia-smi prints; `starts` are the valid first memory slices.
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


# GPU UUID, profile ID, start.
MigPlacement = tuple[str, int, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A physical GPU. `mig_enabled` is None where the hardware has no MIG.

    `mig_mutable` says that MIG mode can be switched without a reset (Hopper and later, not in a vGPU guest).
    `pci_device_id` is device and vendor as mig-parted's filters have them: `0x233010DE`.
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
    pci_device_id: str | None = None
    pci_bus_id: str | None = None
    pcie_root: str | None = None
    numa_node: int | None = None
    rail: int | None = None
    nvlink: NvLink | None = None
    clique: str | None = None
    mig_enabled: bool | None = None
    mig_mutable: bool = False
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_devices: tuple[MigDevice, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything on the node at one moment. `warnings` name what could not be read, and of which GPU."""

    driver_version: str | None = None
    cuda_driver_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    warnings: tuple[str, ...] = ()

    def gpu(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A character device as a container sees it. With `major` None the runtime reads the numbers on the host."""

    path: str
    host_path: str | None = None
    major: int | None = None
    minor: int | None = None
    mode: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount into a container; `host_path` as the container runtime sees the host."""

    host_path: str
    container_path: str
    read_only: bool = True


TimeSlice = Literal["Default", "Short", "Medium", "Long"]

# Which processes may have a CUDA context on a GPU: any, one (an MPS server, which then serves many), or none.
ComputeMode = Literal["Default", "ExclusiveProcess", "Prohibited"]

# What holds the claims of a shared device to their shares, where they say nothing of it.
SharedLimits = Literal["none", "MPS"]

# The action that the hardware asks for; "imex": its multi-node domain needs it, not the GPU.
RecoveryAction = Literal["none", "reset", "drain", "reboot", "imex"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuStatus:
    """The health of a GPU that was in the inventory before.

    `responds` is None when that could not be determined, `recovery_action` where the driver does not support it.
    """

    uuid: str
    responds: bool | None
    recovery_action: RecoveryAction | None = None
    message: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """A GPU, a network card or a switch above one. `parent` is the switch's bus ID, None below a root complex.

    As the kernel writes them: `kind` the class (0x030200), `link_speed` (32.0 GT/s PCIe) and `link_width` (16) the least
    of the two ends; None where it does not say.
    """

    bus_id: str
    parent: str | None = None
    numa_node: int | None = None
    kind: str | None = None
    vendor: str | None = None
    device: str | None = None
    link_speed: str | None = None
    link_width: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PciTree:
    """Some GPUs, all network cards, and the switches above them, each sorted by bus ID; CPUs of a NUMA node as a mask."""

    devices: tuple[PciDevice, ...] = ()
    cpus: Mapping[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the host that has a context on a GPU. `name` is empty where it cannot be read."""

    pid: int
    name: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})" if self.name else f"process {self.pid}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """An error of a GPU that the kernel driver reported."""

    uuid: str
    code: int


# Why clocks are held below what the load asks for. hw_slowdown is also set with thermal_hw and power_brake.
ThrottleReason = Literal["thermal_hw", "thermal_sw", "power_cap", "power_brake", "hw_slowdown", "sync_boost"]
THROTTLE_REASONS: tuple[ThrottleReason, ...] = get_args(ThrottleReason)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """The load of a GPU or a MIG device now; None where the hardware does not report it, such as utilization in MIG mode.

    `memory_reserved_bytes` is what NVIDIA's driver keeps for itself, neither used nor free; where the driver is too old to
    tell (before 510), it is in what is used. The NVLink bytes are the sum over all links since NVIDIA's driver was loaded. The active ratios, 0 to 1, are means
    over the time since the reading before: of the multiprocessors that had work, of the time that tensor cores
    worked, of the memory's bandwidth. `memory_by_claim` are the bytes that the programs of each claim with a share of the device use, by
    the claim's UID, of those of which the list of processes tells. `throttled` has each reason that the hardware can tell, and whether it holds now.
    """

    uuid: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    nvlink_sent_bytes: int | None = None
    nvlink_received_bytes: int | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    sm_active_ratio: float | None = None
    tensor_active_ratio: float | None = None
    dram_active_ratio: float | None = None
    memory_by_claim: Mapping[str, int] = dataclasses.field(default_factory=dict)
    throttled: Mapping[ThrottleReason, bool] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RemappedRows:
    """Rows of memory that were replaced by spare ones, by the kind of error.

    `pending`: more are replaced at the next reset. `failed`: one could not be, and the GPU should be exchanged.
    """

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuCondition:
    """What seldom changes on a GPU: its limits, its links, the errors of its memory. None where it is not reported.

    ECC errors are counted over the GPU's life; resets and reboots keep the counts.
    """

    uuid: str
    power_limit_w: float | None = None
    nvlink_active_links: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_rows: RemappedRows | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MpsProgram:
    """How MPS runs here: the daemon in the foreground, and its front end, which reads commands from standard input.

    With `root` both run in mount namespaces of their own: with a /tmp and a /dev/shm that only the claim's containers
    share, and with the driver's root where NVIDIA's driver is installed elsewhere.
    """

    daemon: tuple[str, ...]
    control: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    root: DriverRoot | None = None
