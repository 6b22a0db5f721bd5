"""What the driver remembers of a claim, and when two claims are in each other's way.

Exists because unprepare gets a UID and nothing else, and because the API does not keep two claims off one device: the
driver is the last line of defence. Data and pure rules; the disk is checkpoint.py's, the steps are prepare.py's.
Keeps: a record holds all that is needed to undo the claim without the API. Unknown fields are ignored on reading, so
that a newer driver's record can be read after a downgrade.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from fairlead.driver.backend.types import ComputeMode, TimeSlice


class _Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class MigRecord(_Record, frozen=True, kw_only=True):
    """Which MIG device. `made` tells of one that the claim brought into being, and so has to take away.

    "no": it was there before (static). "planned": not yet begun. "creating": maybe there. "live": there, with its IDs.
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
    """One allocation result of the claim. `request` is as the allocation names it, "main" or "main/sub".

    `time_slice` is set on the GPU while the claim has it, and set back afterwards; `sliced` from before it is set on.
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

    @property
    def request_name(self) -> str:
        """The request as kubelet knows it: a container names `main`, whichever alternative was chosen."""
        return self.request.partition("/")[0]

    @property
    def uuid(self) -> str:
        """Of what the container gets: the MIG device as far as it is there, the GPU else."""
        return self.mig.uuid if self.mig and self.mig.uuid else self.gpu_uuid

    @property
    def cdi_name(self) -> str:
        """The device's name, and the share's: two shares of one device may be in one claim."""
        return f"{self.device}-{self.share_id}" if self.share_id else self.device

    @property
    def allocated(self) -> tuple[str, str, str, str | None, bool]:
        """What the allocation said, to compare with what it says now."""
        return self.request, self.pool, self.device, self.share_id, self.admin


class MpsRecord(_Record, frozen=True, kw_only=True):
    """The MPS daemon that serves `devices` (by name) of the claim, with what a client may use.

    `modes` holds what the compute mode was of each GPU (by UUID) that the daemon has for itself, and `begun` is set, from
    before anything is changed.
    """

    devices: tuple[str, ...]
    active_thread_percentage: int | None = None
    memory_mib: dict[str, int] = {}
    multi_user: bool = False
    begun: bool = False
    modes: dict[str, ComputeMode] = {}


class ClaimRecord(_Record, frozen=True, kw_only=True):
    """One claim. "preparing" and "unpreparing": somebody was at it; nobody was told that it is done.

    `pod_claim` is what the pod calls the claim, where a template made it.
    """

    uid: str
    namespace: str
    name: str
    state: Literal["preparing", "prepared", "unpreparing"]
    devices: tuple[DeviceRecord, ...] = ()
    mps: MpsRecord | None = None
    pod_claim: str | None = None

    def __str__(self) -> str:
        return f"ResourceClaim {self.namespace}/{self.name} ({self.uid})"


def conflict(wanted: Iterable[DeviceRecord], records: Iterable[ClaimRecord]) -> tuple[DeviceRecord, ClaimRecord] | None:
    """The first wanted device that one of `records` holds, with that record; None when there is none."""
    devices = list(wanted)
    for record in records:
        for held in record.devices:
            for device in devices:
                if overlap(device, held):
                    return device, record
    return None


def overlap(one: DeviceRecord, other: DeviceRecord) -> bool:
    """Whether two claims cannot hold these at once. Admin access looks on and takes nothing."""
    if one.admin or other.admin or one.gpu_uuid != other.gpu_uuid:
        return False
    if one.device == other.device and one.share_id and other.share_id:
        return one.share_id == other.share_id
    if one.mig is None or other.mig is None:
        return True
    return one.mig.start < other.mig.start + other.mig.size and other.mig.start < one.mig.start + one.mig.size


_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,126}[A-Za-z0-9])?")


def valid_uid(uid: str) -> bool:
    """Whether a claim's UID may become part of a file's name and of a CDI device's name."""
    return _UID.fullmatch(uid) is not None
