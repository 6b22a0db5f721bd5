"""What the members of an aligned gang compare, and which values those parts of it may have together. Pure.

A part has values of its own: requests of one name under one entry of `fairlead.dev/align`, of the members that it compares. `alignment`
counts what nodes have for each; here the values are chosen, for each part by itself (`serving`) and for all together (`joint`, `apart`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from fairlead.api import names
from fairlead.api.align import Alignment
from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.placement.topology.value_sets import Multiset, NodeKind, multisets, rank, served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.allocator.steps import StepBudget
    from fairlead.engine.inventory.device import Value, Values
    from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
    from fairlead.engine.types.gangs import PendingMember

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
    """Of one part. `requests`: of each shape the alternatives, and how many units there are."""

    part: Part
    units: list[int] = field(default_factory=list)  # indexes
    requests: dict[UnitShape, tuple[tuple[CompiledRequest, ...], int]] = field(default_factory=dict)
    kinds: list[NodeKind] = field(default_factory=list)
    free: list[NodeKind] = field(default_factory=list)  # as `kinds`, without devices that would have to come free

    @property
    def needs(self) -> list[int]:
        """Units of each shape."""
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
    """Of parts that compare the same attribute of the same request in several groups; a bound, not a proof of room."""
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
