"""What a device says of itself, by the names of its own driver (`fairlead.api.drivers`): its model, and which part of a GPU it is.

GPUs of NVIDIA's driver and of ours that are one product are one model. A network interface, or a GPU of a driver that is not known, has no
product: all of these are one model.
The share of a GPU is told here where no counters tell it: static MIG says by its profile how many compute slices it has, and by its
capacities `memorySlice0`, `memorySlice1`, … which memory slices; the larger of the two parts is its share. Without memory slices the
profile's memory is compared with the size in the product's name; a product without one (NVIDIA H200) leaves the compute slices alone.
Example, A100 80GB, 7 compute and 8 memory slices: 1g.10gb has 1/7 and 1/8, so its share is 1/7; 1g.20gb has 1/7 and 2/8: 1/4.
A partition of an AMD GPU says by its compute mode how many there are: `dpx_nps1` is one of two, `cpx_nps4` one of eight (six on MI300A).
Source: NVIDIA MIG User Guide, supported profiles: 4 compute and 4 memory slices on A30 and RTX PRO, 7 and 8 on all others; AMD Instinct
documentation, compute partitioning modes: a partition of mode CPX is one XCD, of which MI300A has six, other MI300 and MI350 eight.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from fairlead.api.drivers import AMD, DRIVERS, attributes_of, first_of
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


class Model(NamedTuple):
    """Both are empty where the device has no product."""

    product: str = ""
    profile: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in self if part) or "devices without a product"


NO_MODEL = Model()


def model_of(device: Device) -> Model:
    products, profile = _names(device.pool.driver)
    product = next((text for name in products if (text := _text(device, name))), "")
    return Model(product, _text(device, profile) if profile else "") if product else NO_MODEL


PRODUCTS = frozenset(known.qualified(name) for known in DRIVERS.values() for name in known.product)
"""The attributes that name a product."""


@lru_cache(maxsize=1024)
def _names(driver: str) -> tuple[tuple[str, ...], str]:
    """Qualified names of the attributes for the product, the first that a device has counts, and for the part."""
    known = attributes_of(driver)
    return tuple(map(known.qualified, known.product)), known.qualified(known.profile)


def _text(device: Device, name: str) -> str:
    value = device.attribute(name)
    return "" if value is None or value.string is None else value.string


_PROFILE = re.compile(r"(?P<compute>[1-9])g\.(?P<gigabytes>[1-9][0-9]*)gb(\+[a-z.]+)?")
_FOUR_SLICES = re.compile(r"\bA30\b|\bRTX PRO\b")
_SIZE = re.compile(r"\b([1-9][0-9]*) ?GB\b")
_MEMORY_SLICE = re.compile(r"memorySlice[0-9]+")
_MODE = re.compile(r"(spx|dpx|tpx|qpx|cpx)(_nps[0-9]+)?", re.IGNORECASE)
_PARTITIONS = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}
_SIX_XCDS = "MI300A"


def mig_share(device: Device) -> Fraction | None:
    """The share, above 0 and at most 1; None for what is no part of a GPU, or one without a known form of profile."""
    known = attributes_of(device.pool.driver)
    value = device.attribute(known.qualified(known.profile))  # none without a profile's name: most devices end here
    profile = None if value is None else value.string
    if not profile or not is_part(device):
        return None
    product = text(device, known.product)
    if known.driver == AMD:
        return _partition_share(profile, product)
    memory_slices = sum(_MEMORY_SLICE.fullmatch(name) is not None for name, _ in device.kind.capacity)
    return _share(profile, product, memory_slices)


def _partition_share(profile: str, product: str) -> Fraction | None:
    parts = _MODE.fullmatch(profile)
    if parts is None:
        return None
    mode = parts[1].lower()
    return Fraction(1, 6 if mode == "cpx" and _SIX_XCDS in product else _PARTITIONS[mode])


@lru_cache(maxsize=1024)
def _share(profile: str, product: str, memory_slices: int) -> Fraction | None:
    parts = _PROFILE.fullmatch(profile)
    if parts is None:
        return None
    compute_total, memory_total = (4, 4) if _FOUR_SLICES.search(product) else (7, 8)
    size = _SIZE.search(product)
    if not memory_slices and size:
        memory_slices = round(Fraction(memory_total * int(parts["gigabytes"]), int(size[1])))
    share = max(Fraction(int(parts["compute"]), compute_total), Fraction(memory_slices, memory_total))
    return min(share, Fraction(1))
