"""Devices as the ledger counts them: of which physical device they are, how much of it, and of which flavor."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.ledger import Consumption
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.queues.charges import Charges, share
from fairlead.engine.types.settings import FlavorSpec
from fairlead.engine.types.values import DeviceRef
from fairlead.history.ledger.entries import WHOLE_PPM, Measure, Unit

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
