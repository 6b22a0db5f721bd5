"""A gang on as few nodes as it can: where a place has more nodes than it needs, its units are placed anew, node by node.

What a gang exchanges between nodes it pays for in every step. So the number of nodes counts before all that keeps capacity for others
(scarce requests, waste, the tightest fit), and these decide among places of equal number: of the nodes with which that number can
still be reached the best one is filled, then the next. Before the number of nodes count nodes on which the gang failed before, an
earlier alternative of `firstAvailable`, preferred nodes, the smallest MIG devices. Nodes on which the gang runs already cost none.
Never decides what is possible: where nothing better is found the place stays as it was. Exact for alike units of one pod with whole
devices. Otherwise what a node takes is estimated, and corrected where the units did not fit, in a few tries.

Example: 8 pods of one GPU, nodes with 6, 2 and 8 free: the third. 12 pods, nodes with 8, 8, 6 and 5: 5 and 7 of an 8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import groupby
from typing import NamedTuple

from fairlead.engine.allocator.result import SearchStatus
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.inventory.models import mig_share
from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes
from fairlead.engine.placement.capacity.unit_capacity import UnitCapacity, counts
from fairlead.engine.placement.model import CandidateNode, NodeScope, PlacementResult, UnitPlacement
from fairlead.engine.placement.search.placer import Placer
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape, hardest_first

Units = Sequence[PlacementUnit]


TRIES_MAX = 8
RELATED_TRIES = 2  # where terms about other pods count, of which capacities know nothing
STEPS_MAX = 2_000  # of all tries together

Class = tuple[bool, int, int, int]
"""Avoided, rank of the alternative, -preference, size of MIG devices: low is better, and counts before the number of nodes."""


class FewestNodes:
    def __init__(self, placer: Placer, capacity: UnitCapacity) -> None:
        self._placer = placer
        self._capacity = capacity

    def place(
        self, units: Units, budget: StepBudget, scope: NodeScope, beside: Sequence[CandidateNode]
    ) -> PlacementResult:
        """As Placer.place, on the fewest nodes besides those on which the gang is already."""
        result = self._placer.place(units, budget, scope)
        if result.status is SearchStatus.FOUND:
            result.placed = self.fewer(result.placed, scope, budget, beside=beside)
        return result

    def fewer(
        self,
        placed: list[UnitPlacement],
        scope: NodeScope,
        budget: StepBudget,
        *,
        beside: Collection[CandidateNode] = (),
        together: Sequence[Units] | None = None,
        on: Container[CandidateNode] | None = None,
    ) -> list[UnitPlacement]:
        """The same units on fewer nodes of the scope; the same place where it has the fewest, or none with fewer is found.

        `beside`: nodes on which the gang is already. `together`: the units in groups of which each is on one node. `on`: nodes
        that may be used, where not all of the scope may.
        """
        moving = [each for each in placed if each.unit.shape.least]
        used = {each.node for each in moving}.difference(beside)
        if scope.spread or not used or (len(used) == 1 and not beside) or any(each.fixed for each in placed):
            return placed
        if together is not None and len(moving) < len(placed):
            return placed  # a unit that takes no devices stays, and is not to be parted from its group
        beside = {node for node in beside if node.name not in scope.avoid}
        anew = _Anew(self._placer, self._capacity, scope, moving, beside, together, on)
        if not anew.fewer_than(len(used), anew.capacity(moving)):
            return placed
        self._placer.undo(moving)
        found = anew.place(len(used), budget.part(min(budget.steps, STEPS_MAX)))
        if found is not None and self._cost(found, scope) <= self._cost(moving, scope):
            return [*found, *(each for each in placed if not each.unit.shape.least)]
        self._placer.undo(found or ())
        self._placer.redo(moving)
        return placed

    @staticmethod
    def _cost(placed: Sequence[UnitPlacement], scope: NodeScope) -> tuple[int, int, int, int]:
        """As `Class`, of all together."""
        avoided = alternatives = preference = size = 0
        for each in placed:
            avoided += each.node.name in scope.avoid
            preference += sum([each.node.info.preference(needs) for needs in each.unit.shape.needs])
            for claim, picks in zip(each.unit.shape.claims, each.picks, strict=True):
                chosen = {pick.request for pick in picks}
                alternatives += sum(
                    [of.index(request) for of in claim.alternatives for request in chosen.intersection(of)]
                )
                size += sum([int(1000 * (mig_share(pick.device) or 0)) for pick in picks])
        return avoided, alternatives, -preference, size


class _Capacity(NamedTuple):
    """What nodes take of the gang, in devices: each of those that it may use, and all on which it is already."""

    of: dict[CandidateNode, int]
    beside: int


class _Anew:
    def __init__(
        self,
        placer: Placer,
        capacity: UnitCapacity,
        scope: NodeScope,
        moving: Sequence[UnitPlacement],
        beside: Collection[CandidateNode],
        together: Sequence[Units] | None,
        on: Container[CandidateNode] | None,
    ) -> None:
        self._placer = placer
        self._capacity = capacity
        self._scope = scope
        self._beside = beside
        within = None if scope.among is None else frozenset(scope.among.nodes)
        self._on = [each for each in (within, on) if each is not None]
        self._counts = counts(each.unit for each in moving)
        groups = [(each.unit,) for each in moving] if together is None else together
        self._items = sorted(filter(None, map(_item, groups)), key=lambda item: (-item.weight, item.kind))
        self._weight = sum([item.weight for item in self._items])
        self._step = self._items[0].weight if len({item.kind for item in self._items}) == 1 else 1
        self._most: dict[CandidateNode, int] = {}  # what a node took when it was tried

    # -- capacities

    def capacity(self, placed: Iterable[UnitPlacement] = ()) -> _Capacity:
        """The capacity of the nodes without these placements."""
        own: dict[CandidateNode, int] = {}
        for each in placed:
            own[each.node] = own.get(each.node, 0) + each.unit.shape.least
        by_shape = [(shape, self._capacity.by_node(shape, self._scope)) for shape in self._counts]
        found: dict[CandidateNode, int] = {}
        for node in dict.fromkeys([*own, *(node for _, capacities in by_shape for node in capacities)]):
            if all(node in each for each in self._on):
                most = self._on_node(
                    [(shape, capacities.get(node, 0)) for shape, capacities in by_shape], own.get(node, 0)
                )
                most = min(most, self._most.get(node, most))
                if most:
                    found[node] = most
        return _Capacity(found, sum([found.get(node, 0) for node in self._beside]))

    def _on_node(self, capacities: Sequence[tuple[UnitShape, int]], own: int) -> int:
        slack = 0 if len(capacities) == 1 else 1  # what is too little for one more of a shape may do for another
        most = total = 0
        for shape, capacity in capacities:
            units = capacity + own // shape.least
            total += min(units, self._counts[shape]) * shape.least
            most = max(most, (units + slack) * shape.least - slack)
        most = min(total, most)
        return most - most % self._step

    def fewer_than(self, nodes: int, capacity: _Capacity) -> bool:
        """Whether fewer new nodes than that may have capacity for the gang."""
        largest = nlargest(nodes - 1, (most for node, most in capacity.of.items() if node not in self._beside))
        return capacity.beside + sum(largest) >= self._weight

    # -- a place

    def place(self, nodes: int, budget: StepBudget) -> list[UnitPlacement] | None:
        """On fewer new nodes than that; None, and nothing is placed, where none is found."""
        for _ in range(RELATED_TRIES if any(shape.facets for shape in self._counts) else TRIES_MAX):
            capacity = self.capacity()
            if budget.ended or not self.fewer_than(nodes, capacity):
                return None
            known = dict(self._most)
            found = self._fill(nodes, capacity, budget)
            if found is not None or known == self._most:
                return found
        return None

    def _fill(self, nodes: int, capacity: _Capacity, budget: StepBudget) -> list[UnitPlacement] | None:
        left, missing = list(self._items), self._weight
        placed: list[UnitPlacement] = []
        new = 0
        for part in self._parts(capacity):
            sizes = sorted(part.values())
            while part and left:
                node = _best(part, sizes, missing)
                new += node not in self._beside
                if new >= nodes:
                    break
                wanted = min(part[node], missing)
                taken = self._put(left, node, wanted, placed, budget)
                if taken < wanted:
                    self._most[node] = taken
                missing -= taken
                del sizes[bisect_left(sizes, part.pop(node))]
        if not left:
            return placed
        self._placer.undo(placed)
        return None

    def _parts(self, capacity: _Capacity) -> Iterator[dict[CandidateNode, int]]:
        """What nodes take, best nodes first: those on which the gang is, then class by class."""
        scored = [self._placer.scored_nodes(shape, self._scope._replace(among=None)) for shape in self._counts]
        scored.sort(key=lambda each: -each.shape.least)
        order: dict[CandidateNode, Class] = {}
        for each in scored:
            for node in each.ranked():
                if node in capacity.of and node not in order:
                    order[node] = _class(node, each)
        yield {node: capacity.of[node] for node in order if node in self._beside}
        others = sorted((node for node in order if node not in self._beside), key=order.__getitem__)
        for _, of_class in groupby(others, key=order.__getitem__):
            yield {node: capacity.of[node] for node in of_class}

    def _put(
        self, left: list[_Item], node: CandidateNode, wanted: int, placed: list[UnitPlacement], budget: StepBudget
    ) -> int:
        """As many of the items as the node takes, at most so many devices; returns how many devices that are."""
        taken, refused, others = 0, set[object](), list[_Item]()
        for item in left:
            found = None
            if taken < wanted and item.kind not in refused:
                found = self._put_item(item, node, budget)
                refused.update(() if found else (item.kind,))
            if found:
                placed += found
                taken += item.weight
            else:
                others.append(item)
        left[:] = others
        return taken

    def _put_item(self, item: _Item, node: CandidateNode, budget: StepBudget) -> list[UnitPlacement]:
        done: list[UnitPlacement] = []
        for unit in item.units:
            placement = self._placer.put(unit, node, budget)
            if not isinstance(placement, UnitPlacement):
                self._placer.undo(done)
                return []
            done.append(placement)
        return done


class _Item(NamedTuple):
    """Units that are placed on one node, those that take devices. `weight`: how many."""

    weight: int
    kind: tuple[int, ...]
    units: Units


def _item(units: Units) -> _Item | None:
    taking = tuple(hardest_first([unit for unit in units if unit.shape.least]))
    kind = tuple([unit.shape.number for unit in taking])
    return _Item(sum([unit.shape.least for unit in taking]), kind, taking) if taking else None


def _best(part: Mapping[CandidateNode, int], sizes: Sequence[int], missing: int) -> CandidateNode:
    """The first of the nodes with which the fewest hold what is missing; the first of all where all together do not.

    `sizes`: the capacities of the part, in ascending order.
    """
    for size in reversed(sizes):
        if size >= missing:
            return next(node for node, capacity in part.items() if capacity >= missing)
        missing -= size
    return next(iter(part))


def _class(node: CandidateNode, scored: ScoredNodes) -> Class:
    spare = scored.fit.nodes.get(node)
    rank, size = (0, 0) if spare is None else (spare.rank, spare.size)
    preference = sum([node.info.preference(needs) for needs in scored.preferring])
    return node.name in scored.avoid, rank, -preference, size
