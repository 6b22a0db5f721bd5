"""A place for a whole gang, with what has to go for it: each unit where it fits, else where making room costs least.

Units that belong together go to one topology domain, on one model, or on devices that are aligned: the first where nothing needs to go, else the cheapest. Greedy:
what this misses, the searches of its callers find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fairlead.api import names
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.placement.model import NodeScope, TopologyDomain, UnitPlacement
from fairlead.engine.placement.shapes import PlacementUnit, hardest_first
from fairlead.engine.placement.topology.domain_search import TopologyDomains
from fairlead.engine.placement.topology.domains import by_subgroup, parse, required
from fairlead.engine.reclaim.candidates import EvictionUnit
from fairlead.engine.reclaim.cheapest_nodes import CheapestNodes
from fairlead.engine.reclaim.eviction_policy import EvictionPolicy, Preemptor
from fairlead.engine.types.gangs import GangRequest

Found = tuple[list[EvictionUnit], list[UnitPlacement]]
"""What was evicted, and where the gang's units are: both in force."""


Where = TypeVar("Where")
ALIGNED_MAX = 16  # values tried for one gang on each model
DOMAINS_MAX = 32  # topology domains tried for one gang


def allowed_domains(domains: TopologyDomains, gang: GangRequest) -> list[TopologyDomain] | None:
    """The topology domains in which room may be made for the gang; None: anywhere. Raises InvalidClaimError."""
    allowed = domains.allowed(parse(gang.topology), domains.nodes(gang.placed_nodes))
    return None if allowed is None else allowed[:DOMAINS_MAX]


def evict_and_place(
    preemptor: Preemptor, among: TopologyDomain | None, budget: StepBudget, cheapest: CheapestNodes[Any]
) -> Found | None:
    """What was evicted, and all places, both in force; None, rolled back, if a unit finds no place.

    `cheapest` has the policy (what may count as gone), what it costs, and the costs of earlier calls.
    """
    attempt = _Attempt(preemptor, among, budget, cheapest)
    ways = _ways(preemptor, among, budget, cheapest.costs.policy.cluster.domains)
    return attempt.place(ways[0]) if len(ways) == 1 else attempt.where_least_goes(ways, attempt.place)


def _ways(
    preemptor: Preemptor, among: TopologyDomain | None, budget: StepBudget, domains: TopologyDomains
) -> list[Sequence[PlacementUnit]]:
    """The gang's units on each model, or with each of the values, that its rules leave it. Raises InvalidClaimError."""
    gang = preemptor.gang
    models = domains.models.choices(gang, preemptor.units)
    ways: list[Sequence[PlacementUnit]] = (
        [preemptor.units] if models is None else [choice.units for choice in models.of]
    )
    if not gang.align:
        return ways
    scope = NodeScope.of(gang, spread=preemptor.spread, among=among)
    aligned = [(way, domains.alignment.choices(gang, way, scope, budget, occupied=True)) for way in ways]
    return [
        units
        for way, choices in aligned
        for units in ([way] if choices is None else [choice.units for choice in choices.of[:ALIGNED_MAX]])
    ]


@dataclass(frozen=True, slots=True)
class _Attempt:
    preemptor: Preemptor
    among: TopologyDomain | None
    budget: StepBudget
    cheapest: CheapestNodes[Any]

    @property
    def policy(self) -> EvictionPolicy:
        return self.cheapest.costs.policy

    def place(self, wanted: Sequence[PlacementUnit]) -> Found | None:
        """These units of the gang."""
        statement = self.policy.statement
        mark = statement.checkpoint()
        evicted: list[EvictionUnit] = []
        placed: list[UnitPlacement] = []
        for units, domains in self._parts(wanted):
            place = partial(self._in_domain, hardest_first(units))
            found = place(domains[0]) if len(domains) == 1 else self.where_least_goes(domains, place)
            if found is None:
                statement.rollback(mark)
                return None
            evicted += found[0]
            placed += found[1]
        return evicted, placed

    def _parts(
        self, wanted: Sequence[PlacementUnit]
    ) -> list[tuple[Sequence[PlacementUnit], Sequence[TopologyDomain | None]]]:
        """The units that must be in one domain together, and the domains of which one must be theirs. Subgroups have some of their own."""
        gang, domains = self.preemptor.gang, self.policy.cluster.domains
        inner = parse(gang.subgroup_topology, names.SUBGROUP_TOPOLOGY)
        if not required(inner):
            return [(wanted, (self.among,))]
        found: list[tuple[Sequence[PlacementUnit], Sequence[TopologyDomain | None]]] = []
        for group in sorted(by_subgroup(gang, wanted), key=lambda each: (-each.least, each.rank, each.names)):
            allowed = domains.allowed(inner, domains.nodes(group.placed), self.among) or ()
            found.append((group.units, allowed[:DOMAINS_MAX]))
        return found

    def where_least_goes(self, places: Sequence[Where], place: Callable[[Where], Found | None]) -> Found | None:
        """In the first domain, or on the first model, where nothing needs to go, else where it costs least."""
        statement, cost = self.policy.statement, self.cheapest.costs.of_set
        least: tuple[tuple[float, ...], Where] | None = None
        for each in places:
            mark = statement.checkpoint()
            found = place(each)
            if found is not None and not found[0]:
                return found
            if found is not None:
                statement.rollback(mark)
                if least is None or cost(self.preemptor, found[0]) < least[0]:
                    least = cost(self.preemptor, found[0]), each
        return None if least is None else place(least[1])

    def _in_domain(self, units: Sequence[PlacementUnit], among: TopologyDomain | None) -> Found | None:
        """These units, in one domain."""
        statement = self.policy.statement
        scope = NodeScope.of(self.preemptor.gang, spread=self.preemptor.spread, among=among)
        mark = statement.checkpoint()
        evicted: list[EvictionUnit] = []
        placed: list[UnitPlacement] = []
        for unit in units:
            entry = statement.placer.place_unit(unit, self.budget, scope)
            if entry is not None:
                statement.allocated((entry,))
            elif (found := self.cheapest.best(self.preemptor, unit, scope, self.budget)) is not None:
                node, victims = found
                for victim in victims:
                    self.policy.evict(victim)
                evicted += victims
                entry = statement.put(unit, node, self.budget)
            if entry is None:
                statement.rollback(mark)
                return None
            placed.append(entry)
        return evicted, placed
