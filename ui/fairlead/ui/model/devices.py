"""Published devices as people see them: GPUs of a pool with the MIG devices that lie in each, and how busy those of a gang are; pure.

A GPU that is cut on demand publishes every placement of every profile, over counters that exclude what overlaps: they are parts of
one GPU, and only those that a claim holds are there. A GPU that an administrator cut publishes its MIG devices alone: all are there.
Example: `gpu-3` with a counter set of memory-slice-0 to -7; `gpu-3-mig-3g40gb-9-4` lies at 4 and takes 4 of 8.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from fairlead.api.drivers import DRIVERS, attributes_of
from fairlead.api.texts import natural
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.models import is_part, text
from fairlead.engine.inventory.pool import Pool
from fairlead.kube import nulls
from fairlead.kube.device_usage import FRESH_S, DeviceId, DeviceUsage, usage_of
from fairlead.kube.resource import ResourceClaim, ResourceSlice
from fairlead.kube.resources import Raw
from fairlead.ui.model.gangs import age

T = TypeVar("T")
_SLICE = re.compile(r"memory-?[sS]lice-?([0-9]{1,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlace:
    """A part of a GPU: it takes `size` of the GPU's memory slices, from `start` up. `size` 0: the place is not published."""

    device: Device
    profile: str
    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlace:
    """One GPU. `whole` None: only its parts are published. `cut`: its parts are there, whether or not a claim holds them."""

    name: str
    product: str
    island: str
    whole: Device | None
    parts: tuple[PartPlace, ...]
    slices: int
    cut: bool
    devices: tuple[Device, ...]  # all of them


class Places:
    """The GPUs of pools; each pool is looked at again when it was republished."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Pool, int, tuple[GpuPlace, ...]]] = {}

    def of(self, pool: Pool) -> tuple[GpuPlace, ...]:
        """The devices by island, then by name, `gpu-2` before `gpu-10`."""
        key = (pool.driver, pool.name)
        known = self._known.get(key)
        if known is None or known[0] is not pool or known[1] != pool.built:
            known = self._known[key] = (pool, pool.built, tuple(gpus(pool)))
        return known[2]


def gpus(pool: Pool) -> list[GpuPlace]:
    groups: dict[str, list[Device]] = {}
    names = _names_by_identity(pool)
    for device in pool.devices.values():
        groups.setdefault(_parent(device, names), []).append(device)
    found = [_gpu(name, devices, pool.driver) for name, devices in groups.items()]
    # GPUs without an island, such as those in MIG mode, follow those that have one.
    return sorted(found, key=lambda gpu: (not gpu.island, natural(gpu.island), natural(gpu.name)))


def _names_by_identity(pool: Pool) -> dict[str, str]:
    found = {}
    for device in pool.devices.values():
        name = "" if is_part(device) else text(device, attributes_of(device.pool.driver).parent_of)
        if name:
            found[name] = device.name
    return found


def _parent(device: Device, names: dict[str, str]) -> str:
    """The GPU's name: that of the whole one where it is published."""
    known = attributes_of(device.pool.driver)
    parent = text(device, known.parent) if is_part(device) else ""
    if not parent:
        return device.name
    if parent in names:
        return names[parent]
    minor = text(device, (known.parent_number,)) if known.parent_number else ""
    return f"gpu-{minor}" if minor else parent


def _gpu(name: str, devices: Iterable[Device], driver: str) -> GpuPlace:
    known = attributes_of(driver)
    whole: Device | None = None
    parts: list[PartPlace] = []
    slices = 0
    for device in devices:
        covered = _covered(device)
        slices = max(slices, *(at + 1 for at in covered)) if covered else slices
        if is_part(device):
            profile = text(device, (known.profile,)) if known.profile else ""
            parts.append(PartPlace(device=device, profile=profile, start=min(covered, default=0), size=len(covered)))
        else:
            whole = device
    parts.sort(key=lambda part: (part.start, part.size, part.device.name))
    first = whole or parts[0].device
    return GpuPlace(
        name=name,
        product=text(first, known.product),
        island=text(first, [*reversed([name for _, name in known.islands]), *known.cliques]),
        whole=whole,
        parts=tuple(parts),
        devices=(*(() if whole is None else (whole,)), *(part.device for part in parts)),
        slices=slices or 8,
        cut=whole is None and not any(part.device.counter_consumption for part in parts),
    )


def _covered(device: Device) -> list[int]:
    """Numbers of the memory slices that it takes."""
    consumed = [name for (_, name), amount in device.kind.counter_consumption if amount]
    found = (
        _SLICE.fullmatch(name.rpartition("/")[2]) for name in (*consumed, *(name for name, _ in device.kind.capacity))
    )
    return sorted({int(match[1]) for match in found if match})


LISTED_MAX = 8
ENDS_WITH = "a fatal error of one program ends the claim's other programs on the device, and no other claim's"


def readable(claims: Iterable[Raw]) -> Iterator[ResourceClaim]:
    """The entries that are of the API's form."""
    return _of_form(claims, ResourceClaim)


def readable_slices(slices: Iterable[Raw]) -> Iterator[ResourceSlice]:
    """The entries that are of the API's form."""
    return _of_form(slices, ResourceSlice)


def _of_form(found: Iterable[Raw], kind: type[T]) -> Iterator[T]:
    for raw in found:
        with contextlib.suppress(msgspec.ValidationError):
            yield nulls.convert(raw, kind)


def busy_line(claims: Iterable[ResourceClaim], pods: Collection[str], *, now: float) -> str:
    """How busy the claims that are reserved for these pods (UIDs) are; "" where the driver said nothing lately."""
    devices: set[DeviceId] = set()
    said: dict[DeviceId, DeviceUsage] = {}
    for claim in claims:
        status = claim.status
        if status.allocation is None or not any(each.uid in pods for each in status.reserved_for):
            continue
        devices |= {
            DeviceId(each.driver, each.pool, each.device, each.share_id)
            for each in status.allocation.devices.results
            if each.driver in DRIVERS and not each.admin_access
        }
        said |= usage_of(ResourceClaim(status=status))
    known = {
        device: usage for device, usage in said.items() if device in devices and usage.sampled_at_s >= now - FRESH_S
    }
    idle = sorted((usage.since_s, device) for device, usage in known.items() if usage.state == "Idle")
    busy = sum(1 for usage in known.values() if usage.state == "Busy")
    shares = _shares(known)
    if not idle and not busy:
        return shares
    listed = ", ".join(
        f"{device.pool}/{device.device} for {age(max(0.0, now - since))}" for since, device in idle[:LISTED_MAX]
    )
    more = f" and {len(idle) - LISTED_MAX} more" if len(idle) > LISTED_MAX else ""
    counted = f"{len(idle)} of {len(devices)} idle, {busy} busy" + (f"; idle: {listed}{more}" if idle else "")
    return "; ".join(filter(None, (counted, shares)))


def _shares(known: Mapping[DeviceId, DeviceUsage]) -> str:
    """What the shares have, use and are held to, and what an error of one of their programs ends."""
    own = sorted((device.pool, device.device, share_text(usage)) for device, usage in known.items() if device.share_id)
    if not own:
        return ""
    listed = ", ".join(f"{pool}/{device} {said}" for pool, device, said in own[:LISTED_MAX])
    more = f" and {len(own) - LISTED_MAX} more" if len(own) > LISTED_MAX else ""
    held = any(usage.memory_limit_bytes is not None for device, usage in known.items() if device.share_id)
    return f"shares: {listed}{more}" + (f"; {ENDS_WITH}" if held else "")


def share_text(usage: DeviceUsage) -> str:
    """What a claim's share of a device is, what of it is in use, and to what its programs are held."""
    size = "all" if usage.memory_bytes is None else _gib(usage.memory_bytes)
    said = f"share of {size}"
    if usage.memory_used_bytes is not None:
        said = f"{_gib(usage.memory_used_bytes)} of a {said}"
    limits = []
    if usage.memory_limit_bytes is not None:
        limits.append(_gib(usage.memory_limit_bytes))
    if usage.multiprocessors_limit is not None:
        limits.append(f"{usage.multiprocessors_limit} multiprocessors")
    return f"{said}, each program at most {' and '.join(limits)} by MPS" if limits else f"{said}, held to it by nothing"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
