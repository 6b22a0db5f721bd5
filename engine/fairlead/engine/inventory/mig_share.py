"""The part of its GPU that a MIG device or partition is, where its driver publishes no counters of the GPU.

Drivers publish counters only for MIG devices that they create on demand. One that exists already (static MIG) says by its
profile how many compute slices it has, and by its capacities `memorySlice0`, `memorySlice1`, … which memory slices. Its share is
the larger of the two parts, as the share of a partition is the largest over its counters.

Example, A100 80GB, 7 compute and 8 memory slices: 1g.10gb has 1/7 and 1/8, so its share is 1/7; 1g.20gb has 1/7 and 2/8: 1/4.

Where a driver publishes no memory slices either, the profile's memory is compared with the size in the GPU's product name; a
product without one (NVIDIA H200) leaves the compute slices alone.

A partition of an AMD GPU says by its compute mode how many there are: `dpx_nps1` is one of two, `cpx_nps4` one of eight (six on MI300A).
Source: NVIDIA MIG User Guide, supported profiles: 4 compute and 4 memory slices on A30 and RTX PRO, 7 and 8 on all others; AMD Instinct
documentation, compute partitioning modes: a partition of mode CPX is one XCD, of which MI300A has six, other MI300 and MI350 eight.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from fairlead.api.drivers import AMD, attributes_of
from fairlead.engine.inventory.attributes import is_part, text

if TYPE_CHECKING:
    from fairlead.engine.inventory.device import Device

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
