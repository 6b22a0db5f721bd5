"""The operations on a node's hardware: one protocol, and the errors that it raises.

NvmlBackend and SimulatedBackend implement it; one contract suite tests both.
"""

# ruff: noqa: N818 - errors are named after what went wrong

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

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


class BackendError(Exception):
    """The hardware or its library refused or failed an operation. Retrying may help; `.permanent` says it will not.

    `.left_behind` is set when a creation failed and the part that it had created could not be destroyed.
    """

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.left_behind = False


class DeviceGone(BackendError):
    """The GPU that an operation names is not on this node, or fell off the bus."""


class PlacementTaken(BackendError):
    """A MIG instance already covers part of the requested placement."""


class InUse(BackendError):
    """The MIG instance, or the GPU, has clients: it cannot be destroyed, or reset, now."""


class Shares(Protocol):
    """Which claims have shares of a device, and which of them a process works for."""

    def of(self, uuid: str) -> Mapping[str, int]:
        """Bytes of memory of each prepared claim's share of the device, by the claim's UID; empty of one that is not shared."""

    def claims(self, pids: Iterable[int]) -> Mapping[int, frozenset[str]] | None:
        """UIDs of the claims of the container in which a process is, of those that are in one; None where that cannot be told."""


class NoShares:
    """Of hardware without claims."""

    def of(self, uuid: str) -> Mapping[str, int]:
        return {}

    def claims(self, pids: Iterable[int]) -> None:
        return None


class Backend(Protocol):
    """The hardware of one node. Calls block and may hang: callers run them in threads and limit the waiting.

    Safe for concurrent use. A call on one GPU does not wait for a call on another.
    """

    def inventory(self) -> Inventory:
        """Everything on the node now. A GPU that cannot be read is left out with a warning.

        Raises BackendError only when nothing can be read at all.
        """

    def control_nodes(self) -> tuple[DeviceNode, ...]:
        """Those device nodes that exist of the ones that every container with a GPU needs."""

    def device_nodes(self, minor: int, instances: tuple[int, int] | None = None) -> tuple[DeviceNode, ...]:
        """The device nodes of a GPU, or of a MIG device on it: the GPU's own, and its instances' capabilities.

        `instances` are the IDs of GPU instance and compute instance. Raises BackendError when they do not exist.
        """

    def mig_devices(self, gpu_uuid: str) -> tuple[MigDevice, ...]:
        """The MIG devices that one GPU has now, sorted by placement. Raises DeviceGone or BackendError."""

    def create_mig(self, gpu_uuid: str, profile_id: int, start: int) -> MigDevice:
        """Create one MIG device. Raises PlacementTaken, DeviceGone or BackendError.

        After an error nothing is left of it, unless the error has `left_behind` set.
        """

    def destroy_mig(self, gpu_uuid: str, profile_id: int, start: int) -> bool:
        """Destroy the MIG device at that placement; False when there is none.

        A creation that was interrupted may have left a GPU instance without compute instance: it is destroyed, too.
        Raises InUse, DeviceGone or BackendError.

        Identified by placement, not by instance IDs or UUID: those are known only after the creation, and the intent is
        recorded before it; IDs are reused.
        """

    def mig_mode(self, gpu_uuid: str) -> bool | None:
        """Whether the GPU is in MIG mode now; None where it has no MIG. Raises DeviceGone or BackendError."""

    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        """Switch MIG mode of a GPU without MIG devices and without clients; nothing is done where it is so already.

        Raises InUse, a permanent BackendError where it takes a reset of the GPU or a reboot, DeviceGone or BackendError;
        then the mode is unchanged, and none is pending.
        """

    def set_time_slice(self, gpu_uuid: str, interval: TimeSlice) -> None:
        """Set how long each process has the GPU in turn. Stays until it is set again.

        Raises DeviceGone or BackendError; then it is unchanged.
        """

    def compute_mode(self, gpu_uuid: str) -> ComputeMode | None:
        """The GPU's compute mode; None where it has none. Raises DeviceGone or BackendError."""

    def set_compute_mode(self, gpu_uuid: str, mode: ComputeMode) -> None:
        """Set the compute mode. Stays until it is set again or the node reboots.

        Raises DeviceGone or BackendError; then it is unchanged.
        """

    def processes(self, gpu_uuid: str) -> tuple[Process, ...]:
        """The processes with a context on the GPU or on a MIG device of it, sorted. Raises DeviceGone or BackendError."""

    def reset_refusal(self, gpu_uuid: str) -> str | None:
        """Why this GPU can never be reset from here; None where that may be tried, as on a GPU that does not answer."""

    def reset(self, gpu_uuids: Collection[str]) -> None:
        """Reset these GPUs in one go. No other call proceeds meanwhile: it takes seconds.

        MIG devices, time slices and compute modes are gone afterwards; MIG mode may be. Raises InUse when a GPU has
        clients, DeviceGone or BackendError when it fails. After an error other than InUse the GPUs may be in any state.
        """

    def pci_tree(self, bus_ids: Collection[str]) -> PciTree:
        """Where these GPUs and the network cards are, as far as this machine shows it; a virtual machine may hide it."""

    def mps_program(self) -> MpsProgram:
        """How to run an MPS control daemon here. Raises a permanent BackendError where MPS is not available."""

    def statuses(self) -> tuple[GpuStatus, ...]:
        """The health of each GPU that was ever in the inventory, sorted by UUID."""

    def telemetry(self) -> tuple[Telemetry, ...]:
        """The load of each GPU that was ever in the inventory and responds, and of its MIG devices in the last inventory.

        Sorted by UUID. Of a MIG device only the memory is known, and on some hardware its activity. What cannot be read
        is left out and costs no other reading. Activity is known from the second call on.
        """

    def conditions(self) -> tuple[GpuCondition, ...]:
        """What seldom changes on each GPU that was ever in the inventory and responds, sorted by UUID.

        Costs more than `telemetry`. What cannot be read is left out and costs no other reading.
        """

    def xids(self) -> tuple[Xid, ...]:
        """The Xids reported since the last call, in their order. Does not wait for one."""

    def close(self) -> None:
        """Release the hardware. Idempotent."""
