"""Which devices of a node first: those whose loss hurts future requests least.

Exists so that the search, which takes the first that fits, takes the right ones: the tightest NVLink island and NUMA node
that holds the request whole, GPUs that are cut already before whole ones, the fullest shared device that still has room.
Changes only the order: what is possible stays possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fairlead.api.names import NUMA_NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from fairlead.engine.allocator.candidates import Candidates
    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.inventory.pool import Pool
    from fairlead.engine.types.amounts import Amount

ISLAND = "nvlinkDomain"
T = TypeVar("T")


def preferred(ask: CompiledRequest, found: Candidates, ledger: Ledger) -> Sequence[Device]:
    """The candidates that are free, best first. Ties keep the inventory's order."""
    if ask.admin:
        return found.devices
    if found.plain:
        return tightest(free_of(found, ledger), ask.count)
    parents: Parents = {}
    return sorted(found.devices, key=lambda device: _cost(device, ledger, parents))


def free_of(found: Candidates, ledger: Ledger) -> list[Device]:
    """Of whole devices without counters, those that nobody has."""
    taken = ledger.taken
    if ledger.empty:
        return [device for device in found.devices if device not in taken]
    if ledger.gone:
        return [device for device in found.devices if ledger.free(device)]
    return [device for device in found.devices if device.use is None and device not in taken]


def tightest(free: list[Device], count: int) -> list[Device]:
    """Whole devices: the smallest island with enough of them, in it the smallest NUMA node; else the largest first."""
    if len(free) <= 1 or len(free) == count:
        return free
    homes: dict[tuple[object, object], list[Device]] = {}
    for device in free:
        home = device.home or _home(device)
        together = homes.get(home)
        if together is None:
            homes[home] = [device]
        else:
            together.append(device)
    if len(homes) == 1:
        return free
    islands: dict[object, list[list[Device]]] = {}
    for (island, _), devices in homes.items():
        islands.setdefault(island, []).append(devices)
    ordered: list[Device] = []
    for nodes in _by_fit(list(islands.values()), count, _total) if len(islands) > 1 else islands.values():
        for devices in _by_fit(nodes, count, len) if len(nodes) > 1 else nodes:
            ordered += devices
    return ordered


def _by_fit(groups: list[T], count: int, size: Callable[[T], int]) -> list[T]:
    """Groups that hold the request whole, smallest first; then the others, largest first."""
    sizes = [size(group) for group in groups]
    order = sorted(
        range(len(groups)),
        key=lambda number: (sizes[number] < count, sizes[number] if sizes[number] >= count else -sizes[number]),
    )
    return [groups[number] for number in order]


def _total(nodes: list[list[Device]]) -> int:
    return sum(map(len, nodes))


def _home(device: Device) -> tuple[object, object]:
    home = device.home = (device.values(f"{device.pool.driver}/{ISLAND}"), device.values(NUMA_NODE))
    return home


# Of a parent: how whole it is, and what its counters have left.
Parents = dict[tuple["Pool", str], tuple[float, tuple["Amount", ...]]]


def _cost(device: Device, ledger: Ledger, parents: Parents) -> tuple[float, float, tuple[float, ...]]:
    """(how much of its parent it takes, how whole the parent still is, what it would leave of it): low is better."""
    if device.draws:
        layout = device.pool.layout
        key = (device.pool, layout.set_of(device.draws))
        parent = parents.get(key)
        if parent is None:
            parent = parents[key] = _parent(*key, ledger)
        whole, free = parent
        return (layout.size(device.draws), whole, layout.left_after(device.draws, free))
    if device.shared:
        return (0.0, _room_left(device, ledger), ())
    return (1.0, 1.0, ())


def _parent(pool: Pool, counter_set: str, ledger: Ledger) -> tuple[float, tuple[Amount, ...]]:
    places, totals = pool.layout.sets[counter_set], pool.layout.totals
    mine = ledger.counters.get(pool)
    free = tuple(
        totals[place] - (0 if ledger.empty else pool.used[place]) - (0 if mine is None else mine[place])
        for place in places
    )
    total = sum(totals[place] for place in places)
    return (float(sum(free) / total) if total else 1.0, free)


def _room_left(device: Device, ledger: Ledger) -> float:
    mine = ledger.used.get(device, {})
    theirs = device.use.consumed if device.use is not None and not ledger.empty else {}
    least: Fraction | float = 1.0
    for name, total in device.kind.totals.items():
        if total:
            least = min(least, 1 - (mine.get(name, 0) + theirs.get(name, 0)) / total)
    return float(least)
