"""Devices of one GPU that overlap and do not say so by counters: of such a GPU at most one device is allocated.

A whole GPU and its partitions are made of the same hardware. Drivers say so by shared counters, and an apiserver whose gate
DRAPartitionableDevices is off (1.34 and 1.35 without flags) drops them: then each device looks as if it were there by itself.
A GPU's devices overlap where the GPU is published beside parts of it, or two parts of it cover the same memory slice; and
where one of them declares no counters, each of them draws the only one of a counter that this module adds.
Partitions that exist at the same time (static MIG: their GPU is not published, no two cover one memory slice) are left alone.

Example: gpu-0, gpu-0-mig-1g.10gb-19-0 and gpu-0-mig-3g.40gb-9-0, all without counters: once one of them is allocated, no claim
is given another. The added counter counts as the whole GPU, so its holder is charged for all of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from fairlead.api.drivers import DriverAttributes, attributes_of, first_of
from fairlead.engine.inventory.attributes import is_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fairlead.engine.inventory.counters import NamedConsumption
    from fairlead.engine.inventory.device import Device

ADDED: Final = "undeclared/"
"""How the names of added counter sets begin: no driver can publish such a name."""
_MEMORY_SLICE = re.compile(r"memorySlice[0-9]+")


def added_counters(devices: Sequence[Device]) -> Mapping[str, NamedConsumption]:
    """By name of the devices that overlap without saying so: what each draws besides. All devices are of one pool."""
    if all(device.kind.counter_consumption for device in devices):
        return {}  # most pools with many devices: two million devices are looked at no closer
    parts = _parts(devices)
    if not parts:
        return {}
    wholes = _wholes(devices, parts)
    added: dict[str, NamedConsumption] = {}
    for parent, found in parts.items():
        own = wholes.get(parent, ())
        every = (*own, *found)
        if all(device.kind.counter_consumption for device in every) or not (own or _cover_one_slice(found)):
            continue
        draw = (((f"{ADDED}{parent}", "device"), 1),)
        added |= {device.name: draw for device in every}
    return added


def totals(added: Mapping[str, NamedConsumption]) -> NamedConsumption:
    """The added counters themselves: one of each."""
    return tuple(sorted({counter for draw in added.values() for counter in draw}))


def _parts(devices: Iterable[Device]) -> dict[str, list[Device]]:
    """Partitions by their GPU, as they name it."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        known = attributes_of(device.pool.driver)
        if known.parent and is_part(device) and (parent := _named(device, known, known.parent)):
            found.setdefault(parent, []).append(device)
    return found


def _wholes(devices: Iterable[Device], parts: Mapping[str, object]) -> dict[str, list[Device]]:
    """Whole GPUs of which there are parts, by what these name."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        known = attributes_of(device.pool.driver)
        own = _named(device, known, known.parent_of)
        if own in parts and not is_part(device):
            found.setdefault(own, []).append(device)
    return found


def _named(device: Device, known: DriverAttributes, names: Sequence[str]) -> str:
    value = first_of(known, names, device.attribute)
    return "" if value is None or value.value is None else str(value.value)


def _cover_one_slice(parts: Iterable[Device]) -> bool:
    seen: set[str] = set()
    for device in parts:
        own = {name for name, _ in device.kind.capacity if _MEMORY_SLICE.fullmatch(name)}
        if seen & own:
            return True
        seen |= own
    return False
