"""Whether a unit of a gang finds a place on a node once some of what runs there has gone: tried, and rolled back.

Victims are chosen where their devices make a place, not by count. What sets of them cost is their policy's (`cheapest_nodes.CostFunction`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fairlead.engine.queues.limits import over_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.allocator.steps import StepBudget
    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.reclaim.candidates import EvictionUnit
    from fairlead.engine.reclaim.eviction_policy import EvictionPolicy, Preemptor

STEPS_PUT = 10  # of the budget, for asking the allocator; trying one eviction unit is one step
Cost = TypeVar("Cost", bound="tuple[Any, ...]")


@dataclass(slots=True, eq=False)
class Trial:
    """A trial of one unit of the preemptor on one node; `scored` are the nodes for its shape."""

    policy: EvictionPolicy
    scored: ScoredNodes
    preemptor: Preemptor
    unit: PlacementUnit
    node: CandidateNode
    budget: StepBudget

    @property
    def candidates(self) -> Sequence[EvictionUnit]:
        """On the node, in order."""
        return self.policy.candidates.by_node.get(self.node.name, ())

    @property
    def lacking(self) -> int:
        """Devices that the unit finds too few of; 0 where that is not to be had by counting."""
        if not self.unit.shape.plain:
            return 0
        request = self.unit.shape.claims[0].alternatives[0][0]
        nodes = self.policy.cluster.cache.node_snapshot
        return request.count - self.scored.fit.free(request, nodes.candidates(self.node, request))

    def cheapest(
        self, candidates: Sequence[EvictionUnit], cost: Callable[[Sequence[EvictionUnit]], Cost]
    ) -> tuple[Cost, list[EvictionUnit]] | None:
        """The cheapest victims found that make room: in this order, one alone, or the largest first."""
        if not candidates:
            return None
        name = self.node.name
        best = self._in_order(candidates, cost)
        alone = best[1][0].devices_on(name) if best is not None and len(best[1]) == 1 else None
        lacking = self.lacking
        orders: list[Sequence[EvictionUnit]] = [
            (each,)
            for each in candidates
            if (alone is None or each.devices_on(name) < alone) and each.devices_on(name) >= lacking
        ]
        if alone is None and len({each.devices_on(name) for each in candidates}) > 1:
            orders.append(sorted(candidates, key=lambda each: (-each.devices_on(name), each.rank)))
        for order in orders:
            other = self._in_order(order, cost)
            if other is not None and (best is None or other[0] < best[0]):
                best = other
        return best

    def _in_order(
        self, order: Sequence[EvictionUnit], cost: Callable[[Sequence[EvictionUnit]], Cost]
    ) -> tuple[Cost, list[EvictionUnit]] | None:
        """Evict in this order until the unit fits, spare what was not needed; the cost, and all rolled back."""
        policy, name = self.policy, self.node.name
        mark = policy.statement.checkpoint()
        victims: list[EvictionUnit] = []
        fits = False
        for _ in range(2):  # what is refused at first may be allowed once gangs of the own queue are gone
            before = len(victims)
            for each in order:
                if not self.budget.spend(1):
                    break
                if policy.refusal(self.preemptor, each) is not None:
                    continue
                policy.evict(each, only=name)
                victims.append(each)
                fits = self.fits()
                if fits:
                    break
            if fits or len(victims) == before:
                break
        if fits:
            for each in victims[-2::-1]:
                policy.spare(each, only=name)
                victims.remove(each)
                if not self.fits():
                    policy.evict(each, only=name)
                    victims.append(each)
        found = cost(victims) if fits else None
        policy.statement.rollback(mark)
        return None if found is None else (found, victims)

    def fits(self) -> bool:
        """Whether the unit finds its place, and a gang of one unit is within its limits and shares, as things stand."""
        preemptor, statement = self.preemptor, self.policy.statement
        if len(preemptor.units) == 1 and over_limit(preemptor.queue, preemptor.charge):
            return False
        if self.scored.score(self.node) is None:
            return False
        if not self.unit.shape.plain:
            self.budget.spend(STEPS_PUT)
            mark = statement.checkpoint()
            placed = statement.put(self.unit, self.node, self.budget)
            statement.rollback(mark)
            if placed is None:
                return False
        return len(preemptor.units) > 1 or self.policy.within_share(preemptor)
