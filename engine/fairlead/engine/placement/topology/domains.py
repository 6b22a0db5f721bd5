"""The domains of a topology, the groups of a gang that are placed in them as one, and ranks within its places.

A domain is the nodes that have one value of a node label, and, within them, of the next one. A level is a node label, or (where no node has
such a label) a device attribute, such as the clique of a multi-node NVLink fabric; nodes without it are in no domain. A domain of several
levels is a path: rack "1" of block "a" is another than rack "1" of block "b".
A group is a subgroup, or a unit by itself. Units are pods that share a claim, so they are on one node: a unit with members of two
subgroups makes one group of both.
Ranks: members that ask for the same are exchanged, so that neighbouring ranks are close together; the places stay as they were chosen, so
nothing that the placement keeps to can be lost. Places are ordered level by level, outermost first, the domain with most members first,
and ranks are dealt out in that order. Of the pairs of neighbouring ranks no more are in different domains than before, the outermost level
counted first; where that would be so, everything stays. Placements of which others depend (`fixed`) are not exchanged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fairlead.api import names
from fairlead.api import topology as text
from fairlead.api.topology import PATH, Level
from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.placement.capacity.unit_capacity import counts
from fairlead.engine.placement.model import (
    CandidateNode,
    TopologyDomain,
    UnitPlacement,
)
from fairlead.engine.placement.search.placer import Placer
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
from fairlead.engine.types.gangs import GangRequest

Path = tuple[str, ...]
Kind = Callable[[PlacementUnit], tuple[int, str]]
Order = Callable[[UnitPlacement], tuple[tuple[int, str], ...]]


Labels = tuple[str, ...]
JOINED_MAX = 1024  # remembered
WITHIN_MAX = 4096  # partitions of domains that are remembered


class Partition:
    """The domains of some levels, in the order of their paths, and that of each node which is in one."""

    __slots__ = ("domains", "of")

    def __init__(self, domain_of: dict[CandidateNode, tuple[str, ...]]) -> None:
        groups: dict[tuple[str, ...], list[CandidateNode]] = {}
        for node, path in domain_of.items():
            groups.setdefault(path, []).append(node)
        found = {path: TopologyDomain(PATH.join(path), groups[path]) for path in sorted(groups)}
        self.domains = list(found.values())
        self.of = {node: found[path] for node, path in domain_of.items()}

    def where(self, nodes: Iterable[CandidateNode]) -> set[TopologyDomain | None]:
        """The domains of these nodes; None for those that are in none."""
        return {self.of.get(node) for node in nodes}


class Domains:
    """Made at first use; the same objects until nodes come, go or change what they are."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._values: dict[str, dict[CandidateNode, str]] = {}
        self._known: dict[tuple[TopologyDomain | None, Labels], Partition] = {}
        self._joined: dict[tuple[TopologyDomain, ...], TopologyDomain] = {}
        self._membership = -1

    def partition(self, labels: Labels, within: TopologyDomain | None = None) -> Partition:
        """The nodes, all or those of a domain, by their values of the labels."""
        self._renew()
        found = self._known.get((within, labels))
        if found is None:
            if len(self._known) >= WITHIN_MAX:
                self._known = {key: each for key, each in self._known.items() if key[0] is None}
            values = [self.values(label) for label in labels]
            nodes = self._placer.node_snapshot.all if within is None else within.nodes
            paths = {node: tuple([of[node] for of in values]) for node in nodes if all(node in of for of in values)}
            found = self._known[within, labels] = Partition(paths)
        return found

    def values(self, label: str) -> dict[CandidateNode, str]:
        """The nodes that have a value of the level, in name order."""
        self._renew()
        found = self._values.get(label)
        if found is None:
            nodes = self._placer.node_snapshot.all
            found = self._values[label] = _by_label(label, nodes) or _by_attribute(label, nodes)
        return found

    def joined(self, domains: Sequence[TopologyDomain]) -> TopologyDomain:
        """Several domains as one."""
        key = tuple(sorted(domains, key=lambda domain: domain.name))
        found = self._joined.get(key)
        if found is None:
            if len(self._joined) >= JOINED_MAX:
                self._joined.clear()
            name = "+".join(domain.name for domain in key)
            found = self._joined[key] = TopologyDomain(name, [node for domain in domains for node in domain.nodes])
        return found

    def _renew(self) -> None:
        membership = self._placer.node_snapshot.membership
        if self._membership != membership:
            self._membership = membership
            if self._values:
                self._values.clear()
                self._known.clear()
                self._joined.clear()
                self._placer.forget_scored_nodes()


def _by_label(label: str, nodes: Sequence[CandidateNode]) -> dict[CandidateNode, str]:
    return {node: node.info.labels[label] for node in nodes if label in node.info.labels}


def _by_attribute(name: str, nodes: Sequence[CandidateNode]) -> dict[CandidateNode, str]:
    """Nodes whose devices, as far as they have the attribute, all have one value of it: the clique of an NVL72 rack."""
    found: dict[CandidateNode, str] = {}
    for node in nodes:
        values = {value for device in node.devices.devices for _, value in device.values(name)}
        if len(values) == 1:
            found[node] = str(values.pop())
    return found


NO_RANK = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class UnitGroup:
    """Units that belong together. `placed`: nodes on which members of it run already. `names`: of its subgroups."""

    units: tuple[PlacementUnit, ...]
    names: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[int, ...]:
        """Equal for groups that ask for the same."""
        return tuple(sorted(unit.shape.number for unit in self.units))

    @property
    def least(self) -> int:
        return sum(unit.shape.least for unit in self.units)

    @property
    def rank(self) -> int:
        """The lowest of its members."""
        return min((rank_of(unit) for unit in self.units), default=NO_RANK)

    @property
    def counts(self) -> dict[UnitShape, int]:
        return counts(self.units)


def rank_of(unit: PlacementUnit) -> int:
    """The lowest of its members; `NO_RANK` where none has one."""
    return min((member.rank for member in unit.members if member.rank is not None), default=NO_RANK)


def one_by_one(units: Iterable[PlacementUnit]) -> list[UnitGroup]:
    """Every unit by itself, those of low rank first; otherwise as given."""
    return [UnitGroup((unit,)) for unit in sorted(units, key=rank_of)]


def all_units(groups: Iterable[UnitGroup]) -> list[PlacementUnit]:
    return [unit for group in groups for unit in group.units]


def by_subgroup(gang: GangRequest, units: Sequence[PlacementUnit]) -> list[UnitGroup]:
    """By the names that members give; units without one are groups by themselves. Those of low rank first."""
    number_of: dict[str, int] = {}
    found: dict[int, list[PlacementUnit]] = {}
    names: dict[int, set[str]] = {}
    for number, unit in enumerate(units):
        own = {member.subgroup for member in unit.members if member.subgroup}
        together = sorted({number_of[name] for name in own if name in number_of})
        into = together[0] if together else number
        for other in together[1:]:
            found[into] += found.pop(other)
            names[into] |= names.pop(other)
        found.setdefault(into, []).append(unit)
        names.setdefault(into, set()).update(own)
        number_of.update(dict.fromkeys(names[into], into))
    groups = [
        UnitGroup(
            tuple(sorted(found[number], key=rank_of)),
            tuple(sorted(names[number])),
            tuple(sorted(node for name, node in gang.placed_subgroups if name in names[number])),
        )
        for number in sorted(found)
    ]
    return sorted(groups, key=lambda group: group.rank)


def in_rank_order(
    placed: Sequence[UnitPlacement],
    values: Sequence[Mapping[CandidateNode, str]],
    keep: Iterable[str] = (),
    *,
    by_worker_group: bool = False,
) -> None:
    """Exchange the units of a gang's placements. `values`: of each level, outermost first, by node.

    `keep`: subgroups with members elsewhere, whose own may change places among themselves only. `by_worker_group`: units change places
    within their worker group only, since these are on different models.
    """
    ranked = [each for each in placed if rank_of(each.unit) != NO_RANK]
    if len(ranked) < 2 or any(each.fixed for each in placed):
        return
    paths = {each.node: _path(each.node, values) for each in ranked}
    order = _order(ranked, paths)
    before, apart = [each.unit for each in ranked], _apart(ranked, paths)
    kind = _kind_in_worker_group if by_worker_group else _kind
    for units, places in _exchanges(ranked, order, kind, frozenset(keep)):
        _deal(units, places, order, kind)
    if _apart(ranked, paths) >= apart:
        for each, unit in zip(ranked, before, strict=True):
            each.unit = unit


def _kind(unit: PlacementUnit) -> tuple[int, str]:
    return unit.shape.number, ""


def _kind_in_worker_group(unit: PlacementUnit) -> tuple[int, str]:
    return unit.shape.number, unit.members[0].worker_group


def _path(node: CandidateNode, values: Sequence[Mapping[CandidateNode, str]]) -> Path:
    """The domain at each level, then the node itself."""
    return (*(of.get(node, "") for of in values), node.name)


def _order(placed: Sequence[UnitPlacement], paths: Mapping[CandidateNode, Path]) -> Order:
    members: Counter[Path] = Counter()
    for each in placed:
        path = paths[each.node]
        members.update(path[: depth + 1] for depth in range(len(path)))

    def order(each: UnitPlacement) -> tuple[tuple[int, str], ...]:
        path = paths[each.node]
        return tuple((-members[path[: depth + 1]], name) for depth, name in enumerate(path))

    return order


def _exchanges(
    placed: Sequence[UnitPlacement], order: Order, kind: Kind, keep: frozenset[str]
) -> Iterable[tuple[list[PlacementUnit], list[UnitPlacement]]]:
    """Units, and the places that they share out: those of a subgroup stay together, and subgroups that are alike change places."""
    groups: dict[tuple[str, ...], list[UnitPlacement]] = defaultdict(list)
    for each in placed:
        groups[tuple(sorted({member.subgroup for member in each.unit.members}))].append(each)
    kinds: dict[object, list[tuple[str, ...]]] = defaultdict(list)
    for subgroups, own in groups.items():
        alone = subgroups if keep.intersection(subgroups) or subgroups == ("",) else ()
        kinds[alone, tuple(sorted(kind(each.unit) for each in own))].append(subgroups)
    for alike in kinds.values():
        by_rank = sorted(alike, key=lambda names: (min(rank_of(each.unit) for each in groups[names]), names))
        by_place = sorted(alike, key=lambda names: (sorted(order(each) for each in groups[names]), names))
        units = [[each.unit for each in groups[names]] for names in by_rank]
        yield from zip(units, [groups[names] for names in by_place], strict=True)


def _deal(units: Sequence[PlacementUnit], places: Sequence[UnitPlacement], order: Order, kind: Kind) -> None:
    """The units in order of rank to the places of their kind, in order."""
    waiting: dict[tuple[int, str], list[PlacementUnit]] = defaultdict(list)
    for unit in sorted(units, key=lambda unit: (rank_of(unit), unit.members[0].pod.uid)):
        waiting[kind(unit)].append(unit)
    taken = {number: iter(own) for number, own in waiting.items()}
    for place in sorted(places, key=order):
        place.unit = next(taken[kind(place.unit)])


def _apart(placed: Sequence[UnitPlacement], paths: Mapping[CandidateNode, Path]) -> list[int]:
    """For each level: how many pairs of neighbouring ranks are in different domains."""
    in_order = sorted(placed, key=lambda each: (rank_of(each.unit), each.unit.members[0].pod.uid))
    found = [0] * len(paths[placed[0].node])
    for one, other in pairwise(in_order):
        a, b = paths[one.node], paths[other.node]
        for depth in range(len(found)):
            found[depth] += a[: depth + 1] != b[: depth + 1]
    return found


def parse(annotation: str | None, key: str = names.TOPOLOGY) -> tuple[Level, ...]:
    """The levels of an annotation, outermost first; () where there is none. Raises InvalidClaimError."""
    if not annotation:
        return ()
    try:
        return text.levels(annotation)
    except ValueError as error:
        raise InvalidClaimError(f"annotation {key}: {error}") from None


def required(levels: Sequence[Level]) -> tuple[str, ...]:
    """The labels of the levels that are required: the first ones."""
    return tuple(level.label for level in levels if level.mode == "required")
