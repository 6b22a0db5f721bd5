"""Whether the shares of a GPU, or of a MIG device, take more of it than it has. Pure.

The last defence, as `records.conflict` is for whole devices: a delayed or forged allocation can give out a GPU's memory
twice. Example: shares of 40Gi and 30Gi are prepared on a GPU of 80Gi; one of 20Gi more is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from fairlead.driver.backend.types import Gpu
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord
from fairlead.kube.quantity import Quantity

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
