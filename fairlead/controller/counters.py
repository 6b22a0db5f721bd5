"""Shared counters of a pool: what a whole GPU and its partitions draw from together.

Exists so that partitions never overdraw their parent. One Counter is one number of one counter set; devices refer to the
counters that they consume. A device draws once, however many claims share it.
Source: KEP-4815; k/k#140436 and 89c46e8 are the upstream faults to avoid.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.controller.model import Amount
    from fairlead.kube.resource import Device, ResourceSlice

from fairlead.controller.capacity import amount


class Counter:
    """One counter: its total, and what allocated devices draw from it (more than the total after an inconsistency)."""

    __slots__ = ("counter_set", "group", "group_total", "name", "total", "used")

    def __init__(self, counter_set: str, name: str, total: Amount) -> None:
        self.counter_set = counter_set
        self.name = name
        self.total = total
        self.used: Amount = 0
        self.group = name.rstrip("0123456789")  # memory-slice-0 … memory-slice-7 are parts of one thing
        self.group_total = total

    def __repr__(self) -> str:
        return f"Counter({self.counter_set}/{self.name}: {self.used} of {self.total})"


# What a device draws: each counter once, in name order.
Draw = tuple[tuple[Counter, "Amount"], ...]
Counters = dict[tuple[str, str], Counter]


def published(slices: list[ResourceSlice]) -> Counters:
    """The counters of a pool. Raises ValueError when a set is published twice."""
    counters: Counters = {}
    sets: set[str] = set()
    for slice_ in slices:
        for counter_set in slice_.spec.shared_counters:
            if counter_set.name in sets:
                raise ValueError(f"counter set {counter_set.name} is published twice")
            sets.add(counter_set.name)
            for name, counter in counter_set.counters.items():
                key = (counter_set.name, name)
                counters[key] = Counter(counter_set.name, name, amount(counter.value))
    groups: dict[tuple[str, str], Amount] = {}
    for made in counters.values():
        group = (made.counter_set, made.group)
        groups[group] = groups.get(group, 0) + made.total
    for made in counters.values():
        made.group_total = groups[made.counter_set, made.group]
    return counters


def share(draws: Draw) -> Amount:
    """The part of its parent that a device takes: the largest over what it draws, numbered counters taken together."""
    groups: dict[tuple[str, str], Fraction] = {}
    for counter, value in draws:
        if counter.group_total:
            group = (counter.counter_set, counter.group)
            groups[group] = groups.get(group, Fraction(0)) + Fraction(value) / counter.group_total
    part = max(groups.values(), default=Fraction(1))
    return int(part) if part.denominator == 1 else part


def draw(device: Device, counters: Counters) -> Draw:
    """What the device consumes. Raises ValueError when it names a counter that the pool does not have."""
    if not device.consumes_counters:
        return ()
    total: dict[tuple[str, str], Amount] = {}
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            key = (consumption.counter_set, name)
            if key not in counters:
                raise ValueError(
                    f"device {device.name} consumes counter {name} of set {consumption.counter_set}, which the pool lacks"
                )
            total[key] = total.get(key, 0) + amount(counter.value)
    return tuple((counters[key], value) for key, value in sorted(total.items()))
