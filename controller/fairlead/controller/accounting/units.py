"""Devices as the ledger counts them: of which physical device (unit) they are, how much of it, of which flavor, and what a free one is good for.

A unit that no claim holds is good for a usual request, for a gang that it is held for, or for nothing: drained, broken, or fragmented.
The usual requests are those that placement learns from (`engine.types.workload`): what a pod asks of devices by one claim, and of
its node. A free device is fragmented where none of them that has room on the node could be given it.
Example: a node has two free GPUs and no CPU left; the usual requests all need CPU: both are fragmented.
Constraints between devices of a claim are not considered: what is called free here may still not fit one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from fairlead.api import repair
from fairlead.api.capacity_types import capacity_type
from fairlead.engine.allocator.candidates import candidates, taints
from fairlead.engine.allocator.requests import CompiledRequest, Compiler, InvalidClaimError
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.inventory.pool import NodeDevices
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.queues.charges import Charges, share
from fairlead.engine.types.pods import PodNeeds, Workload
from fairlead.engine.types.settings import FlavorSpec
from fairlead.engine.types.values import Consumption, DeviceRef, qualified
from fairlead.history.ledger.entries import WHOLE_PPM, Measure, Unavailable, Unit, UnitSeen, Vacancy
from fairlead.kube import resource

DEVICES_MAX = 100_000  # measures remembered
POOLS_MAX = 100_000


class Units:
    """Which physical device each device is part of."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._names: dict[
            tuple[str, str], tuple[int, dict[str, str]]
        ] = {}  # by pool: as of which build, by counter set

    def of(self, device: Device) -> Unit:
        """The device that is all of its counter set, so that a GPU stays one unit when it becomes MIG-capable; the set where there is none.

        A device without counters is a unit by itself.
        """
        pool = device.pool
        name = device.name
        if device.counter_consumption:
            counter_set = pool.layout.counter_set_of(device.counter_consumption)
            name = self._whole(pool.driver, pool.name).get(counter_set, counter_set)
        return Unit(pool.driver, pool.name, name)

    def _whole(self, driver: str, name: str) -> dict[str, str]:
        pool = self._inventory.pool(driver, name)
        if pool is None:
            return {}
        known = self._names.get((driver, name))
        if known is None or known[0] != pool.built:
            if len(self._names) >= POOLS_MAX:
                self._names.clear()
            wholes: dict[str, str] = {}
            for device in pool.devices.values():
                if device.counter_consumption and pool.layout.share(device.counter_consumption) == 1:
                    wholes.setdefault(pool.layout.counter_set_of(device.counter_consumption), device.name)
            known = self._names[driver, name] = (pool.built, wholes)
        return known[1]


def unpublished(ref: DeviceRef) -> Unit:
    """A device that no slice lists (any more) counts by itself."""
    return Unit(ref.driver, ref.pool, ref.device)


class Measures:
    """What a device counts for by the flavors of now. `priced`: names of those with a price, which come before the others where several take a device."""

    def __init__(self, flavors: Iterable[FlavorSpec], priced: Iterable[str]) -> None:
        self._charges = Charges(tuple(flavors), Selectors())
        self._priced = frozenset(priced)
        self._known: dict[tuple[Device, Consumption, str | None], Measure] = {}
        self._wholes: dict[Measure, Measure] = {}  # equal ones are one object

    def of(self, device: Device, consumption: Consumption, capacity_type: str | None) -> Measure:
        """`consumption`: of a shared device, what is taken of it."""
        key = (device, consumption, capacity_type)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= DEVICES_MAX:
                self._known.clear()
            known = self._known[key] = self._measure(device, consumption, capacity_type)
        return known

    def whole(self, devices: Iterable[Device], capacity_type: str | None) -> Measure:
        """The measure of a unit's largest device, which is the whole one where it is published."""
        largest = max(devices, key=lambda device: (share(device, ()), device.name))
        consumption = tuple(largest.kind.totals.items()) if largest.shared else ()
        found = self.of(largest, consumption, capacity_type)
        part = Fraction(share(largest, ()))
        whole = Measure(
            share_ppm=WHOLE_PPM,
            flavor=found.flavor,
            amount=found.amount / part if part else found.amount,
            capacity_type=capacity_type,
        )
        return self._wholes.setdefault(whole, whole)  # fmt: skip

    def _measure(self, device: Device, consumption: Consumption, capacity_type: str | None) -> Measure:
        charges = self._charges.of_device(device, consumption)
        flavor = min(charges, key=lambda name: (name not in self._priced, name), default="")
        return Measure(
            share_ppm=min(WHOLE_PPM, round(Fraction(share(device, consumption)) * WHOLE_PPM)),
            flavor=flavor,
            amount=Fraction(charges.get(flavor, 0)),
            capacity_type=capacity_type,
        )


ANYWHERE = ""  # the node of devices that no one node has
UNPUBLISHED_S = 86_400.0
"""A unit that its node does not publish any more counts as broken for so long; then as removed."""


class NodeUnits:
    """`look` at a node that changed; `known` is what was told last."""

    def __init__(self, inventory: Inventory, nodes: NodeTable) -> None:
        self.units = Units(inventory)
        self._inventory = inventory
        self._nodes = nodes
        self._known: dict[str, dict[Unit, UnitSeen]] = {}
        self._unpublished: dict[Unit, float] = {}  # since when, unix seconds

    def names(self) -> set[str]:
        """Names of all nodes that have devices, or had."""
        return {*(node.name for node in self._nodes.all()), *self._known, ANYWHERE}

    def capacity_type(self, node: str | None) -> str | None:
        info = self._nodes.get(node) if node else None
        return capacity_type(info.labels) if info is not None else None

    def known(self) -> Iterator[UnitSeen]:
        for units in self._known.values():
            yield from units.values()

    def look(
        self, node: str, measures: Measures, usual: UsualRequests, reserved: Collection[str], now: float
    ) -> tuple[list[UnitSeen], list[Unit]]:
        """What changed of its units, and those that are gone. `reserved`: nodes that are held for a gang."""
        before = self._known.get(node, {})
        found = {each.unit: each for each in self._units(node, measures, usual, reserved)}
        gone: list[Unit] = []
        for unit, seen in before.items():
            if unit in found:
                self._unpublished.pop(unit, None)
                continue
            since = self._unpublished.setdefault(unit, now)
            if self._nodes.get(node) is not None and now - since < UNPUBLISHED_S:
                found[unit] = UnitSeen(unit=unit, node=node, whole=seen.whole, vacancy="broken")
            else:
                gone.append(unit)
                del self._unpublished[unit]
        if found:
            self._known[node] = found
        else:
            self._known.pop(node, None)
        return [seen for unit, seen in found.items() if before.get(unit) != seen], gone

    def _units(
        self, name: str, measures: Measures, usual: UsualRequests, reserved: Collection[str]
    ) -> Iterator[UnitSeen]:
        node = self._nodes.get(name)
        devices = self._inventory.on_node(name, node.labels) if node is not None else None
        useful = of_use(node, devices, usual, self.units) if node is not None and devices is not None else None
        kind = self.capacity_type(name)
        for unit, own, usable in self._grouped(name, devices):
            at = unavailable(node, own, self._inventory.rules, anywhere=name == ANYWHERE) if usable else "broken"
            state = vacancy(unit, closed=at, reserved=name in reserved, useful=useful)
            yield UnitSeen(unit=unit, node=name, whole=measures.whole(own, kind), vacancy=state)

    def _grouped(self, name: str, devices: NodeDevices | None) -> Iterator[tuple[Unit, list[Device], bool]]:
        """Units in order, their devices, and whether their pool can be used."""
        found: dict[Unit, list[Device]] = {}
        unusable: dict[Unit, list[Device]] = {}
        if name == ANYWHERE:
            for pool in self._inventory.pools_unordered():
                self._group(pool.network_attached, found if pool.problem is None else unusable)
        elif devices is not None:
            self._group((device for device in devices.devices if device.node is not None), found)
            for pool in devices.problems:
                self._group(pool.local.get(name, ()), unusable)
        yield from ((unit, own, True) for unit, own in sorted(found.items()))
        yield from ((unit, own, False) for unit, own in sorted(unusable.items()) if unit not in found)

    def _group(self, devices: Iterable[Device], into: dict[Unit, list[Device]]) -> None:
        for device in devices:
            into.setdefault(self.units.of(device), []).append(device)


Usual = tuple[PodNeeds, CompiledRequest]


class UsualRequests:
    """The requests of a workload, compiled against the classes of now."""

    def __init__(self, workload: Workload | None, classes: Mapping[str, resource.DeviceClass]) -> None:
        self.selectors = Selectors()
        self.all: tuple[Usual, ...] = tuple(_compiled(workload, classes)) if workload is not None else ()


def _compiled(workload: Workload, classes: Mapping[str, resource.DeviceClass]) -> Iterable[Usual]:
    compiler = Compiler(classes)
    for demand in workload.demands:
        try:
            claim = compiler.compile_spec(demand.spec)
        except InvalidClaimError:
            continue
        for alternatives in claim.alternatives:
            for request in alternatives:
                if not request.admin:
                    yield demand.needs, request


def unavailable(
    node: NodeInfo | None,
    devices: Sequence[Device],
    rules: Sequence[resource.DeviceTaintRuleSpec],
    *,
    anywhere: bool = False,
) -> Unavailable | None:
    """Why nothing can be given of a unit; None: something can.

    Broken: its node is gone or not ready, or each of its devices is tainted by more than drains. Drained: an operator keeps it back, its
    node is cordoned or its devices are drained, and nothing else is wrong. `anywhere`: it has no node.
    """
    if not anywhere and (node is None or not node.ready):
        return "broken"
    found = [tuple(taints(device, rules)) for device in devices]
    cordoned = not anywhere and node is not None and node.unschedulable
    if not cordoned and not all(found):
        return None
    return "drained" if all(drains(taint) for own in found for taint in own) else "broken"


def drains(taint: resource.DeviceTaint) -> bool:
    """Whether an operator keeps the GPU back, in either of the two ways that `fairlead device drain` has."""
    return taint.key == repair.DRAIN_TAINT or (taint.key == repair.TAINT and taint.value == "drained")


def of_use(node: NodeInfo, devices: NodeDevices, usual: UsualRequests, units: Units) -> set[Unit] | None:
    """The units of which a usual request could be given a device now. None: nothing is known of what is usual."""
    if not usual.all:
        return None
    found: set[Unit] = set()
    for needs, request in usual.all:
        if not _has_room(node, needs):
            continue
        passed = candidates(devices, request.filter, usual.selectors)
        free = [device for device in passed.devices if _available(device, passed.consumption.get(device, ()))]
        enough = len(free) == len(passed.devices) if request.all else len(free) >= request.count
        if free and enough:
            found.update(map(units.of, free))
    return found


def vacancy(unit: Unit, *, closed: Unavailable | None, reserved: bool, useful: Collection[Unit] | None) -> Vacancy:
    if closed is not None:
        return closed
    if reserved:
        return "nominated"
    return "free" if useful is None or unit in useful else "fragmented"


def _has_room(node: NodeInfo, needs: PodNeeds) -> bool:
    if node.refuses(needs) is not None:
        return False
    return all(
        node.used.get(name, 0) + wanted <= node.allocatable.get(name, 0) for name, wanted in needs.requests if wanted
    )


def _available(device: Device, consumption: Consumption) -> bool:
    use = device.use
    held = use is not None and bool(use.claims)
    if use is not None and held:
        if not device.shared or use.whole:
            return False
        totals = device.kind.totals
        names = ((qualified(name, device.pool.driver), value) for name, value in consumption)
        return all(use.consumed.get(name, 0) + value <= totals.get(name, 0) for name, value in names)
    pool = device.pool
    return all(pool.used[index] + value <= pool.layout.totals[index] for index, value in device.counter_consumption)
