"""Ranks within a gang's places: members that ask for the same are exchanged, so that neighbouring ranks are close together.

The places stay as they were chosen; only which unit gets which of them changes, among units of one shape. So nothing that the placement
keeps to (rooms, topology, subgroups) can be lost. Places are ordered level by level, outermost first, the domain with most
members first, and ranks are dealt out in that order: each domain gets ranks without a gap.
Keeps: of the pairs of neighbouring ranks, no more are in different domains than before, the outermost level counted first; where
that would be so, everything stays. Placements of which others depend (`fixed`) are not exchanged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from fairlead.engine.placement.topology.groups import NO_RANK, rank_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.placement.shapes import PlacementUnit

    Path = tuple[str, ...]
    Kind = Callable[[PlacementUnit], tuple[int, str]]
    Order = Callable[[UnitPlacement], tuple[tuple[int, str], ...]]


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
    for names, own in groups.items():
        alone = names if keep.intersection(names) or names == ("",) else ()
        kinds[alone, tuple(sorted(kind(each.unit) for each in own))].append(names)
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
