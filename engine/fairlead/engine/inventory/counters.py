"""Shared counters of a pool: what a whole GPU and its partitions consume together, so that partitions never overdraw it.

A CounterLayout says which counters a pool has, how large they are, and what its devices consume of them. Pools of alike nodes
share one layout, so what is computed for a device of one node holds on all; what another node's driver publishes changes nothing
there. How much is used is kept by the pool and the ledger, by index in the layout.
A device consumes once, however many claims share it.
Example: a GPU with counters memory-slice-0 … memory-slice-7 of 1 each; a partition that consumes two of them has share 1/4.
Source: KEP-4815; k/k#140436 and 89c46e8 are the upstream faults to avoid.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from fairlead.engine.types.values import Amount, amount
from fairlead.kube.resource import CounterSet, DeviceCounterConsumption

CounterKey = tuple[str, str]  # counter set, counter
# What a device consumes: counter and amount, each counter once, sorted; and the same by index in the pool's layout.
NamedConsumption = tuple[tuple[CounterKey, "Amount"], ...]
CounterConsumption = tuple[tuple[int, "Amount"], ...]


REMAINING_MAX = 50_000  # remembered outcomes of cutting a parent
PARTITIONS_MAX = 64
"""Distinct consumptions of one counter set by which parents are ranked: a GPU has 26 at most. With more there is no ranking."""


class CounterLayout:
    """The counters of a pool: `keys` sorted, `totals` beside them. Alike pools share one; compared by identity."""

    def __init__(self, content: NamedConsumption, consumed: Iterable[NamedConsumption] = ()) -> None:
        """`consumed`: what the pool's devices consume."""
        self.keys = tuple(key for key, _ in content)
        self.totals = tuple(total for _, total in content)
        self.index = {key: index for index, key in enumerate(self.keys)}
        self.sets: dict[str, list[int]] = {}  # counter set: indexes
        self.each_fits = True  # whether any one device fits while no other consumes
        sums: dict[CounterKey, Amount] = {}
        for index, (counter_set, name) in enumerate(self.keys):
            self.sets.setdefault(counter_set, []).append(index)
            group = (counter_set, group_name(name))
            sums[group] = sums.get(group, 0) + self.totals[index]
        # memory-slice-0 … memory-slice-7 are parts of one thing: each counter's group and the group's total.
        self._groups = [((key[0], group_name(key[1])), sums[key[0], group_name(key[1])]) for key in self.keys]
        self._consumptions: dict[NamedConsumption, CounterConsumption] = {}
        self._shares: dict[CounterConsumption, Amount] = {}
        self._sizes: dict[CounterConsumption, float] = {}
        self._remaining: dict[tuple[CounterConsumption, tuple[Amount, ...]], tuple[float, ...]] = {}
        self._partitions: dict[str, list[CounterConsumption]] = {}  # by counter set of the parent
        for named in sorted({each for each in consumed if each and all(key in self.index for key, _ in each)}):
            self._partitions.setdefault(named[0][0][0], []).append(self.by_index(named))

    def by_index(self, named: NamedConsumption) -> CounterConsumption:
        """Raises KeyError for a counter that is not here."""
        found = self._consumptions.get(named)
        if found is None:
            found = self._consumptions[named] = tuple((self.index[key], value) for key, value in named)
            self.each_fits = self.each_fits and all(value <= self.totals[index] for index, value in found)
        return found

    def share(self, consumption: CounterConsumption) -> Amount:
        """The part of its parent that a device takes: the largest over its counters, numbered counters together."""
        part = self._shares.get(consumption)
        if part is None:
            groups: dict[CounterKey, Fraction] = {}
            for index, value in consumption:
                group, total = self._groups[index]
                if total:
                    groups[group] = groups.get(group, Fraction(0)) + Fraction(value) / total
            exact = max(groups.values(), default=Fraction(1))
            part = self._shares[consumption] = int(exact) if exact.denominator == 1 else exact
        return part

    def size(self, consumption: CounterConsumption) -> float:
        size = self._sizes.get(consumption)
        if size is None:
            size = self._sizes[consumption] = float(self.share(consumption))
        return size

    def remaining_shares(self, consumption: CounterConsumption, free: tuple[Amount, ...]) -> tuple[float, ...]:
        """Shares of the devices that the parent could still serve after this one, negated, largest first: low is better.

        `free` is what its counter set has left, beside `sets`. Beyond PARTITIONS_MAX nothing is worked out, and all are equal.
        """
        partitions = self._partitions.get(self.counter_set_of(consumption), ())
        if len(partitions) > PARTITIONS_MAX:
            return ()
        key = (consumption, free)
        found = self._remaining.get(key)
        if found is None:
            if len(self._remaining) >= REMAINING_MAX:
                self._remaining.clear()
            indexes = self.sets[self.counter_set_of(consumption)]
            left = dict(zip(indexes, free, strict=True))
            for index, value in consumption:
                left[index] = left.get(index, 0) - value
            found = self._remaining[key] = tuple(
                sorted(
                    -self.size(other)
                    for other in partitions
                    if all(index in left and value <= left[index] for index, value in other)
                )
            )
        return found

    def counter_set_of(self, consumption: CounterConsumption) -> str:
        """The counter set of the parent: that of the first counter consumed."""
        return self.keys[consumption[0][0]][0]


class PoolCounters:
    """Name and counters of a pool: what its devices and the ledger need of it. `used`, by so many `consumers`, is beside `layout.keys`.

    `withheld`: names of devices that its driver withholds, of which no attributes are known.
    """

    __slots__ = ("consumers", "driver", "layout", "name", "used", "withheld")

    def __init__(self, driver: str, name: str) -> None:
        self.driver = driver
        self.name = name
        self.layout = CounterLayout(())
        self.used: list[Amount] = []
        self.consumers = 0
        self.withheld: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        return f"{self.driver}/{self.name}"

    def consume(self, consumption: CounterConsumption, sign: int) -> None:
        used = self.used
        self.consumers += sign
        for index, value in consumption:
            used[index] += sign * value


def group_name(name: str) -> str:
    """What numbered counters are parts of: memory-slice- of memory-slice-3."""
    return name.rstrip("0123456789")


def published_counters(sets: Iterable[CounterSet]) -> NamedConsumption:
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


def named_consumption(consumes: Iterable[DeviceCounterConsumption]) -> NamedConsumption:
    """What a device publishes as its consumption, summed per counter. Raises QuantityError."""
    total: dict[CounterKey, Amount] = {}
    for consumption in consumes:
        for name, counter in consumption.counters.items():
            key = (consumption.counter_set, name)
            total[key] = total.get(key, 0) + amount(counter.value)
    return tuple(sorted(total.items()))
