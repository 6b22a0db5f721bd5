"""Which values of an attribute the devices of alike requests may have: sets of values, and how many units nodes take with them.

Pure counting for `alignment`, over kinds of nodes: nodes of which the same values are free are counted as one.
Keeps: a count is never too low where capacities are not (`unit_capacity`), so what it rules out is impossible.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, combinations
from typing import TYPE_CHECKING, NamedTuple

from fairlead.api.texts import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fairlead.engine.inventory.device import Values

OPTIONS_MAX = 4096  # sets of values for one unit that are remembered

Multiset = tuple[tuple["Values", int], ...]
"""Values in their order, each with how many devices have them."""


class NodeKind(NamedTuple):
    """Nodes that are alike for one shape. `free`: devices by value; `units`: how many they take at most for other reasons."""

    shape: int  # its number among the shapes that are counted together
    free: Multiset
    units: int
    nodes: int
    shared: bool = False  # several claims may have one of the devices
    whole: bool = False  # the request is for all of them

    def takes(self, values: Values, number: int) -> int:
        """How many units of which each has so many devices with these values."""
        free = next((has for each, has in self.free if each == values), 0)
        if self.shared:
            return self.units if free >= number else 0
        return min(self.units, free // number)

    def takes_all(self, wanted: Multiset) -> int:
        """How many units of which each has these devices."""
        if self.whole:
            return self.units if wanted == self.free else 0
        return min([self.takes(values, number) for values, number in wanted])


def multiset(counted: Mapping[Values, int]) -> Multiset:
    return tuple(sorted(counted.items(), key=lambda each: order(each[0])))


def multisets(kinds: Sequence[NodeKind], size: int, needs: Sequence[int]) -> Iterator[Multiset]:
    """So many devices by their values, such that nodes may take as many units of each shape as are needed: ascending.

    Depth first over the values, each branch cut where too few nodes are left.
    """
    values = sorted({value for kind in kinds for value, _ in kind.free}, key=order)

    def extended(start: int, left: int, chosen: Multiset, alive: Sequence[tuple[NodeKind, int]]) -> Iterator[Multiset]:
        if left == 0:
            yield chosen
            return
        for index in range(start, len(values)):
            for number in range(left, 0, -1):
                fewer = [
                    (kind, takes) for kind, most in alive if (takes := min(most, kind.takes(values[index], number)))
                ]
                if _enough(fewer, needs):
                    yield from extended(index + 1, left - number, (*chosen, (values[index], number)), fewer)

    yield from extended(0, size, (), [(kind, kind.units) for kind in kinds])


def _enough(alive: Iterable[tuple[NodeKind, int]], needs: Sequence[int]) -> bool:
    served = [0] * len(needs)
    for kind, takes in alive:
        served[kind.shape] += takes * kind.nodes
    return all(map(int.__ge__, served, needs)) and any(served)


def served(kinds: Sequence[NodeKind], values: Multiset, shapes: int) -> list[int]:
    """How many units of each shape the nodes take at most with devices of these values."""
    found = [0] * shapes
    for kind in kinds:
        found[kind.shape] += kind.nodes * kind.takes_all(values)
    return found


def rank(kinds: Sequence[NodeKind], values: Multiset, needs: Sequence[int]) -> tuple[object, ...]:
    """Low is better: few nodes, then values of which few devices are free, so that others stay whole."""
    nodes = 0
    for shape, count in enumerate(needs):
        takes = sorted(
            (
                takes
                for kind in kinds
                if kind.shape == shape and (takes := kind.takes_all(values))
                for _ in range(kind.nodes)
            ),
            reverse=True,
        )
        nodes += bisect_left(list(accumulate(takes)), count) + 1
    chosen = {each for each, _ in values}
    free = sum(kind.nodes * number for kind in kinds for each, number in kind.free if each in chosen)
    return nodes, free, [(order(each), number) for each, number in values]


def options(kinds: Iterable[NodeKind], devices: int) -> list[frozenset[Values]]:
    """The smallest sets of values from which some node serves one unit with so many devices, few values first."""
    found: dict[frozenset[Values], None] = {}
    for kind in kinds:
        free = dict(kind.free)
        if kind.whole:
            found[frozenset(free)] = None
            continue
        for size in range(1, min(len(free), devices) + 1):
            for values in combinations(free, size):
                has = sum(free[each] for each in values)
                spare = size > 1 and any(has - free[each] >= devices for each in values)
                if has >= devices and not spare and len(found) < OPTIONS_MAX:
                    found[frozenset(values)] = None
    return sorted(found, key=lambda each: (len(each), sorted(map(order, each))))


def order(values: Values) -> list[tuple[str, list[tuple[int, str]]]]:
    """By kind, then numbers as numbers: rail-2 before rail-10."""
    return sorted((kind, natural(str(value))) for kind, value in values)


def shown(values: Multiset) -> str:
    """As people read it: `0, 1, 2, 3`; `0 x 4` for four devices of one value."""
    parts = []
    for each, number in values:
        one = "+".join(sorted((str(value) for _, value in each), key=natural))
        parts.append(one if number == 1 else f"{one} x {number}")
    return ", ".join(parts)
