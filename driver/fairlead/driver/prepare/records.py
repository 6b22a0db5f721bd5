"""The record of a claim on this node, and when two claims conflict, or shares of a device take more of it than it has. Data and pure rules.

Unprepare gets only a UID, so a record holds all that is needed to undo the claim without the API. The API does not keep
two claims off one device: `conflict` is the last defence, and `overdraft` that of shares, for a delayed or forged allocation can give
out a GPU's memory twice. Example: shares of 40Gi and 30Gi are prepared on a GPU of 80Gi; one of 20Gi more is refused.
Keeps: unknown fields are ignored when a record is read, so that a newer driver's record can be read after a downgrade.
Field names are the format on disk, shared with earlier versions.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal, Self

import msgspec

from fairlead.api.capabilities import DEFAULT_CAPABILITIES
from fairlead.driver.backend.types import ComputeMode, Gpu, TimeSlice
from fairlead.kube.quantity import Quantity


class _Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class MigRecord(_Record, frozen=True, kw_only=True):
    """A MIG device. `made` says whether the claim creates it, and so has to destroy it, and how far that is.

    "no": it existed before (static). "planned": nothing is done yet. "creating": it may exist. "live": it exists, with
    its IDs.
    """

    profile: str
    profile_id: int
    start: int
    size: int
    made: Literal["no", "planned", "creating", "live"] = "no"
    uuid: str | None = None
    gi_id: int | None = None
    ci_id: int | None = None


class DeviceRecord(_Record, frozen=True, kw_only=True):
    """One allocation result of the claim. `request` is named as in the allocation, "main" or "main/sub".

    `consumed` is what a share takes of the device's capacity: bytes of memory, multiprocessors.
    `time_slice` is set on the GPU while the claim has it, and reset afterwards; `sliced` is recorded before it is set.
    """

    request: str
    pool: str
    device: str
    gpu_uuid: str
    minor: int
    share_id: str | None = None
    admin: bool = False
    mig: MigRecord | None = None
    time_slice: TimeSlice | None = None
    sliced: bool = False
    consumed: dict[str, int] = {}

    @property
    def request_name(self) -> str:
        """The request as kubelet names it: a container refers to `main`, whichever subrequest was allocated."""
        return self.request.partition("/")[0]

    @property
    def uuid(self) -> str:
        """The UUID of what the container gets: of the MIG device when it exists, else of the GPU."""
        return self.mig.uuid if self.mig and self.mig.uuid else self.gpu_uuid

    @property
    def cdi_name(self) -> str:
        """The device's name with the share's ID: two shares of one device may be in one claim."""
        return f"{self.device}-{self.share_id}" if self.share_id else self.device

    @property
    def allocated(self) -> tuple[str, str, str, str | None, bool]:
        """The allocation result as it was prepared, to compare with the present one."""
        return self.request, self.pool, self.device, self.share_id, self.admin

    @property
    def creates_mig(self) -> bool:
        """Whether the MIG device is created for the claim; never for admin access."""
        return self.mig is not None and self.mig.made != "no" and not self.admin

    @property
    def mig_may_exist(self) -> bool:
        """Whether a MIG device that was created for the claim may exist, and has to be destroyed."""
        return self.mig is not None and self.mig.made in {"creating", "live"}


class MpsRecord(_Record, frozen=True, kw_only=True):
    """The MPS daemon that serves `devices` (by name) of the claim, with the limits of its clients.

    `begun`, and in `modes` the earlier compute mode of each GPU (by UUID) that becomes exclusive to the daemon, are
    recorded before anything is changed.
    """

    devices: tuple[str, ...]
    active_thread_percentage: int | None = None
    memory_mib: dict[str, int] = {}
    multi_user: bool = False
    begun: bool = False
    modes: dict[str, ComputeMode] = {}


class ClaimRecord(_Record, frozen=True, kw_only=True):
    """One claim. "preparing" and "unpreparing": not finished, and not answered as such.

    `nccl_topology`: its containers get a topology file. `capabilities`: which files of NVIDIA's driver they get. `pod_claim` is the pod's name for the claim, where it was created from a template.
    """

    uid: str
    namespace: str
    name: str
    state: Literal["preparing", "prepared", "unpreparing"]
    devices: tuple[DeviceRecord, ...] = ()
    mps: MpsRecord | None = None
    nccl_topology: bool = False
    capabilities: tuple[str, ...] = DEFAULT_CAPABILITIES
    pod_claim: str | None = None

    def __str__(self) -> str:
        return f"ResourceClaim {self.namespace}/{self.name} ({self.uid})"

    @property
    def changes_hardware(self) -> bool:
        """Whether preparing the claim changes more than files."""
        return self.mps is not None or any(device.creates_mig or device.time_slice for device in self.devices)

    @property
    def may_have_changed_hardware(self) -> bool:
        """Whether it did so far, or may have."""
        begun = self.mps is not None and self.mps.begun
        return begun or any(device.sliced or device.mig_may_exist for device in self.devices)

    @property
    def earlier_compute_modes(self) -> dict[str, ComputeMode]:
        """By UUID: the compute modes to restore."""
        return self.mps.modes if self.mps is not None else {}

    @property
    def gpus_to_lock(self) -> set[str]:
        """UUIDs of the GPUs that no other claim may change meanwhile. Admin access changes nothing."""
        return {device.gpu_uuid for device in self.devices if not device.admin}

    def with_device(self, index: int, **changes: object) -> Self:
        """The record with its device at `index` changed."""
        devices = list(self.devices)
        devices[index] = msgspec.structs.replace(devices[index], **changes)
        return msgspec.structs.replace(self, devices=tuple(devices))

    def with_mig(self, index: int, **changes: object) -> Self:
        """The record with the MIG device of its device at `index` changed."""
        mig = self.devices[index].mig
        assert mig is not None
        return self.with_device(index, mig=msgspec.structs.replace(mig, **changes))


def conflict(wanted: Iterable[DeviceRecord], records: Iterable[ClaimRecord]) -> tuple[DeviceRecord, ClaimRecord] | None:
    """The first wanted device that overlaps one of `records`, with that record; None without a conflict."""
    devices = list(wanted)
    for record in records:
        for held in record.devices:
            for device in devices:
                if overlap(device, held):
                    return device, record
    return None


def overlap(one: DeviceRecord, other: DeviceRecord) -> bool:
    """Whether two claims cannot have these at once. Admin access observes a device and takes nothing."""
    if one.admin or other.admin or one.gpu_uuid != other.gpu_uuid:
        return False
    if one.device == other.device and one.share_id and other.share_id:
        return one.share_id == other.share_id
    if one.mig is None or other.mig is None:
        return True
    return one.mig.start < other.mig.start + other.mig.size and other.mig.start < one.mig.start + one.mig.size


def holders(records: Iterable[ClaimRecord], *gpu_uuids: str, admin: bool = False) -> tuple[ClaimRecord, ...]:
    """The claims that have one of these GPUs or a part of it, finished or not; with `admin` also those that only observe it."""
    return tuple(
        record
        for record in records
        if any(device.gpu_uuid in gpu_uuids and (admin or not device.admin) for device in record.devices)
    )


_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,126}[A-Za-z0-9])?")


def valid_uid(uid: str) -> bool:
    """Whether a claim's UID may become part of a file's name and of a CDI device's name."""
    return _UID.fullmatch(uid) is not None


# -- shares ------------------------------------------------------------------------------------------------------------

_MIB = 1024 * 1024

Capacities = Mapping[str, Mapping[str, int]]
"""By the UUID of a GPU or MIG device, and the capacity's name; what is not known is not checked."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Overdraft:
    """`wanted` more of the capacity of a device, of which `holders` hold `held` of `total`."""

    device: str
    capacity: str
    wanted: int
    held: int
    total: int
    holders: tuple[ClaimRecord, ...]

    def __str__(self) -> str:
        wanted, held, total = (_amount(self.capacity, each) for each in (self.wanted, self.held, self.total))
        by = ", ".join(str(holder) for holder in self.holders) or "no other claim"
        return f"{self.device}: it takes {wanted} of {self.capacity}, and {held} of {total} is held by {by}"


def capacities(gpus: Iterable[Gpu]) -> Capacities:
    """What each GPU and MIG device has, under the names by which its shares consume it."""
    found: dict[str, dict[str, int]] = {}
    for gpu in gpus:
        found[gpu.uuid] = _known(gpu.memory_bytes, gpu.multiprocessors)
        for mig in gpu.mig_devices:
            found[mig.uuid] = _known(mig.profile.memory_bytes, mig.profile.multiprocessors)
    return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a claim has of a device (bytes), and to what each of its programs is held by MPS. None: not known, or by nothing."""

    memory_bytes: int | None = None
    program_memory_bytes: int | None = None
    program_multiprocessors: int | None = None


def limits(record: ClaimRecord, device: DeviceRecord, known: Capacities) -> Limits:
    """Those of one device of the claim. MPS rounds a percentage up to whole multiprocessors."""
    there = known.get(device.uuid, {})
    memory_mib, percentage = None, None
    if record.mps is not None and device.device in record.mps.devices:
        memory_mib, percentage = record.mps.memory_mib.get(device.device), record.mps.active_thread_percentage
    multiprocessors = there.get("multiprocessors")
    return Limits(
        memory_bytes=device.consumed.get("memory") if device.share_id else there.get("memory"),
        program_memory_bytes=None if memory_mib is None else memory_mib * _MIB,
        program_multiprocessors=None
        if percentage is None or multiprocessors is None
        else math.ceil(multiprocessors * percentage / 100),
    )


def is_all(device: DeviceRecord, known: Capacities) -> bool:
    """Whether a share has all memory of its device, so that no other claim can have one. Shares are whole mebibytes."""
    there = known.get(device.uuid, {}).get("memory")
    return there is not None and device.consumed.get("memory", 0) >= there - there % _MIB


def _known(memory_bytes: int | None, multiprocessors: int | None) -> dict[str, int]:
    amounts = {"memory": memory_bytes, "multiprocessors": multiprocessors}
    return {name: amount for name, amount in amounts.items() if amount}


def overdraft(record: ClaimRecord, others: Iterable[ClaimRecord], known: Capacities) -> Overdraft | None:
    """The first capacity that the shares of `record` and of `others` overdraw together; None where they fit."""
    others = [other for other in others if other.uid != record.uid]
    for device in record.devices:
        for name in device.consumed:
            total = known.get(device.uuid, {}).get(name)
            if total is None:
                continue
            holders = tuple(other for other in others if _taken(other, device.uuid, name))
            held = sum(_taken(other, device.uuid, name) for other in holders)
            wanted = _taken(record, device.uuid, name)
            if wanted and wanted + held > total:
                return Overdraft(
                    device=device.device, capacity=name, wanted=wanted, held=held, total=total, holders=holders
                )
    return None


def _taken(record: ClaimRecord, uuid: str, capacity: str) -> int:
    return sum(d.consumed.get(capacity, 0) for d in record.devices if d.uuid == uuid and not d.admin)


def _amount(capacity: str, value: int) -> str:
    return str(Quantity(value, 0, "BinarySI" if capacity == "memory" else "DecimalSI"))
