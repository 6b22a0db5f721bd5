"""The devices of a node, each with the reason why it serves none of a gang's requests, or none."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from fairlead.api import certificate as form
from fairlead.engine.allocator.candidates import rejection
from fairlead.engine.types.amounts import consumption
from fairlead.engine.types.reasons import Rejection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.inventory import Inventory
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.inventory.node_devices import NodeDevices
    from fairlead.engine.inventory.selectors import Selectors

_WORDS = {
    Rejection.CLASS: "class",
    Rejection.SELECTOR: "selector",
    Rejection.SELECTOR_ERROR: "error",
    Rejection.CAPACITY: "capacity",
    Rejection.TAINT: "taint",
}


class Listing:
    """`requests`: every alternative of every request of every kind of unit. `taken_by`: gangs by what is given to them."""

    def __init__(
        self,
        inventory: Inventory,
        selectors: Selectors,
        ledger: Ledger,
        taken_by: Mapping[Device, str],
        requests: Sequence[CompiledRequest],
    ) -> None:
        self._inventory = inventory
        self._selectors = selectors
        self._ledger = ledger
        self._taken_by = taken_by
        self._requests = requests

    def of(self, nodes: Iterable[NodeDevices]) -> form.Devices:
        """All that some of the nodes reach, each device once."""
        reached: dict[Device, form.RuledOut | None] = {}
        for node in nodes:
            for device in node.devices:
                if device not in reached:
                    reached[device] = self._ruled_out(device, node)
        return form.Devices(
            free=tuple(device_id(device) for device, why in reached.items() if why is None),
            ruled_out=tuple(why for why in reached.values() if why is not None),
        )

    def _ruled_out(self, device: Device, node: NodeDevices) -> form.RuledOut | None:
        words = [self._word(device, request, node) for request in self._requests]
        if all(words):
            return form.Filtered(device=device_id(device), by=tuple(words))
        if any(request.admin for request, word in zip(self._requests, words, strict=True) if not word):
            return None
        if (claim := self._holder(device)) is not None:
            return form.Held(device=device_id(device), claim=claim)
        if not self._ledger.free(device):
            return form.GivenAway(device=device_id(device), gang=self._taken_by[device])
        return self._counter(device)

    def _word(self, device: Device, request: CompiledRequest, node: NodeDevices) -> str:
        """Why it does not serve this one; "" if it may."""
        why = rejection(device, request.filter, node, self._selectors)
        if why is not None:
            return _WORDS[why]
        if not device.shared:
            return ""
        takes = consumption(request.filter.capacity, device.kind.spec.capacity, driver=device.pool.driver, shared=True)
        return "" if takes is not None and self._ledger.capacity_fits(device, takes) else "full"

    def _holder(self, device: Device) -> str | None:
        """The first claim, by name, that has all of it."""
        if device.use is None:
            return None
        claims = [claim for uid in device.use.claims if (claim := self._inventory.claim(uid)) is not None]
        if device.shared:
            claims = [
                claim for claim in claims if any(h.whole and not h.admin and h.ref == device.ref for h in claim.devices)
            ]
        return min(map(str, claims), default=None)

    def _counter(self, device: Device) -> form.Counter | None:
        if self._ledger.counters_fit(device):
            return None
        pool = device.pool
        own = self._ledger.counters.get(pool) or [0] * len(pool.used)
        for index, needs in device.counter_consumption:
            left = Fraction(pool.layout.totals[index]) - pool.used[index] - own[index]
            if left < needs:
                counter_set, name = pool.layout.keys[index]
                return form.Counter(
                    device=device_id(device),
                    counter_set=counter_set,
                    counter=name,
                    left=str(left),
                    needs=str(Fraction(needs)),
                )
        raise AssertionError(f"{device.ref}: no counter is short")


def device_id(device: Device) -> form.DeviceId:
    return (device.pool.driver, device.pool.name, device.name)
