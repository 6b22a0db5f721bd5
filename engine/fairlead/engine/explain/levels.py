"""What a gang with a topology lacks that found no place: what the domains of each level have capacity for, and by how much it is short.

Counted as `unit_capacity` does, so at most: that there is capacity is no proof that the gang fits. Said of the levels as the gang names them,
within what its outer required levels leave; of preferred levels only where several levels are named, for orientation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.api import names
from fairlead.engine.placement.capacity.bounds import counts
from fairlead.engine.placement.model import NodeScope
from fairlead.engine.placement.topology.domain_search import parse
from fairlead.engine.placement.topology.groups import by_subgroup
from fairlead.engine.types.reasons import LevelShortage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairlead.engine.placement.model import TopologyDomain
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.placement.topology.domain_search import TopologyDomains
    from fairlead.engine.placement.topology.groups import UnitGroup
    from fairlead.engine.types.gangs import GangRequest

NAMED_MAX = 4  # domains that are named


class LevelCounter:
    """Counts units in one ledger."""

    def __init__(self, domains: TopologyDomains) -> None:
        self._domains = domains

    def shortages(self, gang: GangRequest, units: Sequence[PlacementUnit]) -> tuple[LevelShortage, ...]:
        """The shortage of each level, outermost first, those of subgroups last; () without a topology that can be read."""
        if not gang.topology and not gang.subgroup_topology:
            return ()
        outer, inner = parse(gang.topology), parse(gang.subgroup_topology, names.SUBGROUP_TOPOLOGY)
        scope = NodeScope.of(gang, spread=False)
        placed = self._domains.nodes(gang.placed_nodes)
        found: list[LevelShortage] = []
        for depth, level in enumerate(outer, start=1):
            domains = self._domains.partition(tuple(each.label for each in outer[:depth])).domains
            if level.mode == "required":
                domains = self._domains.allowed(outer[:depth], placed) or []
            best, most = self._best(units, domains, scope)
            found.append(
                LevelShortage(
                    level=level.label,
                    required=level.mode == "required",
                    wanted=len(gang.members),
                    most=most,
                    domains=len(domains),
                    best=best,
                )
            )
        if inner:
            found += self._of_subgroups(gang, units, scope)
        return tuple(found)

    def _best(
        self, units: Sequence[PlacementUnit], domains: Sequence[TopologyDomain], scope: NodeScope
    ) -> tuple[str, int]:
        """The domain that takes most of the members, and how many."""
        members = dict.fromkeys((domain.name for domain in domains), 0)
        for shape, count in counts(units).items():
            for domain, capacity in self._domains.capacity.in_domains(shape, scope, domains).items():
                members[domain.name] += min(capacity, count) * len(shape.needs)
        best = min(members, key=lambda name: (-members[name], name), default="")
        return best, members.get(best, 0)

    def _of_subgroups(
        self, gang: GangRequest, units: Sequence[PlacementUnit], scope: NodeScope
    ) -> Iterable[LevelShortage]:
        inner = parse(gang.subgroup_topology, names.SUBGROUP_TOPOLOGY)
        groups = by_subgroup(gang, units)
        largest = max(groups, key=lambda group: (len(group.units), group.least))
        within = self._domains.allowed(parse(gang.topology), self._domains.nodes(gang.placed_nodes))
        for depth, level in enumerate(inner, start=1):
            labels = tuple(each.label for each in inner[:depth])
            parts = [self._domains.partition(labels, outer) for outer in ([None] if within is None else within)]
            capacities = [self._groups(largest, part.domains, scope) for part in parts]
            best = max(capacities, key=lambda capacity: sum(capacity.values()), default={})
            holding = sorted((name for name in best if best[name]), key=lambda name: (-best[name], name))
            more = f" and {len(holding) - NAMED_MAX} more" if len(holding) > NAMED_MAX else ""
            yield LevelShortage(
                level=level.label,
                required=level.mode == "required",
                wanted=len(groups),
                most=min(len(groups), sum(best.values())),
                domains=len(best),
                best=", ".join(f"{name} {best[name]}" for name in holding[:NAMED_MAX]) + more,
                subgroups=True,
                of_each=sum(len(unit.members) for unit in largest.units),
            )

    def _groups(self, group: UnitGroup, domains: Sequence[TopologyDomain], scope: NodeScope) -> dict[str, int]:
        """How many such groups each domain takes at most, by name."""
        found: dict[str, int] = {}
        for shape, count in group.counts.items():
            for domain, capacity in self._domains.capacity.in_domains(shape, scope, domains).items():
                found[domain.name] = min(found.get(domain.name, capacity // count), capacity // count)
        return found
