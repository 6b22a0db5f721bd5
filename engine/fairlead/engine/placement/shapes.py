"""A gang as units: pods that must be placed together because they share a claim, each with an interned shape.

Placement compares shapes, not pods: the thousand pods of a Job have one shape, and what is computed about a node for one of
them holds for all. A shape is an equivalence class of units. Nodes play no part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest, Compiler, InvalidClaimError
from fairlead.engine.inventory.neighbours import Facet, NeighbourTable
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PendingMember
from fairlead.engine.types.pods import PodNeeds
from fairlead.kube.core import NodeSelector
from fairlead.kube.spec_key import spec_key


@dataclass(frozen=True, slots=True, eq=False)
class UnitShape:
    """What a unit requests. Equal units share one; compared by identity."""

    claims: tuple[CompiledClaim, ...]
    needs: tuple[PodNeeds, ...]  # one per pod
    bound: tuple[NodeSelector, ...]  # of claims that are allocated already
    least: int  # devices it takes at least
    number: int  # order of first appearance: a total order
    facets: tuple[Facet | None, ...] = ()  # one per pod, where terms about other pods concern some of them

    @property
    def requests(self) -> dict[CompiledRequest, None]:
        """Those of its claims, all alternatives, in order."""
        return {each: None for claim in self.claims for alternatives in claim.alternatives for each in alternatives}

    @property
    def deepest(self) -> int:
        return max((len(alternatives) for claim in self.claims for alternatives in claim.alternatives), default=1)

    @property
    def plain(self) -> bool:
        """One pod with one claim of n alike devices."""
        return len(self.needs) == 1 and len(self.claims) == 1 and self.claims[0].plain


@dataclass(frozen=True, slots=True)
class PlacementUnit:
    members: tuple[PendingMember, ...]
    claims: tuple[ClaimRequest, ...]  # to allocate; as shape.claims
    shape: UnitShape


class Shapes:
    def __init__(self, compiler: Compiler, neighbours: NeighbourTable | None = None) -> None:
        """`neighbours` None: terms about other pods do not count."""
        self.compiler = compiler
        self._neighbours = neighbours
        self._known: dict[object, UnitShape] = {}

    @property
    def known(self) -> int:
        return len(self._known)

    def units(self, gang: GangRequest, banned: tuple[str, ...] = (), skip: int = 0) -> list[PlacementUnit]:
        """The gang's units, in the order of its members. Raises InvalidClaimError.

        `banned` selectors keep their devices out, `skip` leaves out so many alternatives of each `firstAvailable`.
        """
        claims = {claim.key: claim for claim in gang.claims}
        return [self._unit(members, claims, banned, skip) for members in _linked(gang, claims)]

    def with_claims(self, unit: PlacementUnit, claims: tuple[CompiledClaim, ...]) -> PlacementUnit:
        return PlacementUnit(unit.members, unit.claims, self._shape(claims, list(unit.members), unit.shape.bound))

    def lead(self, unit: PlacementUnit) -> PlacementUnit:
        """The unit's first pod with all of its claims, to be placed before the others."""
        shape = self._shape(unit.shape.claims, list(unit.members[:1]), unit.shape.bound)
        return PlacementUnit(unit.members[:1], unit.claims, shape)

    def followers(self, unit: PlacementUnit, bound: NodeSelector | None) -> list[PlacementUnit]:
        """Its other pods, each a unit of its own, on nodes where the devices given to the first are reachable."""
        selectors = unit.shape.bound if bound is None else (*unit.shape.bound, bound)
        return [PlacementUnit((member,), (), self._shape((), [member], selectors)) for member in unit.members[1:]]

    def _unit(
        self, members: list[PendingMember], claims: dict[str, ClaimRequest], banned: tuple[str, ...], skip: int
    ) -> PlacementUnit:
        to_allocate: dict[str, ClaimRequest] = {}
        bound: list[NodeSelector] = []
        for member in members:
            for key in member.claims:
                claim = claims[key]
                if claim.allocation is None:
                    to_allocate[key] = claim
                elif claim.allocation.node_selector is not None and claim.allocation.node_selector not in bound:
                    bound.append(claim.allocation.node_selector)
        compiled = tuple(
            self.compiler.without(self.compiler.compile(claim), banned, skip) for claim in to_allocate.values()
        )
        return PlacementUnit(tuple(members), tuple(to_allocate.values()), self._shape(compiled, members, tuple(bound)))

    def _shape(
        self, claims: tuple[CompiledClaim, ...], members: list[PendingMember], bound: tuple[NodeSelector, ...]
    ) -> UnitShape:
        needs = tuple(member.needs for member in members)
        facets = self._facets(members)
        key = (claims, needs, bound, facets) if facets else (claims, needs, bound)
        shape = self._known.get(key)
        if shape is None:
            least = sum(claim.least for claim in claims)
            shape = self._known[key] = UnitShape(claims, needs, bound, least, len(self._known), facets)
        return shape

    def _facets(self, members: list[PendingMember]) -> tuple[Facet | None, ...]:
        table = self._neighbours
        if table is None or not table.counts:
            return ()
        found = tuple(table.facet(member.pod.namespace, member.labels, member.needs) for member in members)
        return found if any(found) else ()


def _linked(gang: GangRequest, claims: dict[str, ClaimRequest]) -> list[list[PendingMember]]:
    """Members that share a claim which is still to be allocated, directly or through other members."""
    used = [key for member in gang.members for key in member.claims]
    if len(set(used)) == len(used) and all(key in claims for key in used):
        return [[member] for member in gang.members]  # nothing is shared
    group_of_claim: dict[str, int] = {}
    groups: dict[int, list[PendingMember]] = {}
    for number, member in enumerate(gang.members):
        joined = {number}
        for key in member.claims:
            if key not in claims:
                raise InvalidClaimError(
                    f"Pod {member.pod}: its claim {key} is not there; create the ResourceClaim or wait for it"
                )
            if claims[key].allocation is None and key in group_of_claim:
                joined.add(group_of_claim[key])
        first = min(joined)
        merged = [entry for group in sorted(joined) for entry in groups.pop(group, ())]
        groups[first] = [*merged, member]
        for entry in groups[first]:
            for key in entry.claims:
                if claims[key].allocation is None:
                    group_of_claim[key] = first
    return [groups[number] for number in sorted(groups)]


def signature(gang: GangRequest, units: list[PlacementUnit], *, spread: bool) -> object:
    """The scheduling signature: gangs with equal ones get the same placement result."""
    counts: dict[int, int] = {}
    for unit in units:
        counts[unit.shape.number] = counts.get(unit.shape.number, 0) + 1
    placed = tuple(sorted(gang.placed_nodes)) if gang.topology else ()
    models = _of_models(gang)
    refused = tuple([each.node for each in gang.refused]) if gang.refused else ()
    common: tuple[object, ...] = (
        tuple(sorted(counts.items())), gang.topology, placed, tuple(sorted(gang.avoid)), refused, spread, *models
    )  # fmt: skip
    if gang.align:
        common = (*common, *_of_alignment(gang, units))
    if not gang.subgroup_topology:
        return common
    kinds: dict[str, list[int]] = {}
    for unit in units:
        for name in sorted({member.subgroup for member in unit.members}):
            kinds.setdefault(name, []).append(unit.shape.number)
    begun = {name for name, _ in gang.placed_subgroups}
    own = sorted((name if name in begun else "", tuple(sorted(kind))) for name, kind in kinds.items())
    return (*common, gang.subgroup_topology, tuple(own), gang.placed_subgroups)


def _of_models(gang: GangRequest) -> tuple[object, ...]:
    """What decides on which model a gang is placed, besides its units; of most gangs nothing."""
    if gang.models == "any":
        return ("any",)
    if not gang.placed_claims and not any(member.worker_group for member in gang.members):
        return ()
    groups: dict[str, list[int]] = {}
    for number, member in enumerate(gang.members):
        if member.worker_group:
            groups.setdefault(member.worker_group, []).append(number)
    parts = sorted(map(tuple, groups.values())) if len(groups) > 1 else []
    held = [(groups.get(group), spec_key((claim.spec, claim.allocation))) for group, claim in gang.placed_claims]
    return (spec_key((parts, held)),) if parts or held else ()


def _of_alignment(gang: GangRequest, units: Sequence[PlacementUnit]) -> tuple[object, ...]:
    """What decides how a gang is aligned, besides its topology and models."""
    groups = Counter((unit.shape.number, each.subgroup, each.worker_group) for unit in units for each in unit.members)
    held = [(each.worker_group, each.subgroup, each.claims) for each in gang.placed_members]
    return gang.align, tuple(sorted(groups.items())), spec_key(held)


def hardest_first(units: Sequence[PlacementUnit]) -> list[PlacementUnit]:
    """Large units before small ones, alike ones together; otherwise as given."""
    return sorted(units, key=lambda unit: (-unit.shape.least, unit.shape.number))
