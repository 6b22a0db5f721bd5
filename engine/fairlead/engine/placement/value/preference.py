"""The order in which a request tries the devices of a node: those first whose loss costs future requests least.

The search takes the first devices that fit, so this order decides which: the tightest NVLink island and NUMA node that holds
the whole request, GPUs that are cut already before whole ones, the fullest shared device that still has room, of MIG devices
that were cut beforehand the smallest that serves.
Changes only the order, never what is possible.
Example: 2 GPUs wanted, islands of 2 and of 4 free GPUs: those of the first island, so that 4 stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import groupby
from typing import TypeVar

from fairlead.api.drivers import attributes_of
from fairlead.engine.allocator.candidates import Candidates
from fairlead.engine.allocator.requests import CompiledRequest
from fairlead.engine.inventory.counters import PoolCounters
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.inventory.models import numa_of
from fairlead.engine.types.values import Amount

SHARED, WHOLE = (
    0.0,
    1.0,
)  # shares of a parent, as costs: of a shared device, which comes before partitions, and of a whole GPU
WHOLE_SIZE = 1000  # of a GPU, beside MIG devices in thousandths of it
T = TypeVar("T")


def preferred(
    request: CompiledRequest, found: Candidates, ledger: Ledger, devices: Sequence[Device] | None = None
) -> Sequence[Device]:
    """The candidates that are free, best first; of some of them, where those are given. Ties keep the inventory's order."""
    devices = found.devices if devices is None else devices
    if request.admin:
        return devices
    if found.plain:
        return smallest(found, free_of(found, ledger), request.count)
    parents: Parents = {}
    costs = {device: _cost(device, ledger, parents) for device in devices}
    ordered: list[Device] = []
    for cost, group in groupby(sorted(devices, key=costs.__getitem__), key=costs.__getitem__):
        equal = list(group)
        ordered += tightest(equal, request.count) if _untouched(cost) else equal
    return ordered


def free_of(found: Candidates, ledger: Ledger) -> list[Device]:
    """The free whole devices without counters."""
    taken = ledger.taken
    if ledger.empty:
        return [device for device in found.devices if device not in taken]
    if ledger.releasing or ledger.released:
        return [device for device in found.devices if ledger.free(device)]
    return [device for device in found.devices if device.use is None and device not in taken]


def smallest(found: Candidates, free: list[Device], count: int) -> list[Device]:
    """Whole devices: the smallest MIG devices first, where those that were cut beforehand differ; of equal ones the tightest."""
    sizes = found.sizes
    if not sizes or len({sizes.get(device, WHOLE_SIZE) for device in free}) <= 1:
        return tightest(free, count)
    groups: dict[int, list[Device]] = {}
    for device in free:
        groups.setdefault(sizes.get(device, WHOLE_SIZE), []).append(device)
    return [device for size in sorted(groups) for device in tightest(groups[size], count)]


def tightest(free: list[Device], count: int) -> list[Device]:
    """Whole devices: the smallest island with enough of them, in it the smallest NUMA node; else the largest first."""
    if len(free) <= 1 or len(free) == count:
        return free
    localities: dict[tuple[object, object], list[Device]] = {}
    for device in free:
        locality = device.locality or _locality(device, count)
        together = localities.get(locality)
        if together is None:
            localities[locality] = [device]
        else:
            together.append(device)
    if len(localities) == 1:
        return free
    islands: dict[object, list[list[Device]]] = {}
    for (island, _), devices in localities.items():
        islands.setdefault(island, []).append(devices)
    ordered: list[Device] = []
    for numa_nodes in _by_fit(list(islands.values()), count, _total) if len(islands) > 1 else islands.values():
        for devices in _by_fit(numa_nodes, count, len) if len(numa_nodes) > 1 else numa_nodes:
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


def _total(numa_nodes: list[list[Device]]) -> int:
    return sum(map(len, numa_nodes))


def _locality(device: Device, count: int) -> tuple[object, object]:
    """NVLink island and NUMA node; remembered where they are the same however many devices are wanted."""
    known = attributes_of(device.pool.driver)
    island = known.island(count)
    locality = (device.values(island) if island else frozenset(), numa_of(device))
    if len(known.islands) <= 1 or not any(known.qualified(name) in device.schema.index for _, name in known.islands):
        device.locality = locality
    return locality


Cost = tuple[float, float, tuple[float, ...]]
"""Share of its parent, how whole the parent still is, what it would leave of it: low is better."""


def _untouched(cost: Cost) -> bool:
    """Whether it is that of a whole GPU of which nothing is used: of a shared one, or of one that may be cut."""
    share, whole, _ = cost
    return whole == 1.0 and share in {SHARED, WHOLE}


# Of a parent: how whole it is, and what its counters have left.
Parents = dict[tuple["PoolCounters", str], tuple[float, tuple["Amount", ...]]]


def _cost(device: Device, ledger: Ledger, parents: Parents) -> Cost:
    if device.counter_consumption:
        layout = device.pool.layout
        key = (device.pool, layout.counter_set_of(device.counter_consumption))
        parent = parents.get(key)
        if parent is None:
            parent = parents[key] = _parent(*key, ledger)
        whole, free = parent
        return (
            layout.size(device.counter_consumption),
            whole,
            layout.remaining_shares(device.counter_consumption, free),
        )
    if device.shared:
        return (SHARED, _part_left(device, ledger), ())
    return (WHOLE, 1.0, ())


def _parent(pool: PoolCounters, counter_set: str, ledger: Ledger) -> tuple[float, tuple[Amount, ...]]:
    indexes, totals = pool.layout.sets[counter_set], pool.layout.totals
    own = ledger.counters.get(pool)
    free = tuple(
        totals[index] - (0 if ledger.empty else pool.used[index]) - (0 if own is None else own[index])
        for index in indexes
    )
    total = sum(totals[index] for index in indexes)
    return (float(sum(free) / total) if total else 1.0, free)


def _part_left(device: Device, ledger: Ledger) -> float:
    own = ledger.used.get(device, {})
    running = device.use.consumed if device.use is not None and not ledger.empty else {}
    least: Fraction | float = 1.0
    for name, total in device.kind.totals.items():
        if total:
            least = min(least, 1 - (own.get(name, 0) + running.get(name, 0)) / total)
    return float(least)
