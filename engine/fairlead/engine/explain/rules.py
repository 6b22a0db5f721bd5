"""What a gang lacks by rules of its own: in the domains of its topology, on one model, or with aligned devices.

Levels are counted as `unit_capacity` does, so at most: that there is capacity is no proof that the gang fits. Said of the levels as the gang
names them, within what its outer required levels leave; of preferred levels only where several are named, for orientation. Models and
values are counted for a gang that has a place without the rule: in devices, now or on the empty cluster, and in pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from fairlead.api import names
from fairlead.api.texts import counted
from fairlead.engine.allocator.requests import CompiledRequest
from fairlead.engine.inventory.device import Values
from fairlead.engine.placement.capacity.unit_capacity import counts
from fairlead.engine.placement.model import CandidateNode, NodeScope, TopologyDomain
from fairlead.engine.placement.search.placer import Placer
from fairlead.engine.placement.shapes import PlacementUnit
from fairlead.engine.placement.topology.aligned_parts import multiset, order, shown
from fairlead.engine.placement.topology.alignment import Nearest
from fairlead.engine.placement.topology.domain_search import TopologyDomains
from fairlead.engine.placement.topology.domains import UnitGroup, by_subgroup, parse
from fairlead.engine.placement.topology.models import Choice
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import LevelShortage

NAMED_MAX = 4  # domains that are named
MODELS_MAX = 6  # likewise
VALUES_MAX = 8


class GangRules:
    """Counts in the ledger of a decision; where a gang can never start, what it lacks in that of the empty cluster."""

    def __init__(self, now: TopologyDomains, empty: Callable[[], tuple[Placer, TopologyDomains]]) -> None:
        self._domains = now
        self._empty = empty

    def missing(self, rule: str, gang: GangRequest, units: Sequence[PlacementUnit], *, ever: bool | None) -> str:
        """What there is under the rule of this annotation, in one phrase; "" where nothing is to be said of it."""
        if rule not in {names.MODELS, names.ALIGN}:
            return ""
        domains = self._domains
        if ever is False:
            placer, domains = self._empty()
            placer.begin()
        if rule == names.ALIGN:
            return _missing_values(domains, gang, units)
        return _missing_models(domains, gang, units, free="" if ever is False else " free")

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
        found: dict[str, int] = {}
        for shape, count in group.counts.items():
            for domain, capacity in self._domains.capacity.in_domains(shape, scope, domains).items():
                found[domain.name] = min(found.get(domain.name, capacity // count), capacity // count)
        return found


def _missing_models(domains: TopologyDomains, gang: GangRequest, units: Sequence[PlacementUnit], *, free: str) -> str:
    """Such as `16 of one model wanted, NVIDIA H100 80GB HBM3 has 8 free, NVIDIA A100-SXM4-80GB has 12 free`."""
    choices = domains.models.choices(gang, units)
    if choices is None:
        return ""
    wanted = max(domains.models.wanted(units).values(), default=0)
    joins = "that of its other members" if gang.placed_claims else "one model"
    found: dict[str, str] = {}
    for choice in choices.of:
        name = " + ".join(dict.fromkeys(map(str, choice.models)))
        devices, pods = _devices(domains, choice), _pods(domains, gang, choice)
        few = f", but together for {pods} of its {len(gang.members)} pods" if devices >= wanted else ""
        found.setdefault(name, f"{name} has {devices}{free}{few}")
    named = list(found.values())
    more = f", and {len(named) - MODELS_MAX} more" if len(named) > MODELS_MAX else ""
    return f"{wanted} of {joins} wanted: {', '.join(named[:MODELS_MAX])}{more}"


def _devices(domains: TopologyDomains, choice: Choice) -> int:
    """The model's devices on all nodes, for whichever of its requests there are most."""
    requests = dict.fromkeys(
        each for unit in choice.units for each in unit.shape.requests if each.filter.model is not None
    )
    nodes = domains.placer.node_snapshot.all
    return max((sum(_free(domains, node, each) for node in nodes) for each in requests), default=0)


def _pods(domains: TopologyDomains, gang: GangRequest, choice: Choice) -> int:
    scope = NodeScope.of(gang, spread=False)
    return sum(
        min(count, sum(domains.capacity.by_node(shape, scope).values())) * len(shape.needs)
        for shape, count in counts(choice.units).items()
    )


def _free(domains: TopologyDomains, node: CandidateNode, request: CompiledRequest) -> int:
    """Devices of the node that the request could have at once; of partitions as many as fit beside one another."""
    ledger, found = domains.placer.ledger, domains.placer.node_snapshot.candidates(node, request)
    if found.plain:
        return sum(map(ledger.free, found.devices))
    taken = [
        (device, consumption)
        for device in found.devices
        if ledger.take(device, consumption := found.consumption.get(device, ()))
    ]
    for device, consumption in reversed(taken):
        ledger.release(device, consumption)
    return len(taken)


def _missing_values(domains: TopologyDomains, gang: GangRequest, units: Sequence[PlacementUnit]) -> str:
    """Such as `gpu.fairlead.dev/rail 0, 1 of request gpu can be had by 5 of its 8 pods, no other values by more;
    in use elsewhere: 0 on 3 nodes, 1 on 2 nodes`.
    """
    found = domains.alignment.nearest(gang, units, NodeScope.of(gang, spread=False))
    if found is None:
        return f"no values of {gang.align} serve all of its pods together"
    pods = f"{found.units} of its {found.wanted} pods"
    if found.wanted == 1:
        pods = "its pod" if found.units else "none of its pods"
    attribute, request = found.part.entry.attribute, found.part.request
    joins = "those of its other members" if gang.placed_members else "no other values by more"
    missing = _in_use(domains, units, found)
    return f"{attribute} {shown(found.values)} of request {request} can be had by {pods}, {joins}{missing}"


def _in_use(domains: TopologyDomains, units: Sequence[PlacementUnit], found: Nearest) -> str:
    """Values of devices that would serve and are in use, with on how many nodes."""
    wanted = {values for values, _ in found.values}
    requests = dict.fromkeys(
        each for unit in units for each in unit.shape.requests if each.request == found.part.request
    )
    nodes: Counter[Values] = Counter()
    for node in domains.placer.node_snapshot.all:
        there = {
            values
            for request in requests
            for device in domains.placer.node_snapshot.candidates(node, request).devices
            if (values := device.values(found.part.entry.attribute)) in wanted
            and not device.shared
            and not domains.placer.ledger.free(device)
        }
        nodes.update(there)
    if not nodes:
        return ""
    listed = [
        f"{shown(multiset({values: 1}))} on {counted(nodes[values], 'node')}" for values in sorted(nodes, key=order)
    ]
    more = f" and {len(listed) - VALUES_MAX} more" if len(listed) > VALUES_MAX else ""
    return f"; in use: {', '.join(listed[:VALUES_MAX])}{more}"
