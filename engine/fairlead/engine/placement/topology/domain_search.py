"""Gangs with a topology: in one domain of each required level, and in as few as possible of each preferred one.

The innermost domain that holds the gang, the tightest of them (larger ones stay whole for larger gangs, ties by path); where none
does, a domain of the next level, and in it as few of the inner ones as their capacities allow. Required levels bound it: beyond the
innermost of them it does not go. Subgroups are placed in the same way, each as one, within what the gang may use. Preferred levels
decide the order in which nodes are tried, never what is possible: at last every node that the required levels allow is tried.
The choice of a model comes before all levels (`models`): it is made where the place that is found mixes several.
Where all groups are alike and their pods plain a refusal is a proof; else it says that the search ended, unless capacities rule it out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from fairlead.api import names
from fairlead.api.topology import Level
from fairlead.engine.allocator.result import SearchStatus
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.models import Model
from fairlead.engine.placement.capacity.unit_capacity import UnitCapacity, counts
from fairlead.engine.placement.model import (
    CandidateNode,
    NodeScope,
    PlacementResult,
    TopologyDomain,
    UnitPlacement,
    better,
)
from fairlead.engine.placement.search.fewest_nodes import FewestNodes
from fairlead.engine.placement.search.placer import Placer
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
from fairlead.engine.placement.topology.alignment import AlignmentRule
from fairlead.engine.placement.topology.domains import (
    Domains,
    Partition,
    UnitGroup,
    all_units,
    by_subgroup,
    in_rank_order,
    one_by_one,
    parse,
    required,
)
from fairlead.engine.placement.topology.models import ModelRule, as_asked, first_found, mixes
from fairlead.engine.types.gangs import GangRequest

SMALL_MAX = 8  # domains that their capacities rule out, and that are tried all the same: what is said of the gang comes from them
TRIES_MAX = 256  # of groups that are unlike in domains


class TopologyDomains(Domains):
    """Places gangs by their topology, and on one model each."""

    def __init__(self, placer: Placer, inventory: Inventory) -> None:
        super().__init__(placer)
        self.placer = placer
        self.capacity = UnitCapacity(placer.scored_nodes)
        self.models = ModelRule(placer, inventory, self.capacity)
        self.alignment = AlignmentRule(placer, inventory, self.capacity)
        self.fewest = FewestNodes(placer, self.capacity)

    def place(
        self, gang: GangRequest, units: Sequence[PlacementUnit], budget: StepBudget, *, spread: bool
    ) -> PlacementResult:
        """As Placer.place, within the gang's topology and on one model, unless it says that any will do.

        Raises InvalidClaimError for a topology that can't be read.
        """
        levels, inner = parse(gang.topology), parse(gang.subgroup_topology, names.SUBGROUP_TOPOLOGY)
        scope = NodeScope.of(gang, spread=spread)

        def by_levels(units: Sequence[PlacementUnit], levels: Sequence[Level], budget: StepBudget) -> PlacementResult:
            return self._search(gang, units, scope, levels, inner, budget)

        search = self.alignment.searching(gang, scope, by_levels) if gang.align else by_levels
        result, several = search(units, levels, budget), False
        if result.status is SearchStatus.FOUND and self.models.binds(gang, units):
            used = self.models.used(result.placed)
            if mixes(used, self.models.held(gang)):
                self._placer.undo(result.placed)
                choices = self.models.choices(gang, units)
                assert choices is not None, "it mixed several"
                ways = self.models.ways(choices, scope)
                result = first_found(ways, levels, budget, search, whole=choices.whole)
                if result.status is not SearchStatus.FOUND:
                    return replace(as_asked(result, units), rule=names.MODELS)
                used = self.models.used(result.placed)
            several = len(set[Model]().union(*used.values())) > 1
        if result.status is SearchStatus.FOUND and any(member.rank is not None for member in gang.members):
            labels = tuple(level.label for level in (*levels, *inner))
            begun = (name for name, _ in gang.placed_subgroups)
            in_rank_order(result.placed, [self.values(label) for label in labels], begun, by_worker_group=several)
        return result

    def _search(
        self,
        gang: GangRequest,
        units: Sequence[PlacementUnit],
        scope: NodeScope,
        levels: Sequence[Level],
        inner: Sequence[Level],
        budget: StepBudget,
    ) -> PlacementResult:
        placed = self.nodes(gang.placed_nodes)
        if not levels and not inner:
            return self.fewest.place(units, budget, scope, placed)
        groups = by_subgroup(gang, units) if inner else one_by_one(units)
        return _Search(self, self._placer, scope, inner, placed).place(_Wanted(groups, levels, placed), None, budget)

    def nodes(self, known: Sequence[str]) -> list[CandidateNode]:
        """Those of these names that there are."""
        by_name = self._placer.node_snapshot.by_name
        return [by_name[name] for name in known if name in by_name]

    def allowed(
        self, levels: Sequence[Level], placed: Sequence[CandidateNode], within: TopologyDomain | None = None
    ) -> list[TopologyDomain] | None:
        """The domains of which the required levels demand one; None where any node will do. `placed`: where members run."""
        labels = required(levels)
        if not labels:
            return None
        partition = self.partition(labels, within)
        taken = partition.where(placed)
        if taken - {None}:
            return [domain for domain in taken if domain is not None] if len(taken) == 1 else []
        return partition.domains


class _Wanted(NamedTuple):
    """Groups to place by levels. `placed`: nodes on which the gang, or the group, has members already."""

    groups: Sequence[UnitGroup]
    levels: Sequence[Level]
    placed: Sequence[CandidateNode] = ()


class _Search:
    """One gang, once. `inner`: the levels of each of its groups; () where they have none. `beside`: nodes on which it is already."""

    def __init__(
        self,
        domains: TopologyDomains,
        placer: Placer,
        scope: NodeScope,
        inner: Sequence[Level],
        beside: Sequence[CandidateNode],
    ) -> None:
        self._domains = domains
        self._placer = placer
        self._scope = scope
        self._inner = inner
        self._beside = beside
        self._tries = TRIES_MAX

    def place(self, wanted: _Wanted, within: TopologyDomain | None, budget: StepBudget) -> PlacementResult:
        """All groups in the fewest domains of the levels, `within` a domain where one is given."""
        levels = wanted.levels
        bound = len(required(levels))
        allowed = self._domains.allowed(levels, wanted.placed, within)
        if bound and wanted.placed and allowed is not None and len(allowed) == 1:
            within = allowed[0]
        if allowed == []:
            return PlacementResult(SearchStatus.IMPOSSIBLE)
        result = PlacementResult(SearchStatus.IMPOSSIBLE)
        for depth in range(len(levels), bound - 1, -1):
            if depth == 0:
                return self._fewest(wanted, 0, within, budget)
            result = PlacementResult(SearchStatus.IMPOSSIBLE)
            for domain in self._ordered(wanted, depth, within, last=depth in {bound, 1}):
                found = self._fewest(wanted, depth, domain, budget.attempt())
                if found.status is SearchStatus.FOUND:
                    return found
                result = better(result, found)
        return result

    # -- domains

    def _partition(self, wanted: _Wanted, depth: int, within: TopologyDomain | None) -> Partition:
        return self._domains.partition(tuple(level.label for level in wanted.levels[:depth]), within)

    def _ordered(
        self, wanted: _Wanted, depth: int, within: TopologyDomain | None, *, last: bool
    ) -> list[TopologyDomain]:
        """Domains to try in turn: those where the gang runs already, then those likely to hold it, tightest first.

        `last`: no larger domains are tried after these, so the largest of those that are too small are among them.
        """
        partition = self._partition(wanted, depth, within)
        taken = partition.where(wanted.placed)
        known = [domain for domain in partition.domains if domain in taken]
        shares = self._shares(wanted.groups, partition.domains)
        fitting = sorted(
            (domain for domain in partition.domains if shares[domain] >= 1 and domain not in taken),
            key=lambda domain: (-shares[domain] if self._scope.spread else shares[domain], domain.name),
        )
        small = sorted(
            (domain for domain in partition.domains if shares[domain] < 1 and domain not in taken),
            key=lambda domain: (-shares[domain], domain.name),
        )
        if self._placer.bounded(all_units(wanted.groups)):
            small = small[:SMALL_MAX] if last and not known and not fitting else []
        return [*known, *fitting, *small]

    def _shares(self, groups: Sequence[UnitGroup], domains: Sequence[TopologyDomain]) -> dict[TopologyDomain, float]:
        """How many times over each domain may hold the groups; less than 1: certainly not."""
        least = dict.fromkeys(domains, float("inf"))
        for shape, count in _counts(groups).items():
            for domain, capacity in self._domains.capacity.in_domains(shape, self._scope, domains).items():
                least[domain] = min(least[domain], capacity / count)
        return least

    def _fewest(
        self, wanted: _Wanted, depth: int, within: TopologyDomain | None, budget: StepBudget
    ) -> PlacementResult:
        """In as few as possible of the domains of the next level that are `within`; at last on all nodes there."""
        if depth < len(wanted.levels):
            domains = self._partition(wanted, depth + 1, within).domains
            for size in self._sizes(wanted, domains):
                chosen = self._largest(wanted, domains, size)
                found = self._one_after_the_other(wanted, depth + 1, chosen, budget)
                if found is None or found.status is not SearchStatus.FOUND:
                    found = self._fill(wanted.groups, self._domains.joined(chosen), budget)
                if found.status is SearchStatus.FOUND:
                    return found
        return self._fill(wanted.groups, within, budget)

    def _sizes(self, wanted: _Wanted, domains: Sequence[TopologyDomain]) -> list[int]:
        """How many domains to try: as many as their capacities demand, one and two more, then twice as many each time."""
        size, sizes = 2, list[int]()
        if self._placer.bounded(all_units(wanted.groups)):
            for shape, count in _counts(wanted.groups).items():
                capacities = sorted(
                    self._domains.capacity.in_domains(shape, self._scope, domains).values(), reverse=True
                )
                size = max(size, bisect_left(list(accumulate(capacities)), count) + 1)
            sizes = [size, size + 1]
            size += 2
        while size < len(domains):
            sizes.append(size)
            size *= 2
        return [size for size in sizes if size < len(domains)]

    def _largest(self, wanted: _Wanted, domains: Sequence[TopologyDomain], size: int) -> list[TopologyDomain]:
        """Those with most capacity; instead of the last of them the tightest that will do, so that larger ones stay whole."""
        shapes = _counts(wanted.groups)
        by_shape = [self._domains.capacity.in_domains(shape, self._scope, domains) for shape in shapes]
        capacities = {domain: [capacity[domain] for capacity in by_shape] for domain in domains}
        ordered = sorted(domains, key=lambda domain: (-sum(capacities[domain]), domain.name))
        chosen = ordered[: size - 1]
        have = [sum(capacity) for capacity in zip(*(capacities[domain] for domain in chosen), strict=True)]
        missing = [count - of for count, of in zip(shapes.values(), have, strict=True)]
        enough = [each for each in ordered[size - 1 :] if all(map(int.__ge__, capacities[each], missing))]
        return [*chosen, enough[-1] if enough and not self._scope.spread else ordered[size - 1]]

    def _one_after_the_other(
        self, wanted: _Wanted, depth: int, domains: Sequence[TopologyDomain], budget: StepBudget
    ) -> PlacementResult | None:
        """As many groups in each domain, in their order, as its capacity allows, by the levels further in. None: no way found."""
        levels, rest = wanted.levels[depth:], list(wanted.groups)
        placed: list[UnitPlacement] = []
        if not levels:
            return None
        for domain in domains:
            taken, rest = self._as_many(rest, domain)
            found = self.place(_Wanted(taken, levels), domain, budget) if taken else None
            if found is not None and found.status is not SearchStatus.FOUND:
                break
            placed += found.placed if found is not None else ()
        else:
            if not rest:
                return PlacementResult(SearchStatus.FOUND, placed)
        self._placer.undo(placed)
        return None

    def _as_many(self, groups: Sequence[UnitGroup], domain: TopologyDomain) -> tuple[list[UnitGroup], list[UnitGroup]]:
        """The groups that the domain has capacity for, the first ones first, and the others."""
        left = {
            shape: self._domains.capacity.in_domains(shape, self._scope, (domain,))[domain] for shape in _counts(groups)
        }
        taken: list[UnitGroup] = []
        others: list[UnitGroup] = []
        for group in groups:
            wanted = group.counts
            fits = all(left[shape] >= count for shape, count in wanted.items())
            (taken if fits else others).append(group)
            for shape, count in wanted.items() if fits else ():
                left[shape] -= count
        return taken, others

    # -- groups

    def _fill(self, groups: Sequence[UnitGroup], among: TopologyDomain | None, budget: StepBudget) -> PlacementResult:
        """All groups on nodes of one domain, each by its own levels, on the fewest nodes."""
        if not self._inner:
            return self._all_together(groups, among, budget)
        ordered = sorted(groups, key=lambda group: (-group.least, group.rank, group.names))
        placed: list[UnitPlacement] = []
        for group in ordered:
            found = self._plain(placed).place(self._one(group), among, budget)
            if found.status is not SearchStatus.FOUND:
                found.members_placed += sum(len(each.unit.members) for each in placed)
                self._placer.undo(placed)
                return self._otherwise(ordered, among, budget, found)
            placed += found.placed
        return PlacementResult(SearchStatus.FOUND, self._groups_together(ordered, placed, among, budget))

    def _all_together(
        self, groups: Sequence[UnitGroup], among: TopologyDomain | None, budget: StepBudget
    ) -> PlacementResult:
        """Whatever their own levels are."""
        scope = self._scope._replace(among=among)
        return self._domains.fewest.place(all_units(groups), budget, scope, self._beside)

    def _groups_together(
        self, groups: Sequence[UnitGroup], placed: list[UnitPlacement], among: TopologyDomain | None, budget: StepBudget
    ) -> list[UnitPlacement]:
        """On fewer nodes, each group on one: that is in one domain of each level, as far as the node is in any."""
        if any(group.placed for group in groups):
            return placed
        scope = self._scope._replace(among=among)
        on = self._domains.partition(tuple(level.label for level in self._inner), among).of
        together = [group.units for group in groups]
        return self._domains.fewest.fewer(placed, scope, budget, beside=self._beside, together=together, on=on)

    def _plain(self, placed: Sequence[UnitPlacement]) -> _Search:
        """The same, of the units of one group. `placed`: those of others."""
        beside = [*self._beside, *(each.node for each in placed)]
        return _Search(self._domains, self._placer, self._scope, (), list(dict.fromkeys(beside)))

    def _one(self, group: UnitGroup) -> _Wanted:
        return _Wanted(one_by_one(group.units), self._inner, self._domains.nodes(group.placed))

    def _otherwise(
        self, groups: Sequence[UnitGroup], among: TopologyDomain | None, budget: StepBudget, failed: PlacementResult
    ) -> PlacementResult:
        """Where each group in its best domain was not the way: other domains, as long as there are tries left."""
        if not required(self._inner):
            return self._all_together(groups, among, budget)
        if self._ruled_out(groups, among):
            failed.status = SearchStatus.IMPOSSIBLE
            return failed
        if len({group.kind for group in groups}) > 1:
            placed: list[UnitPlacement] = []
            if self._descend(groups, 0, among, budget, placed):
                return PlacementResult(SearchStatus.FOUND, placed)
        failed.status = SearchStatus.BUDGET_ENDED
        return failed

    def _descend(
        self,
        groups: Sequence[UnitGroup],
        number: int,
        among: TopologyDomain | None,
        budget: StepBudget,
        placed: list[UnitPlacement],
    ) -> bool:
        if number == len(groups):
            return True
        wanted = self._one(groups[number])
        domains = self._domains.allowed(self._inner, wanted.placed, among) or []
        shares = self._shares(wanted.groups, domains)
        for domain in domains:
            if shares[domain] < 1 and self._placer.bounded(all_units(wanted.groups)):
                continue
            self._tries -= 1
            if self._tries < 0:
                return False
            found = self._plain(placed).place(wanted, domain, budget)
            if found.status is not SearchStatus.FOUND:
                continue
            placed += found.placed
            if self._descend(groups, number + 1, among, budget, placed):
                return True
            del placed[len(placed) - len(found.placed) :]
            self._placer.undo(found.placed)
        return False

    def _ruled_out(self, groups: Sequence[UnitGroup], among: TopologyDomain | None) -> bool:
        """Whether the capacities of the domains prove that the groups of some kind do not fit, whatever becomes of the others."""
        if not self._placer.bounded(all_units(groups)):
            return False
        kinds: dict[tuple[object, ...], list[UnitGroup]] = {}
        for group in groups:
            kinds.setdefault((group.kind, group.placed), []).append(group)
        for alike in kinds.values():
            wanted = self._one(alike[0])
            domains = self._domains.allowed(self._inner, wanted.placed, among)
            if domains is not None and sum(map(int, self._shares(wanted.groups, domains).values())) < len(alike):
                return True
        return False


def _counts(groups: Sequence[UnitGroup]) -> dict[UnitShape, int]:
    return counts(all_units(groups))
