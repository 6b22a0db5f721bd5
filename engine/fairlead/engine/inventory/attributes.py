"""What a device says of itself, by the names of its own driver (`fairlead.api.drivers`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.api.drivers import attributes_of, first_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.inventory.device import Device, Value


def text(device: Device, names: Sequence[str]) -> str:
    """The first of these attributes that the device has, as text; "" where it has none."""
    value = first_of(attributes_of(device.pool.driver), names, device.attribute)
    return "" if value is None or value.value is None else str(value.value)


def is_part(device: Device) -> bool:
    """Whether it is a part of a GPU: a MIG device, a partition."""
    known = attributes_of(device.pool.driver)
    value = device.attribute(known.qualified(known.kind)) if known.kind else None
    return value is not None and known.is_part(value.value)


def made_on_demand(device: Device) -> bool:
    """Whether it exists only while a claim has it: a part of a GPU that draws from what all its parts share."""
    return bool(device.counter_consumption) and is_part(device)


def numa_of(device: Device) -> frozenset[Value]:
    """Its NUMA node as typed values; empty where it is not published."""
    known = attributes_of(device.pool.driver)
    return next((values for name in known.numa if (values := device.values(known.qualified(name)))), frozenset())
