"""What ResourceSlices publish, and what a request takes of a device: the rules of resource.k8s.io/v1, one object at a time.

Pure, over the API's structs; amounts are exact.
Source: resource/v1 types.go (ResourcePool, CapacityRequestPolicy, DeviceTaintRule); structured allocator, GatherPools.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from fairlead.api import pool_homes
from fairlead.api.certificate import DeviceId
from fairlead.evidence.node_fit import selects
from fairlead.kube import core, resource
from fairlead.kube.quantity import Quantity, QuantityError

Ask = resource.ExactDeviceRequest | resource.DeviceSubRequest


def asks(request: resource.DeviceRequest) -> tuple[Ask, ...]:
    """The alternatives of a request."""
    return request.first_available if request.exactly is None else (request.exactly,)


def wants_all(ask: Ask) -> bool:
    return ask.allocation_mode == "All"


def is_admin(ask: Ask) -> bool:
    return isinstance(ask, resource.ExactDeviceRequest) and bool(ask.admin_access)


def number(value: str | int) -> Fraction:
    """Raises QuantityError."""
    quantity = Quantity.of(value)
    if quantity.scale > 60:
        raise QuantityError(f"{value} is too large")
    return quantity.digits * Fraction(10) ** quantity.scale


def full(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


class Device:
    """A published device. `draws` is what it takes of its pool's counters; `sizes` its capacities by qualified name."""

    def __init__(self, spec: resource.ResourceSliceSpec, device: resource.Device) -> None:
        self.id: DeviceId = (spec.driver, spec.pool.name, device.name)
        self.spec, self.where = device, spec if not spec.per_device_node_selection else device
        self.shared = bool(device.allow_multiple_allocations)
        self.draws: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
        for each in device.consumes_counters:
            for name, counter in each.counters.items():
                self.draws[each.counter_set, name] += number(counter.value)
        attributes = {full(name, spec.driver): value for name, value in device.attributes.items()}
        self.values = {name: frozenset(_typed(value)) for name, value in attributes.items()}

    def reached_from(self, node: core.Node) -> bool:
        if self.where.node_name:
            return self.where.node_name == node.metadata.name
        return bool(self.where.all_nodes) or (
            self.where.node_selector is not None and selects(self.where.node_selector, node)
        )


def _typed(value: resource.DeviceAttribute) -> Iterator[tuple[str, Any]]:
    for kind in ("string", "int_", "bool_", "version"):
        one, many = getattr(value, kind), getattr(value, f"{kind.rstrip('_')}s")
        if one is not None or many is not None:
            yield from ((kind.rstrip("_"), each) for each in ((one,) if one is not None else many))
            return


def pools(
    slices: Iterable[resource.ResourceSlice],
) -> Iterator[tuple[list[Device], dict[tuple[str, str], Fraction], bool]]:
    """The devices of each pool's newest generation, its counters, and whether they can be used; not of one with too many."""
    by_pool: dict[tuple[str, str], dict[str, resource.ResourceSliceSpec]] = defaultdict(dict)
    for each in slices:
        by_pool[each.spec.driver, each.spec.pool.name][each.metadata.name] = each.spec
    for pool, found in by_pool.items():
        homes = {name: spec.node_name for name, spec in found.items() if spec.node_name or spec.devices}
        strangers = pool_homes.strangers(*pool, homes)
        specs = [spec for name, spec in found.items() if name not in strangers]
        newest = max((spec.pool.generation for spec in specs), default=0)
        current = [spec for spec in specs if spec.pool.generation == newest]
        sizes = ((spec.node_name, len(spec.devices) + len(spec.shared_counters)) for spec in current)
        if pool_homes.crowded_node(sizes) is not None:
            continue
        usable = all(spec.pool.resource_slice_count == len(current) for spec in current)
        counters: dict[tuple[str, str], Fraction] = {}
        devices: list[Device] = []
        for spec in current:
            try:
                for group in spec.shared_counters:
                    usable = usable and not any(key[0] == group.name for key in counters)
                    counters |= {(group.name, name): number(counter.value) for name, counter in group.counters.items()}
                devices += [Device(spec, device) for device in spec.devices]
            except QuantityError:
                usable = False
        usable = usable and len({device.id for device in devices}) == len(devices)
        yield devices, counters, usable and all(key in counters for device in devices for key in device.draws)


def covers(rule: resource.DeviceTaintRule, device: Device) -> bool:
    chosen = rule.spec.device_selector
    return chosen is not None and all(
        wanted in {None, own}
        for wanted, own in zip((chosen.driver, chosen.pool, chosen.device), device.id, strict=True)
    )


def consumption(ask: Ask, device: Device) -> dict[str, Fraction] | None:
    """What the request takes of a device's capacities; {} of an exclusive one, None where it has too little."""
    wanted = {full(k, device.id[0]): number(v) for k, v in (ask.capacity.requests if ask.capacity else {}).items()}
    taken: dict[str, Fraction] = {}
    if not device.shared and not wanted:
        return taken
    try:
        for name, entry in device.spec.capacity.items():
            asked, whole = wanted.pop(full(name, device.id[0]), None), number(entry.value)
            value = _rounded(asked, whole, entry.request_policy) if device.shared else asked
            if (device.shared and value is None) or (value is not None and value > whole):
                return None
            taken |= {name: value} if device.shared and value is not None else {}
    except QuantityError:
        return None
    return None if wanted else taken


def _rounded(asked: Fraction | None, whole: Fraction, policy: resource.CapacityRequestPolicy | None) -> Fraction | None:
    if policy is None or asked is None:
        default = None if policy is None or asked is not None else policy.default
        return whole if asked is None and default is None else number(default) if default is not None else asked
    if policy.valid_values:
        return min((value for value in map(number, policy.valid_values) if value >= asked), default=None)
    if policy.valid_range is None:
        return asked
    low, high, step = (
        None if v is None else number(v)
        for v in (policy.valid_range.min, policy.valid_range.max, policy.valid_range.step)
    )
    value = max(asked, low or Fraction(0))
    value = value if not step else (low or 0) - ((low or 0) - value) // step * step
    return None if high is not None and value > high else value


def share(device: Device, sizes: Mapping[tuple[str, str, str, str], Fraction]) -> Fraction:
    """The part of its whole that a device draws: the largest over the counters; memory-slice-0, memory-slice-1, … are one."""
    drawn: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    total: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for (driver, pool, group, name), value in sizes.items():
        if (driver, pool) == device.id[:2]:
            total[group, name.rstrip("0123456789")] += value
            drawn[group, name.rstrip("0123456789")] += device.draws.get((group, name), Fraction(0))
    return max((drawn[key] / value for key, value in total.items() if drawn[key] and value), default=Fraction(1))
