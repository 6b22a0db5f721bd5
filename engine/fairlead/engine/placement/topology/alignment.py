"""Aligned gangs: which values of an attribute the devices of a gang's members have, chosen before its nodes are.

In a rail-optimised fabric GPU i of each node reaches GPU i of the others alone, so a gang whose pods have half a node each talks only
where each pod has the same half. `matchAttribute` holds within one claim; here all claims of a gang are decided together, and the
choice of values is a level outside the search for nodes: of the rails for which enough nodes have free devices those that take the
fewest nodes, and of these the ones with fewest free devices, so that other rails stay whole (`aligned_parts`).
Example: 2 pods with two GPUs each; rails 0 and 1 are free on nodes a and b, rails 2 and 3 on a, b and c: rails 0 and 1 on a and b.
Keeps: for `same` every multiset that may serve is a choice, so that a refusal is a proof where `Choices.whole` is true and the searches
for nodes are proofs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from fairlead.api import names
from fairlead.api.align import Alignment, alignments
from fairlead.api.topology import Level
from fairlead.engine.allocator.requests import Aligned, InvalidClaimError
from fairlead.engine.allocator.result import SearchStatus
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.inventory.device import Device, Value, Values
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.pool import number_ordinals
from fairlead.engine.placement.capacity.unit_capacity import UNBOUNDED, UnitCapacity
from fairlead.engine.placement.model import CandidateNode, NodeScope, PlacementResult
from fairlead.engine.placement.search.placer import Placer
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
from fairlead.engine.placement.topology.aligned_parts import (
    MULTISETS_MAX,
    Multiset,
    NodeKind,
    Part,
    Wanted,
    apart,
    joint,
    most,
    multiset,
    options,
    parts_of,
    served,
    serving,
)
from fairlead.engine.placement.topology.models import Search, as_asked, first_found
from fairlead.engine.types.gangs import ClaimRequest, GangRequest
from fairlead.engine.types.values import DeviceRef

CHOICES_MAX = 64  # of values for all requests together that are tried


class Choice(NamedTuple):
    """The gang's units with the values that their devices have then."""

    values: dict[Part, Multiset]  # of parts whose members have the same
    units: list[PlacementUnit]


class Choices(NamedTuple):
    """`whole`: these are all there are."""

    of: list[Choice]
    whole: bool


class Nearest(NamedTuple):
    """The values that serve most units of a part which none serve whole."""

    part: Part
    values: Multiset
    units: int
    wanted: int


def parse(gang: GangRequest) -> tuple[Alignment, ...]:
    """Raises InvalidClaimError."""
    if not gang.align:
        return ()
    try:
        return alignments(gang.align)
    except ValueError as error:
        raise InvalidClaimError(f"annotation {names.ALIGN}: {error}") from None


class AlignmentRule:
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
        same: list[tuple[Wanted, list[Multiset]]] = []
        distinct: list[tuple[Wanted, list[frozenset[Values]], frozenset[Value]]] = []
        for each in wanted:
            has = held.get(each.part, [])
            if each.part.entry.distinct:
                taken = frozenset(value for counted in has for values, _ in counted for value in values)
                distinct.append((each, options(each.kinds, most(each)), taken))
                whole = whole and len(wanted) == 1 and all(shape.plain for shape in each.requests)
            else:
                found, every = (has, True) if has else serving(each, budget)
                whole = whole and every
                same.append((each, found))
        every_way = self._together(units, same, distinct)
        listed = list(islice(every_way, CHOICES_MAX))
        return Choices(listed, whole and next(every_way, None) is None)

    def nearest(self, gang: GangRequest, units: Sequence[PlacementUnit], scope: NodeScope) -> Nearest | None:
        """What is nearest for the first part that has by itself no values which serve all its units. Raises InvalidClaimError."""
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

    def searching(self, gang: GangRequest, scope: NodeScope, search: Search) -> Search:
        """`search`, of units by levels, with aligned devices. A failure is of the units as they were asked for; whether the gang has a place
        where it is not aligned is said of it too. Raises InvalidClaimError.
        """

        def aligned(units: Sequence[PlacementUnit], levels: Sequence[Level], budget: StepBudget) -> PlacementResult:
            choices = self.choices(gang, units, scope, budget)
            if choices is None:
                return search(units, levels, budget)
            ways = [choice.units for choice in choices.of]
            result = as_asked(first_found(ways, levels, budget, search, whole=choices.whole), units)
            if result.status is not SearchStatus.IMPOSSIBLE:
                return result
            otherwise = search(units, levels, budget)
            if otherwise.status is SearchStatus.FOUND:
                self._placer.undo(otherwise.placed)
                return replace(result, rule=names.ALIGN)
            return replace(otherwise, status=SearchStatus.IMPOSSIBLE)

        return aligned

    # -- what is wanted and held

    def _wanted(self, units: Sequence[PlacementUnit], entries: Sequence[Alignment], scope: NodeScope) -> list[Wanted]:
        found: dict[Part, Wanted] = {}
        for index, unit in enumerate(units) if entries else ():
            for part, _, alternatives in parts_of(unit, entries):
                wanted = found.setdefault(part, Wanted(part))
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
        """The devices of an allocated claim, as far as they are published now, each with its request."""
        by_name = self._placer.node_snapshot.by_name
        for item in claim.allocation.devices.results if claim.allocation is not None else ():
            device = self._inventory.device(DeviceRef(item.driver, item.pool, item.device))
            if device is not None and not item.admin_access:
                if device.node in by_name:
                    number_ordinals(by_name[device.node].devices)
                yield device, item.request.partition("/")[0]

    # -- what there is

    def _kinds(self, wanted: Wanted, scope: NodeScope, *, occupied: bool = False) -> list[NodeKind]:
        """For each shape and each of its alternatives, nodes by what they have free, or with `occupied` at all."""
        attribute, snapshot, ledger = wanted.part.entry.attribute, self._placer.node_snapshot, self._placer.ledger
        found: Counter[tuple[int, Multiset, int, bool, bool]] = Counter()
        for number, (shape, (alternatives, _)) in enumerate(wanted.requests.items()):
            for node, units in self._nodes(shape, scope, occupied=occupied):
                if attribute == names.ORDINAL:
                    number_ordinals(node.devices)
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
        same: Sequence[tuple[Wanted, list[Multiset]]],
        distinct: Sequence[tuple[Wanted, list[frozenset[Values]], frozenset[Value]]],
    ) -> Iterator[Choice]:
        for values in joint(same, {}):
            for own in apart(distinct, 0, {}):
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
            for part, claim, _ in parts_of(unit, entries):
                counts = same.get(part)
                values = own[index, part] if counts is None else frozenset(values for values, _ in counts)
                aligned = Aligned(part.request, part.entry.attribute, values, counts)
                by_claim.setdefault(claim, []).append(aligned)
            claims = tuple(
                shapes.compiler.aligned(claim, tuple(by_claim[number])) if number in by_claim else claim
                for number, claim in enumerate(unit.shape.claims)
            )
            restricted.append(shapes.with_claims(unit, claims) if by_claim else unit)
        return restricted
