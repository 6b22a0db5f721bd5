"""Shared counters of a pool: what a whole GPU and its partitions draw from together.

Exists so that partitions never overdraw their parent. A CounterLayout is which counters a pool has and how large they are; the
pools of alike nodes share one, so that what is worked out for a device of one node holds on all. How much is used is the
pool's and the ledger's, by place in the layout. A device draws once, however many claims share it.
Source: KEP-4815; k/k#140436 and 89c46e8 are the upstream faults to avoid.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from fairlead.engine.types.amounts import amount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead.engine.types.amounts import Amount
    from fairlead.kube.resource import CounterSet, DeviceCounterConsumption

CounterKey = tuple[str, str]  # counter set, counter
# What a device draws: counter and amount, each counter once, sorted; and the same by place in the pool's layout.
NamedConsumption = tuple[tuple[CounterKey, "Amount"], ...]
CounterConsumption = tuple[tuple[int, "Amount"], ...]


AFTER_MAX = 50_000  # remembered outcomes of cutting a parent


class CounterLayout:
    """The counters of a pool: `keys` sorted, `totals` beside them. Alike pools share one; compared by identity."""

    __slots__ = ("_after", "_draws", "_groups", "_shares", "_sizes", "index", "keys", "sets", "totals")

    def __init__(self, content: NamedConsumption) -> None:
        self.keys = tuple(key for key, _ in content)
        self.totals = tuple(total for _, total in content)
        self.index = {key: place for place, key in enumerate(self.keys)}
        self.sets: dict[str, list[int]] = {}  # counter set: places
        sums: dict[CounterKey, Amount] = {}
        for place, (counter_set, name) in enumerate(self.keys):
            self.sets.setdefault(counter_set, []).append(place)
            group = (counter_set, _group(name))
            sums[group] = sums.get(group, 0) + self.totals[place]
        # memory-slice-0 … memory-slice-7 are parts of one thing: each place's group and the group's total.
        self._groups = [((key[0], _group(key[1])), sums[key[0], _group(key[1])]) for key in self.keys]
        self._draws: dict[NamedConsumption, CounterConsumption] = {}
        self._shares: dict[CounterConsumption, Amount] = {}
        self._sizes: dict[CounterConsumption, float] = {}
        self._after: dict[tuple[CounterConsumption, tuple[Amount, ...]], tuple[float, ...]] = {}

    def draw(self, named: NamedConsumption) -> CounterConsumption:
        """By place. Raises KeyError for a counter that is not here."""
        found = self._draws.get(named)
        if found is None:
            found = self._draws[named] = tuple((self.index[key], value) for key, value in named)
        return found

    def share(self, draw: CounterConsumption) -> Amount:
        """The part of its parent that a device takes: the largest over what it draws, numbered counters together."""
        part = self._shares.get(draw)
        if part is None:
            groups: dict[CounterKey, Fraction] = {}
            for place, value in draw:
                group, total = self._groups[place]
                if total:
                    groups[group] = groups.get(group, Fraction(0)) + Fraction(value) / total
            exact = max(groups.values(), default=Fraction(1))
            part = self._shares[draw] = int(exact) if exact.denominator == 1 else exact
        return part

    def size(self, draw: CounterConsumption) -> float:
        """The share, for comparing."""
        size = self._sizes.get(draw)
        if size is None:
            size = self._sizes[draw] = float(self.share(draw))
        return size

    def left_after(self, draw: CounterConsumption, free: tuple[Amount, ...]) -> tuple[float, ...]:
        """The shares of what could still be had of the parent after this draw, negated, largest first: low is better.

        `free` is what its counter set has left, beside `sets`. Counts every draw that a pool of this layout ever had.
        """
        key = (draw, free)
        found = self._after.get(key)
        if found is None:
            if len(self._after) >= AFTER_MAX:
                self._after.clear()
            places = self.sets[self.set_of(draw)]
            left = dict(zip(places, free, strict=True))
            for place, value in draw:
                left[place] = left.get(place, 0) - value
            found = self._after[key] = tuple(
                sorted(
                    -self.size(other)
                    for other in self._draws.values()
                    if other and all(place in left and value <= left[place] for place, value in other)
                )
            )
        return found

    def set_of(self, draw: CounterConsumption) -> str:
        """The counter set of the parent: that of the first counter drawn from."""
        return self.keys[draw[0][0]][0]


def _group(name: str) -> str:
    return name.rstrip("0123456789")


def published(sets: Iterable[CounterSet]) -> NamedConsumption:
    """The content of a layout. Raises ValueError when a set is published twice, or for a bad quantity."""
    content: dict[CounterKey, Amount] = {}
    seen: set[str] = set()
    for counter_set in sets:
        if counter_set.name in seen:
            raise ValueError(f"counter set {counter_set.name} is published twice")
        seen.add(counter_set.name)
        for name, counter in counter_set.counters.items():
            content[counter_set.name, name] = amount(counter.value)
    return tuple(sorted(content.items()))


def named_draw(consumes: Iterable[DeviceCounterConsumption]) -> NamedConsumption:
    """What a device says that it consumes. Raises QuantityError."""
    total: dict[CounterKey, Amount] = {}
    for consumption in consumes:
        for name, counter in consumption.counters.items():
            key = (consumption.counter_set, name)
            total[key] = total.get(key, 0) + amount(counter.value)
    return tuple(sorted(total.items()))
