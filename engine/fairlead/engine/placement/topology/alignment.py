"""Aligned gangs: which values of an attribute the devices of a gang's members have, chosen before its nodes are.

In a rail-optimised fabric GPU i of each node reaches GPU i of the others alone, so a gang whose pods have half a node each talks only
where each pod has the same half. `matchAttribute` holds within one claim; here all claims of a gang are decided together, and the
choice of values is a level outside the search for nodes: of the rails for which enough nodes have free devices those that take the
fewest nodes, and of these the ones with fewest free devices, so that other rails stay whole (`value_sets`).

Example: 2 pods with two GPUs each; rails 0 and 1 are free on nodes a and b, rails 2 and 3 on a, b and c: rails 0 and 1 on a and b.
Keeps: for `same` every multiset that may serve is a choice, so that a refusal is a proof where `Choices.whole` is true and the searches
for nodes are proofs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from fairlead.api import names
from fairlead.api.align import Alignment, alignments
from fairlead.engine.allocator.requests import Aligned, InvalidClaimError
from fairlead.engine.inventory import ordinals
from fairlead.engine.placement.capacity.bounds import UNBOUNDED
from fairlead.engine.placement.topology.value_sets import (
    Multiset,
    NodeKind,
    multiset,
    multisets,
    options,
    rank,
    served,
)
from fairlead.engine.types.references import DeviceRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.allocator.steps import StepBudget
    from fairlead.engine.inventory.device import Device, Value, Values
    from fairlead.engine.inventory.inventory import Inventory
    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.capacity.unit_capacity import UnitCapacity
    from fairlead.engine.placement.model import NodeScope
    from fairlead.engine.placement.search.placer import Placer
    from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
    from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PendingMember

CHOICES_MAX = 64  # of values for all requests together that are tried
MULTISETS_MAX = 4096  # of one request that are looked at


class Part(NamedTuple):
    """What has values of its own: requests of one name under one entry, of the members that it compares.

    `group`: of which subgroup or worker group. `number`: of a member's requests of that name, which one.
    """

    entry: Alignment
    group: str
    request: str
    number: int


class Choice(NamedTuple):
    """The gang's units with the values that their devices have then."""

    values: dict[Part, Multiset]  # of parts whose members have the same
    units: list[PlacementUnit]


class Choices(NamedTuple):
    """`whole`: these are all there are."""

    of: list[Choice]
    whole: bool


class Nearest(NamedTuple):
    """Of a part that no values serve: those that serve most of its units."""

    part: Part
    values: Multiset
    units: int
    wanted: int


@dataclass(slots=True)
class _Wanted:
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


def parse(gang: GangRequest) -> tuple[Alignment, ...]:
    """Raises InvalidClaimError."""
    if not gang.align:
        return ()
    try:
        return alignments(gang.align)
    except ValueError as error:
        raise InvalidClaimError(f"annotation {names.ALIGN}: {error}") from None


class AlignmentRule:
    """Of one placer."""

    def __init__(self, placer: Placer, inventory: Inventory, capacity: UnitCapacity) -> None:
        self._placer = placer
        self._inventory = inventory
        self._capacity = capacity

    def choices(
        self,
        gang: GangRequest,
        units: Sequence[PlacementUnit],
        scope: NodeScope,
        budget: StepBudget,
        *,
        occupied: bool = False,
    ) -> Choices | None:
        """Ways to give every part its values, best first; None where there is nothing to choose. Raises InvalidClaimError.

        `occupied`: with devices that are in use, too; those for which least has to come free are first then.
        """
        entries = parse(gang)
        wanted = self._wanted(units, entries, scope)
        for each in wanted if occupied else ():
            each.kinds = self._kinds(each, scope, occupied=True)
        if not wanted:
            return None
        held = self._held(gang, entries)
        whole = True
        same: list[tuple[_Wanted, list[Multiset]]] = []
        distinct: list[tuple[_Wanted, list[frozenset[Values]], frozenset[Value]]] = []
        for each in wanted:
            has = held.get(each.part, [])
            if each.part.entry.distinct:
                taken = frozenset(value for counted in has for values, _ in counted for value in values)
                distinct.append((each, options(each.kinds, _most(each)), taken))
                whole = whole and len(wanted) == 1 and all(shape.plain for shape in each.requests)
            else:
                found, every = (has, True) if has else _serving(each, budget)
                whole = whole and every
                same.append((each, found))
        every_way = self._together(units, same, distinct)
        listed = list(islice(every_way, CHOICES_MAX))
        return Choices(listed, whole and next(every_way, None) is None)

    def nearest(self, gang: GangRequest, units: Sequence[PlacementUnit], scope: NodeScope) -> Nearest | None:
        """Of the first part that has by itself no values which serve all its units. Raises InvalidClaimError."""
        entries = parse(gang)
        held = self._held(gang, entries)
        for each in self._wanted(units, entries, scope):
            if each.part.entry.distinct:
                continue
            best: Nearest | None = None
            ways = held.get(each.part) or islice(each.multisets([0] * len(each.needs)), MULTISETS_MAX)
            for values in ways:
                units_served = sum(map(min, served(each.kinds, values, len(each.needs)), each.needs))
                if best is None or units_served > best.units:
                    best = Nearest(each.part, values, units_served, len(each.units))
            if best is not None and best.units < best.wanted:
                return best
        return None

    # -- what is wanted and held

    def _wanted(self, units: Sequence[PlacementUnit], entries: Sequence[Alignment], scope: NodeScope) -> list[_Wanted]:
        found: dict[Part, _Wanted] = {}
        for index, unit in enumerate(units) if entries else ():
            for part, _, alternatives in _parts(unit, entries):
                wanted = found.setdefault(part, _Wanted(part))
                wanted.units.append(index)
                _, count = wanted.requests.get(unit.shape, (alternatives, 0))
                wanted.requests[unit.shape] = (alternatives, count + 1)
        for wanted in found.values():
            wanted.kinds = wanted.free = self._kinds(wanted, scope)
        return list(found.values())

    def _held(self, gang: GangRequest, entries: Sequence[Alignment]) -> dict[Part, list[Multiset]]:
        """What released members have, and waiting ones whose claims are allocated: each multiset once."""
        allocated = {claim.key: claim for claim in gang.claims if claim.allocation is not None}
        has = [(each.worker_group, each.subgroup, each.claims) for each in gang.placed_members]
        for member in gang.members if allocated else ():
            own = tuple(allocated[key] for key in member.claims if key in allocated)
            has.append((member.worker_group, member.subgroup, own))
        found: dict[Part, list[Multiset]] = {}
        for worker_group, subgroup, claims in has:
            before: Counter[str] = Counter()
            for claim in claims:
                by_request: dict[str, list[Device]] = {}
                for device, request in self._devices(claim):
                    by_request.setdefault(request, []).append(device)
                for request, devices in by_request.items():
                    for entry in entries:
                        group = {"gang": "", "subgroup": subgroup, "worker-group": worker_group}[entry.scope]
                        counted = multiset(
                            Counter(value for each in devices if (value := each.values(entry.attribute)))
                        )
                        if entry.covers(request) and counted:
                            known = found.setdefault(Part(entry, group, request, before[request]), [])
                            if counted not in known:
                                known.append(counted)
                    before[request] += 1
        return found

    def _devices(self, claim: ClaimRequest) -> Iterator[tuple[Device, str]]:
        """Of an allocated claim, as far as they are published now, each with its request."""
        by_name = self._placer.node_snapshot.by_name
        for item in claim.allocation.devices.results if claim.allocation is not None else ():
            device = self._inventory.device(DeviceRef(item.driver, item.pool, item.device))
            if device is not None and not item.admin_access:
                if device.node in by_name:
                    ordinals.number(by_name[device.node].devices)
                yield device, item.request.partition("/")[0]

    # -- what there is

    def _kinds(self, wanted: _Wanted, scope: NodeScope, *, occupied: bool = False) -> list[NodeKind]:
        """Of each shape and each of its alternatives, nodes by what they have free, or with `occupied` at all."""
        attribute, snapshot, ledger = wanted.part.entry.attribute, self._placer.node_snapshot, self._placer.ledger
        found: Counter[tuple[int, Multiset, int, bool, bool]] = Counter()
        for number, (shape, (alternatives, _)) in enumerate(wanted.requests.items()):
            for node, units in self._nodes(shape, scope, occupied=occupied):
                if attribute == names.ORDINAL:
                    ordinals.number(node.devices)
                for request in alternatives:
                    there = snapshot.candidates(node, request)
                    usable = [device for device in there.devices if occupied or device.shared or ledger.free(device)]
                    free = Counter(value for device in usable if (value := device.values(attribute)))
                    if request.all and (there.all_problem or free.total() < len(there.devices)):
                        continue
                    most = min(units, 1) if request.all else units
                    found[number, multiset(free), most, bool(there.consumption), request.all] += 1
        return [NodeKind(shape, free, most, nodes, *how) for (shape, free, most, *how), nodes in found.items() if free]

    def _nodes(self, shape: UnitShape, scope: NodeScope, *, occupied: bool) -> Iterator[tuple[CandidateNode, int]]:
        """Those that may take a unit, with how many at most."""
        if occupied or self._placer.node_snapshot.has_network_attached or shape.facets:
            yield from ((node, UNBOUNDED) for node in self._placer.scored_nodes(shape, scope).among)
        else:
            yield from self._capacity.by_node(shape, scope).items()

    # -- all parts together

    def _together(
        self,
        units: Sequence[PlacementUnit],
        same: Sequence[tuple[_Wanted, list[Multiset]]],
        distinct: Sequence[tuple[_Wanted, list[frozenset[Values]], frozenset[Value]]],
    ) -> Iterator[Choice]:
        for values in _joint(same, {}):
            for own in _apart(distinct, 0, {}):
                yield Choice(values, self._restricted(units, values, own))

    def _restricted(
        self,
        units: Sequence[PlacementUnit],
        same: Mapping[Part, Multiset],
        own: Mapping[tuple[int, Part], frozenset[Values]],
    ) -> list[PlacementUnit]:
        entries = tuple(dict.fromkeys([*(part.entry for part in same), *(part.entry for _, part in own)]))
        shapes, restricted = self._placer.shapes, []
        for index, unit in enumerate(units):
            by_claim: dict[int, list[Aligned]] = {}
            for part, claim, _ in _parts(unit, entries):
                counts = same.get(part)
                values = own[index, part] if counts is None else frozenset(values for values, _ in counts)
                aligned = Aligned(part.request, part.entry.attribute, values, counts)
                by_claim.setdefault(claim, []).append(aligned)
            claims = tuple(
                shapes.aligned(claim, tuple(by_claim[number])) if number in by_claim else claim
                for number, claim in enumerate(unit.shape.claims)
            )
            restricted.append(shapes.with_claims(unit, claims) if by_claim else unit)
        return restricted


def _parts(
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


def _most(wanted: _Wanted) -> int:
    """Devices that a unit has at least, whichever alternative of whichever shape it is."""
    return max(max(1, each.count) for of, _ in wanted.requests.values() for each in of)


def _serving(wanted: _Wanted, budget: StepBudget) -> tuple[list[Multiset], bool]:
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


def _joint(
    same: Sequence[tuple[_Wanted, list[Multiset]]], chosen: dict[Part, Multiset]
) -> Iterator[dict[Part, Multiset]]:
    """One multiset for each part, such that no more devices of a value are asked for than are free."""
    if len(chosen) == len(same):
        yield dict(chosen)
        return
    wanted, ways = same[len(chosen)]
    for values in ways:
        chosen[wanted.part] = values
        if _free_enough([each for each, _ in same[: len(chosen)]], chosen):
            yield from _joint(same, chosen)
        del chosen[wanted.part]


def _free_enough(parts: Sequence[_Wanted], chosen: Mapping[Part, Multiset]) -> bool:
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


def _apart(
    distinct: Sequence[tuple[_Wanted, list[frozenset[Values]], frozenset[Value]]],
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
        yield from _apart(distinct, number + 1, chosen)
