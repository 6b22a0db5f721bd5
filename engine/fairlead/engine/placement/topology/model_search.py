"""A gang on one model: the outermost level of its topology, whose domains are the models that some node has.

The search is that of the levels (`choice_search`): of the models that have capacity for the gang the one on which it fits best. Best is, in
this order: nodes on which it did not fail before, an earlier alternative of `firstAvailable`, preferred nodes, the smallest MIG devices,
the fewest nodes, least taken of what is scarce, the least capacity; with `spread` the most capacity.
A refusal is a proof where capacities rule all models out or each search proves it.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from fairlead.engine.placement.capacity.bounds import counts
from fairlead.engine.placement.model import PlacementResult
from fairlead.engine.placement.topology.choice_search import first_found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.api.topology import Level
    from fairlead.engine.allocator.steps import StepBudget
    from fairlead.engine.inventory.models import Model
    from fairlead.engine.placement.capacity.unit_capacity import UnitCapacity
    from fairlead.engine.placement.model import NodeScope, PlacementResult
    from fairlead.engine.placement.search.placer import Placer
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.placement.topology.choice_search import Search
    from fairlead.engine.placement.topology.models import Choice, Choices


class _Rank(NamedTuple):
    """The rank of a choice: low is better."""

    avoided: int
    alternative: int
    preference: int
    size: int
    nodes: int
    scarce: int
    share: float
    models: tuple[Model, ...]


class ModelSearch:
    """One gang, once. `search`: of units by levels, on the models that they are restricted to."""

    def __init__(self, placer: Placer, capacity: UnitCapacity, scope: NodeScope, search: Search) -> None:
        self._placer = placer
        self._capacity = capacity
        self._scope = scope
        self._search = search

    def place(self, choices: Choices, levels: Sequence[Level], budget: StepBudget) -> PlacementResult:
        """On the best choice, or none; then `unplaced` is a unit with the restriction."""
        fitting, others = self._ordered(choices.of)
        # What is said of the gang comes from one that is ruled out.
        ways = [choice.units for choice in fitting or others[:1]]
        return first_found(ways, levels, budget, self._search, whole=choices.whole)

    def _ordered(self, choices: Sequence[Choice]) -> tuple[list[Choice], list[Choice]]:
        """Those that may have capacity, best first, and those that certainly have not, the largest first."""
        fitting: list[tuple[_Rank, Choice]] = []
        others: list[tuple[float, int, Choice]] = []
        for number, choice in enumerate(choices):
            rank, share = self._rank(choice)
            if share >= 1 or not self._bounded(choice.units):
                fitting.append((rank, choice))
            else:
                others.append((-share, number, choice))
        fitting.sort(key=lambda each: each[0])
        others.sort(key=lambda each: each[:2])
        return [choice for _, choice in fitting], [choice for _, _, choice in others]

    def _rank(self, choice: Choice) -> tuple[_Rank, float]:
        """With how many times over it may hold the gang."""
        avoided = alternative = preference = scarce = size = nodes = 0
        share = float("inf")
        for shape, count in counts(choice.units).items():
            capacities = sorted(self._capacity.by_node(shape, self._scope).values(), reverse=True)
            share = min(share, sum(capacities) / count)
            nodes += bisect_left(list(accumulate(capacities)), count) + 1
            scored = self._placer.scored_nodes(shape, self._scope)
            best = scored.best()
            score = None if best is None else scored.score(best)
            if best is not None and score is not None:
                spare = scored.fit.spare(best)
                avoided, alternative, preference, scarce = (
                    sum(pair) for pair in zip((avoided, alternative, preference, scarce), score[:4], strict=True)
                )
                size += 0 if spare is None else spare.size
        spread = self._scope.spread
        rank = _Rank(
            avoided,
            alternative,
            preference,
            size,
            0 if spread else nodes,
            scarce,
            -share if spread else share,
            choice.models,
        )
        return rank, share

    def _bounded(self, units: Sequence[PlacementUnit]) -> bool:
        """Whether capacities are never too low."""
        return not self._placer.node_snapshot.has_network_attached and not any(unit.shape.facets for unit in units)
