"""Which devices of a node first: those whose loss hurts future requests least.

Exists so that the search, which takes the first that fits, takes the right ones: the tightest NVLink island and NUMA node
that holds the request whole, GPUs that are cut already before whole ones, the fullest shared device that still has room.
Changes only the order: what is possible stays possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.api.names import NUMA_NODE
from fairlead.controller.counters import share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from fairlead.controller.allocator_candidates import Candidates
    from fairlead.controller.allocator_requests import Ask
    from fairlead.controller.inventory import Device
    from fairlead.controller.inventory_ledger import Ledger

ISLAND = "nvlinkDomain"


def preferred(ask: Ask, found: Candidates, ledger: Ledger) -> Sequence[Device]:
    """The candidates, free or not, best first. Ties keep the inventory's order."""
    if found.plain:
        free = [device for device in found.devices if ledger.free(device)]
        return tightest(free, ask.count) + [device for device in found.devices if not ledger.free(device)]
    return sorted(found.devices, key=lambda device: _cost(device, ledger))


def tightest(free: list[Device], count: int) -> list[Device]:
    """Whole devices: the smallest island with enough of them, in it the smallest NUMA node; else the largest first."""
    if len(free) <= 1 or len(free) == count:
        return free
    return _by_group(free, count, (_island, _numa))


def _by_group(devices: list[Device], count: int, keys: tuple[Callable[[Device], object], ...]) -> list[Device]:
    if not keys:
        return devices
    groups: dict[object, list[Device]] = {}
    for device in devices:
        groups.setdefault(keys[0](device), []).append(device)
    if len(groups) == 1:
        return _by_group(devices, count, keys[1:])
    # Groups that hold the request whole, smallest first; then the others, largest first.
    ordered = sorted(
        groups.values(), key=lambda group: (len(group) < count, len(group) if len(group) >= count else -len(group))
    )
    return [device for group in ordered for device in _by_group(group, count, keys[1:])]


def _island(device: Device) -> object:
    return device.values(f"{device.pool.driver}/{ISLAND}")


def _numa(device: Device) -> object:
    return device.values(NUMA_NODE)


def _cost(device: Device, ledger: Ledger) -> tuple[float, float, int]:
    """(how whole its parent or itself still is, how much of it this takes, 0): low is better."""
    if device.draws:
        parent = device.draws[0][0].counter_set
        counters = [counter for key, counter in device.pool.counters.items() if key[0] == parent]
        total = sum(counter.total for counter in counters)
        used = sum(ledger.counters.get(counter, 0) + (0 if ledger.empty else counter.used) for counter in counters)
        return (float(share(device.draws)), float(1 - used / total) if total else 1.0, 0)
    if device.shared:
        return (0.0, _room_left(device, ledger), 0)
    return (1.0, 1.0, 0)


def _room_left(device: Device, ledger: Ledger) -> float:
    mine = ledger.used.get(device, {})
    theirs = device.use.consumed if device.use is not None and not ledger.empty else {}
    least: Fraction | float = 1.0
    for name, total in device.totals.items():
        if total:
            least = min(least, 1 - (mine.get(name, 0) + theirs.get(name, 0)) / total)
    return float(least)
