"""One gang onto the pipelined cluster, unit by unit: where it fits, else where making room costs least.

The victims' search and reservations differ in the policy (what may count as gone) and the costs (what is cheap), and share
this attempt. It does not go back on a unit that it placed: what it misses, the searches of its callers find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.placement.attempt import Attempt, hardest_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead.engine.allocator.model import Budget
    from fairlead.engine.placement.model import Domain, UnitPlacement
    from fairlead.engine.placement.node_info import ScoredNodes
    from fairlead.engine.placement.shapes import Shape
    from fairlead.engine.reclaim.candidates import EvictionUnit
    from fairlead.engine.reclaim.costs import EvictionCosts
    from fairlead.engine.reclaim.eviction_policy import EvictionPolicy
    from fairlead.engine.reclaim.preemptor import Preemptor

    CostsOf = Callable[[Shape, Callable[[Shape], ScoredNodes]], EvictionCosts]

DOMAINS_MAX = 32  # topology domains tried for one gang


def evict_and_place(
    policy: EvictionPolicy, preemptor: Preemptor, among: Domain | None, budget: Budget, costs_of: CostsOf
) -> tuple[list[EvictionUnit], list[UnitPlacement]] | None:
    """Units that were evicted, and a place for every unit of the gang, both in force; None, rolled back, if one has none.

    `costs_of` has the costs of a shape over the nodes that its second argument gives for it.
    """
    statement = policy.statement
    attempt = Attempt(
        statement.placer, budget, spread=preemptor.spread, avoid=frozenset(preemptor.gang.avoid), among=among
    )
    mark = statement.checkpoint()
    evicted: list[EvictionUnit] = []
    placed: list[UnitPlacement] = []
    for unit in hardest_first(preemptor.units):
        entry = attempt.best_node(unit)[0]
        if entry is not None:
            statement.allocated((entry,))
        elif (cheapest := costs_of(unit.shape, attempt.options).best(preemptor, unit, budget)) is not None:
            site, victims = cheapest
            for victim in victims:
                policy.evict(victim)
            evicted += victims
            entry = statement.put(unit, site, budget)
        if entry is None:
            statement.rollback(mark)
            return None
        placed.append(entry)
    return evicted, placed
