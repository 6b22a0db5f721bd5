"""A driver's pool: its slices of all generations, and the devices of the one that counts.

Exists so that the judgement "can these devices be used?" is made in one place, over all slices of the pool, also those of
other nodes. Knows no claims but for the uses it is handed.
Source: structured allocator GatherPools, ValidateSlices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.inventory.counters import CounterLayout, published
from fairlead.kube.quantity import QuantityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairlead.engine.inventory.counters import NamedConsumption
    from fairlead.engine.inventory.device import Device, DeviceInterner, DeviceUse
    from fairlead.engine.types.amounts import Amount
    from fairlead.kube import resource


class SliceEntry:
    """What is kept of a slice."""

    __slots__ = ("count", "counters", "devices", "fault", "generation")

    def __init__(self, pool: Pool, spec: resource.ResourceSliceSpec, sharer: DeviceInterner) -> None:
        self.generation = spec.pool.generation
        self.count = spec.pool.resource_slice_count
        self.counters = spec.shared_counters
        self.devices: list[Device] = []
        self.fault: str | None = None
        before: Device | None = None
        for device in spec.devices:
            try:
                before = sharer.device(pool, device, spec, before)
            except QuantityError as error:
                self.fault = f"device {device.name}: {error}"
                continue
            self.devices.append(before)


class Pool:
    """`problem` says why its devices can't be used; None when they can. `used` is beside `layout.keys`."""

    __slots__ = (
        "binding",
        "built",
        "devices",
        "driver",
        "layout",
        "local",
        "name",
        "problem",
        "roaming",
        "slices",
        "tainted",
        "used",
        "waits",
    )

    def __init__(self, driver: str, name: str) -> None:
        self.driver = driver
        self.name = name
        self.slices: dict[str, SliceEntry] = {}  # all generations, by slice name
        self.devices: dict[str, Device] = {}
        self.layout = CounterLayout(())
        self.used: list[Amount] = []
        self.local: dict[str, list[Device]] = {}  # by node name
        self.roaming: list[Device] = []  # reachable by selector or from everywhere
        self.tainted: list[Device] = []
        self.binding = False
        self.built = 0  # how often
        self.problem: str | None = None
        self.waits = False  # the problem is that slices are still missing

    @property
    def id(self) -> str:
        return f"{self.driver}/{self.name}"

    @property
    def sort_key(self) -> tuple[bool, str, str]:
        return (self.binding, self.driver, self.name)

    def rebuild(self, uses: Mapping[str, DeviceUse], layout: Callable[[NamedConsumption], CounterLayout]) -> None:
        """Devices, counters and verdict from the slices of the highest generation."""
        self.built += 1
        newest = max((entry.generation for entry in self.slices.values()), default=0)
        current = [self.slices[name] for name in sorted(self.slices) if self.slices[name].generation == newest]
        built = [device for entry in current for device in entry.devices]
        self.binding = any(device.kind.spec.binding_conditions for device in built)
        self.devices = {device.name: device for device in built}
        self.problem = self._judge(current, built)
        self.layout = layout(())
        if any(entry.counters for entry in current):
            try:
                self.layout = layout(published([found for entry in current for found in entry.counters]))
            except ValueError as error:
                self.problem = self.problem or f"pool {self.id} is invalid: {error}"
        self.used = [0] * len(self.layout.keys)
        self.local, self.roaming = {}, []
        self.tainted = [device for device in built if device.kind.taints]
        for order, device in enumerate(built):
            device.order = order
            self._link(device, uses.get(device.name))
            if device.node is not None:
                self.local.setdefault(device.node, []).append(device)
            else:
                self.roaming.append(device)

    def _judge(self, current: list[SliceEntry], built: list[Device]) -> str | None:
        expected = {entry.count for entry in current}
        self.waits = bool(expected) and expected != {len(current)}
        if self.waits:
            return f"pool {self.id} is incomplete: {len(current)} of {max(expected)} slices"
        fault = next((entry.fault for entry in current if entry.fault is not None), None)
        if fault is not None:
            return f"pool {self.id} is invalid: {fault}"
        if len(self.devices) != len(built):
            return f"pool {self.id} is invalid: two devices have the same name"
        return None

    def _link(self, device: Device, use: DeviceUse | None) -> None:
        device.draws = ()
        device.use = use
        if not device.kind.draws:
            return
        try:
            device.draws = self.layout.draw(device.kind.draws)
        except KeyError as error:
            counter_set, name = error.args[0]
            self.problem = self.problem or (
                f"pool {self.id} is invalid: device {device.name} consumes counter {name} of set {counter_set}, "
                "which the pool lacks"
            )
        if use is not None and use.claims:
            self.draw(device, 1)

    def draw(self, device: Device, sign: int) -> None:
        """Count what the device draws from the counters, or give it back."""
        used = self.used
        for place, value in device.draws:
            used[place] += sign * value
