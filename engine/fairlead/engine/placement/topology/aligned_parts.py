"""What the members of an aligned gang compare, and which values of an attribute those parts of it may have together. Pure counting.

A part has values of its own: requests of one name under one entry of `fairlead.dev/align`, of the members that it compares. `alignment`
counts what nodes have for each; here the values are chosen, for each part by itself (`serving`) and for all together (`joint`, `apart`).
Nodes of which the same values are free are counted as one kind. A count is never too low where capacities are not (`unit_capacity`), so what
it rules out is impossible.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations, islice
from typing import NamedTuple

from fairlead.api import names
from fairlead.api.align import Alignment
from fairlead.api.texts import natural
from fairlead.engine.allocator.requests import CompiledRequest, InvalidClaimError
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.inventory.device import Value, Values
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
from fairlead.engine.types.gangs import PendingMember

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


MULTISETS_MAX = 4096  # of one request that are looked at


class Part(NamedTuple):
    """What has values of its own: requests of one name under one entry, of the members that it compares.

    `group`: of which subgroup or worker group. `number`: of a member's requests of that name, which one.
    """

    entry: Alignment
    group: str
    request: str
    number: int


@dataclass(slots=True)
class Wanted:
    """One part. `requests`: of each shape the alternatives, and how many units there are."""

    part: Part
    units: list[int] = field(default_factory=list)  # indexes
    requests: dict[UnitShape, tuple[tuple[CompiledRequest, ...], int]] = field(default_factory=dict)
    kinds: list[NodeKind] = field(default_factory=list)
    free: list[NodeKind] = field(default_factory=list)  # as `kinds`, without devices that would have to come free

    @property
    def needs(self) -> list[int]:
        return [count for _, count in self.requests.values()]

    def sizes(self) -> list[int]:
        """Numbers of devices for which each shape has an alternative, earlier alternatives first; of `All` none."""
        exact = [dict.fromkeys(each.count for each in of) for of, _ in self.requests.values() if not of[0].all]
        return [size for size in exact[0] if all(size in other for other in exact[1:])] if exact else []

    def multisets(self, needs: Sequence[int]) -> Iterator[Multiset]:
        """All that may serve so many units of each shape."""
        if any(each.whole for each in self.kinds):
            found = dict.fromkeys(each.free for each in self.kinds if each.whole)
            sizes = self.sizes()
            yield from (each for each in found if not sizes or sum(number for _, number in each) in sizes)
        elif not any(of[0].all for of, _ in self.requests.values()):
            for size in self.sizes():
                yield from multisets(self.kinds, size, needs)


def parts_of(
    unit: PlacementUnit, entries: Sequence[Alignment]
) -> Iterator[tuple[Part, int, tuple[CompiledRequest, ...]]]:
    """Each part of a unit, with the index of its claim and the alternatives there."""
    position = {claim.key: index for index, claim in enumerate(unit.claims)}
    seen: set[int] = set()
    for member in unit.members:
        before: Counter[str] = Counter()
        for index in [position[key] for key in member.claims if key in position]:
            for alternatives in unit.shape.claims[index].alternatives:
                request = alternatives[0].request
                number = before[request]
                before[request] += 1
                if index in seen or all(each.admin for each in alternatives):
                    continue
                for entry in entries:
                    if entry.covers(request) and (group := _group(member, entry)) is not None:
                        yield Part(entry, group, request, number), index, alternatives
            seen.add(index)


def _group(member: PendingMember, entry: Alignment) -> str | None:
    """With whose members it is compared; None: with nobody's."""
    if entry.scope == "gang":
        return ""
    return (member.subgroup if entry.scope == "subgroup" else member.worker_group) or None


def most(wanted: Wanted) -> int:
    """Devices that a unit has at least, whichever alternative of whichever shape it is."""
    return max(max(1, each.count) for of, _ in wanted.requests.values() for each in of)


def serving(wanted: Wanted, budget: StepBudget) -> tuple[list[Multiset], bool]:
    """The multisets that may serve all units, best first, and whether these are all. Raises InvalidClaimError where none can."""
    if not wanted.sizes() and not any(of[0].all for of, _ in wanted.requests.values()):
        counts = sorted({each.count for of, _ in wanted.requests.values() for each in of})
        part = wanted.part
        raise InvalidClaimError(
            f"annotation {names.ALIGN}: {part.entry}: request {part.request} is for {' or '.join(map(str, counts))} devices in different "
            "pods, whose devices cannot all have the same values; ask for as many in each, name requests with `of`, or write "
            "`per worker-group`"
        )
    needs = wanted.needs
    found: list[Multiset] = []
    ways, every = wanted.multisets(needs), True
    for values in islice(ways, MULTISETS_MAX):
        if not budget.spend(1):
            every = False
            break
        if all(map(int.__ge__, served(wanted.kinds, values, len(needs)), needs)):
            found.append(values)
    short = {values: sum(needs) - sum(map(min, served(wanted.free, values, len(needs)), needs)) for values in found}
    found.sort(key=lambda values: (short[values], rank(wanted.kinds, values, needs)))
    return found, every and next(ways, None) is None


def joint(
    same: Sequence[tuple[Wanted, list[Multiset]]], chosen: dict[Part, Multiset]
) -> Iterator[dict[Part, Multiset]]:
    """One multiset for each part, such that no more devices of a value are asked for than are free."""
    if len(chosen) == len(same):
        yield dict(chosen)
        return
    wanted, ways = same[len(chosen)]
    for values in ways:
        chosen[wanted.part] = values
        if _free_enough([each for each, _ in same[: len(chosen)]], chosen):
            yield from joint(same, chosen)
        del chosen[wanted.part]


def _free_enough(parts: Sequence[Wanted], chosen: Mapping[Part, Multiset]) -> bool:
    """Whether parts that compare the same attribute of the same request in several groups have enough; a bound, not a proof of room."""
    asked: dict[tuple[str, str, int], Counter[Values]] = {}
    free: dict[tuple[str, str, int], Counter[Values]] = {}
    for wanted in parts:
        if len(wanted.requests) > 1 or any(kind.shared for kind in wanted.kinds):
            continue
        key = (wanted.part.entry.attribute, wanted.part.request, wanted.part.number)
        for values, number in chosen[wanted.part]:
            asked.setdefault(key, Counter())[values] += number * len(wanted.units)
        has: Counter[Values] = Counter()
        for kind in wanted.kinds:
            for values, number in kind.free:
                has[values] += kind.nodes * number
        free[key] = free.get(key, Counter()) | has
    return all(number <= free[key][values] for key, of in asked.items() for values, number in of.items())


def apart(
    distinct: Sequence[tuple[Wanted, list[frozenset[Values]], frozenset[Value]]],
    number: int,
    chosen: dict[tuple[int, Part], frozenset[Values]],
) -> Iterator[dict[tuple[int, Part], frozenset[Values]]]:
    """Values for each unit of each part that no other unit of the part has."""
    if number == len(distinct):
        yield dict(chosen)
        return
    wanted, ways, taken = distinct[number]
    elements = [frozenset(value for values in way for value in values) for way in ways]
    alike = len(wanted.requests) == 1

    def assigned(unit: int, start: int, used: frozenset[Value]) -> Iterator[None]:
        if unit == len(wanted.units):
            yield None
            return
        for index in range(start, len(ways)):
            if used.isdisjoint(elements[index]):
                chosen[wanted.units[unit], wanted.part] = ways[index]
                # Alike units in ascending order: other orders are the same choice.
                yield from assigned(unit + 1, index + 1 if alike else 0, used | elements[index])

    for _ in assigned(0, 0, taken):
        yield from apart(distinct, number + 1, chosen)
