"""A driver's pool: its slices of all generations, the devices of the generation that counts, and what of them a node reaches.

Decides whether the pool's devices can be used, over all of its slices: those of a node whose pool it is not are ignored
(`fairlead.api.pool_homes`); of the others the highest generation counts; all of its slices must be there; no device name twice; no more
devices of a node than a node has; every counter that a device consumes must be published. A device that its driver withholds, since the
apiserver drops taints (`fairlead.api.withheld`), is there with those taints and nothing else, unless some slice publishes it.
Devices of one GPU overlap where the GPU is published beside parts of it, or two parts of it cover the same memory slice. An apiserver
without DRAPartitionableDevices (1.34 and 1.35 without flags) drops the counters that say so: where one of them declares none, each draws
the only one of a counter that is added here, and counts as the whole GPU. Static MIG (no GPU beside it, no slice twice) is left alone.
Example: gpu-0, gpu-0-mig-1g.10gb-19-0 and gpu-0-mig-3g.40gb-9-0, all without counters: once one is allocated, no claim is given another.
Of claims it has only the uses that are passed to it. Source: structured allocator GatherPools, ValidateSlices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from fairlead.api import names, pool_homes, withheld
from fairlead.api.drivers import DriverAttributes, attributes_of, first_of
from fairlead.api.texts import natural
from fairlead.engine.inventory.counters import CounterLayout, NamedConsumption, PoolCounters, published_counters
from fairlead.engine.inventory.device import Device, DeviceInterner, DeviceUse
from fairlead.engine.inventory.layouts import NodeLayouts
from fairlead.engine.inventory.models import is_part, model_of
from fairlead.kube import resource
from fairlead.kube.quantity import QuantityError

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


def _added_totals(added: Mapping[str, NamedConsumption]) -> NamedConsumption:
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


class SliceEntry:
    """What is kept of a slice. `unreadable`: its devices that cannot be measured; `fault` says why the first cannot.

    `noted` are the devices that it says are withheld, `withheld` those of them that the pool counts.
    """

    __slots__ = (
        "count", "counters", "devices", "driver", "fault", "generation", "node", "noted", "placed",
        "pool_name", "unreadable", "withheld",
    )  # fmt: skip

    def __init__(self, pool: PoolCounters, slice_: resource.ResourceSlice, interner: DeviceInterner) -> None:
        spec = slice_.spec
        self.driver = pool.driver
        self.pool_name = pool.name
        self.generation = spec.pool.generation
        self.count = spec.pool.resource_slice_count
        self.counters = spec.shared_counters
        self.devices: list[Device] = []
        self.fault: str | None = None
        self.unreadable: tuple[resource.Device, ...] = ()
        before: Device | None = None
        for device in spec.devices:
            try:
                before = interner.device(pool, device, spec, before)
            except QuantityError as error:
                self.fault = f"device {device.name}: {error}"
                self.unreadable += (device,)
                continue
            self.devices.append(before)
        self.noted = [interner.device(pool, each, spec, None) for each in _withheld(slice_)]
        self.withheld: list[Device] = []
        self.node = spec.node_name or None
        # Recordings do not say of which node a slice without devices is: then it says nothing of whose pool this is.
        self.placed = bool(self.node or self.devices or self.unreadable)


def _withheld(slice_: resource.ResourceSlice) -> Iterator[resource.Device]:
    if slice_.spec.driver != names.DRIVER or not slice_.spec.node_name:
        return
    for name, taints in sorted(withheld.read(slice_.metadata.annotations).items()):
        yield resource.Device(
            name=name,
            taints=tuple(resource.DeviceTaint(key=each.key, value=each.value, effect=each.effect) for each in taints),
        )


def _is_withheld(device: Device) -> bool:
    """Also as a recording has it, where its taints are those of a device: only of one that is withheld no attribute is known."""
    return bool(device.kind.spec.taints) and device.kind.driver == names.DRIVER and not device.attributes


class Pool(PoolCounters):
    """`problem` says why its devices can't be used; None when they can. `added`: counters for devices that overlap, by device."""

    __slots__ = (
        "added",
        "binding",
        "built",
        "crowded",
        "devices",
        "local",
        "network_attached",
        "problem",
        "published",
        "slices",
        "strangers",
        "tainted",
    )

    def __init__(self, driver: str, name: str) -> None:
        super().__init__(driver, name)
        self.slices: dict[str, SliceEntry] = {}  # all generations, by slice name
        self.devices: dict[str, Device] = {}
        self.local: dict[str, list[Device]] = {}  # by node name
        self.network_attached: list[Device] = []  # reachable by node selector or from all nodes
        self.tainted: list[Device] = []
        self.added: Mapping[str, NamedConsumption] = {}
        self.binding = False  # some device has binding conditions: such pools come last
        self.built = 0  # the inventory's `structure` then: another for each build of a pool of this name
        self.problem: str | None = None
        self.crowded: str | None = None  # the node of which it has more devices than a node has
        self.published = 0  # how many devices its slices have, whether or not they can be used
        self.strangers: frozenset[str] = frozenset()  # names of slices that are another node's

    @property
    def sort_key(self) -> tuple[bool, str, str]:
        return (self.binding, self.driver, self.name)

    def ignored(self) -> tuple[str, ...]:
        """Why each slice that is another node's does not count, in order of names; and why the pool does not."""
        texts = [
            pool_homes.stranger_text(name, self.slices[name].node, self.driver, self.name)
            for name in sorted(self.strangers)
        ]
        if self.crowded is not None:
            texts.append(pool_homes.crowded_text(self.crowded, self.driver, self.name))
        return tuple(texts)

    def rebuild(
        self,
        uses: Mapping[str, DeviceUse],
        layout: Callable[[NamedConsumption, frozenset[NamedConsumption]], CounterLayout],
        structure: int,
    ) -> None:
        """Devices, counters and problem from the slices of the highest generation."""
        self.built = structure
        self.strangers = pool_homes.strangers(
            self.driver, self.name, {name: entry.node for name, entry in self.slices.items() if entry.placed}
        )
        own = [self.slices[name] for name in sorted(self.slices) if name not in self.strangers]
        newest = max((entry.generation for entry in own), default=0)
        current = [entry for entry in own if entry.generation == newest]
        self.published = sum(len(entry.devices) for entry in current)
        self.local, self.network_attached = {}, []
        sizes = ((entry.node, len(entry.devices) + len(entry.counters)) for entry in current)
        self.crowded = pool_homes.crowded_node(sizes)
        if self.crowded is not None:
            self._leave_out(self.crowded, current, layout)
            return
        built = [device for entry in current for device in entry.devices]
        published = {device.name for device in built}
        for entry in current:
            entry.withheld = [device for device in entry.noted if device.name not in published]
            published |= {device.name for device in entry.withheld}
            built += entry.withheld
        self.withheld = frozenset(device.name for device in built if _is_withheld(device))
        self.binding = any(device.kind.spec.binding_conditions for device in built)
        self.devices = {device.name: device for device in built}
        self.published = len(self.devices)
        self.problem = self._validate(current, built)
        self.layout = layout((), frozenset())
        self.added = added_counters(built)
        if self.added or any(entry.counters for entry in current):
            try:
                counters = published_counters([found for entry in current for found in entry.counters])
                consumed = frozenset(map(self._drawn, built))
                self.layout = layout(tuple(sorted((*counters, *_added_totals(self.added)))), consumed)
            except ValueError as error:
                self.problem = self.problem or f"pool {self.id} is invalid: {error}"
        self.used, self.consumers = [0] * len(self.layout.keys), 0
        self.tainted = [device for device in built if device.kind.taints]
        for order, device in enumerate(built):
            device.order = order
            self._link(device, uses.get(device.name))
            if device.node is not None:
                self.local.setdefault(device.node, []).append(device)
            else:
                self.network_attached.append(device)

    def _leave_out(
        self,
        node: str,
        current: list[SliceEntry],
        layout: Callable[[NamedConsumption, frozenset[NamedConsumption]], CounterLayout],
    ) -> None:
        """None of its devices is looked at: the pool costs no more than reading its slices."""
        self.problem = pool_homes.crowded_text(node, self.driver, self.name)
        self.layout, self.used, self.consumers, self.added = layout((), frozenset()), [], 0, {}
        self.devices, self.tainted, self.binding, self.withheld = {}, [], False, frozenset()
        self.local = {entry.node: [] for entry in current if entry.node}

    def _drawn(self, device: Device) -> NamedConsumption:
        drawn = device.kind.counter_consumption
        return (*self.added.get(device.name, ()), *drawn) if self.added else drawn

    def _validate(self, current: list[SliceEntry], built: list[Device]) -> str | None:
        expected = {entry.count for entry in current}
        if expected and expected != {len(current)}:
            return f"pool {self.id} is incomplete: {len(current)} of {max(expected)} slices"
        fault = next((entry.fault for entry in current if entry.fault is not None), None)
        if fault is not None:
            return f"pool {self.id} is invalid: {fault}"
        if len(self.devices) != len(built):
            return f"pool {self.id} is invalid: two devices have the same name"
        return None

    def _link(self, device: Device, use: DeviceUse | None) -> None:
        """Set the device's use and, by index in the pool's layout, the counters that it consumes."""
        device.counter_consumption = ()
        releasing = device.kind.releasing_since is not None
        if use is not None:
            use.releasing = releasing
        device.use = DeviceUse(releasing=True) if use is None and releasing else use
        drawn = self._drawn(device)
        if not drawn:
            return
        try:
            device.counter_consumption = self.layout.by_index(drawn)
        except KeyError as error:
            counter_set, name = error.args[0]
            self.problem = self.problem or (
                f"pool {self.id} is invalid: device {device.name} consumes counter {name} of set {counter_set}, "
                "which the pool lacks"
            )
        if use is not None and use.claims:
            self.consume(device.counter_consumption, 1)


class NodeDevices:
    """Immutable but for `cache`; a change of the node's devices or labels makes a new one.

    `problems` are pools that have devices for the node and can't be used: incomplete or invalid.
    """

    __slots__ = (
        "cache",
        "devices",
        "labels",
        "layout",
        "local_only",
        "problems",
        "rules",
        "tainted",
        "values",
        "withheld",
    )

    def __init__(
        self,
        pools: list[Pool],
        node: str,
        labels: Mapping[str, str],
        rules: tuple[resource.DeviceTaintRuleSpec, ...],
        layouts: NodeLayouts,
    ) -> None:
        self.rules = rules
        self.labels = labels
        self.problems: list[Pool] = []
        self.local_only = True
        devices: list[Device] = []
        for pool in pools:
            reached = list(pool.local.get(node, ()))
            if pool.network_attached:
                attached = [device for device in pool.network_attached if device.reachable_from(node, labels)]
                if attached:
                    self.local_only = False
                    reached = sorted(reached + attached, key=attrgetter("order"))
            if pool.problem is not None:
                if reached or node in pool.local:
                    self.problems.append(pool)
                continue
            devices.extend(reached)
        self.devices = tuple(devices)
        self.layout, self.values = layouts.of(self.devices)
        self.withheld = any(pool.withheld for pool in pools)
        self.tainted = bool(rules) or any(device.kind.taints for device in devices)
        self.cache: dict[object, object] = {}  # what the allocator derived: candidates by filter


def published_slice(entry: SliceEntry) -> resource.ResourceSliceSpec:
    """The `spec` of its ResourceSlice."""
    devices = (*entry.devices, *entry.withheld)
    places = {(device.node, device.node_selector, device.all_nodes) for device in devices}
    alike = len(places) <= 1
    node, selector, everywhere = places.pop() if len(places) == 1 else (entry.node, None, False)
    return resource.ResourceSliceSpec(
        driver=entry.driver,
        pool=resource.ResourcePool(name=entry.pool_name, generation=entry.generation, resource_slice_count=entry.count),
        node_name=node,
        node_selector=selector,
        all_nodes=everywhere or None,
        per_device_node_selection=None if alike else True,
        devices=(*(_device(device, placed=not alike) for device in devices), *entry.unreadable),
        shared_counters=entry.counters,
    )


def _device(device: Device, *, placed: bool) -> resource.Device:
    spec = msgspec.structs.replace(device.kind.spec, attributes=device.attributes)
    if not placed:
        return spec
    return msgspec.structs.replace(
        spec, node_name=device.node, node_selector=device.node_selector, all_nodes=device.all_nodes or None
    )


def number_ordinals(node: NodeDevices) -> None:
    """Count the node's devices, once for each change of them."""
    if node.cache.get(names.ORDINAL):
        return
    node.cache[names.ORDINAL] = True
    alike: dict[object, list[Device]] = {}
    for device in node.devices:
        if device.node is not None:
            alike.setdefault((device.pool.driver, model_of(device)), []).append(device)
    for devices in alike.values():
        for position, device in enumerate(sorted(devices, key=_place)):
            device.ordinal = frozenset((("int", position),))


def _place(device: Device) -> tuple[str, list[tuple[int, str]]]:
    address = device.attribute(names.PCI_BUS_ID)
    return ("" if address is None or address.string is None else address.string), natural(device.name)
