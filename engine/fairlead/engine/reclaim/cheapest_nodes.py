"""What it costs to make room for one unit of a gang, node by node: heaps of the cheapest nodes.

So two thousand alike gangs do not each look at every node. Nothing is evicted: every `Trial` is rolled back; victims are chosen where their
devices make a place, not by count. A node is looked at again when it has changed, and before it is offered. While one decision is made
fewer and fewer units may be evicted, so that a cost on a heap is never too high.
A `CostFunction` says what is cheap: evictions (`search`), ends that are waited for (`reservation`), moves (`moves`).
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes
from fairlead.engine.placement.model import CandidateNode, NodeScope
from fairlead.engine.placement.shapes import PlacementUnit
from fairlead.engine.queues.limits import over_limit
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.candidates import EvictionUnit
from fairlead.engine.reclaim.eviction_policy import EvictionPolicy, Preemptor

Queues = frozenset[Queue]  # of the victims on one node


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


class CostFunction(ABC, Generic[Cost]):
    """What one policy says of victims. A `Cost` is a named tuple that ends with the name of the node: low is cheap, and total."""

    def __init__(self, policy: EvictionPolicy) -> None:
        self.policy = policy

    @abstractmethod
    def alike(self, preemptor: Preemptor) -> object:
        """Equal for preemptors whose units of one shape cost the same on each node, as long as no node changes. Asked for each unit."""

    @abstractmethod
    def cheapest(self, trial: Trial) -> tuple[Cost, list[EvictionUnit]] | None:
        """The cheapest victims found that make room for the unit on the node; None where none do."""

    @abstractmethod
    def of_set(self, preemptor: Preemptor, victims: Sequence[EvictionUnit]) -> tuple[float, ...]:
        """The cost of victims on several nodes, none of them evicted: by this the domains and models of a gang are compared."""

    def queues(self, victims: Sequence[EvictionUnit]) -> Queues:
        """Those on which the cost depends beside the node: costs with the same ones are compared as they were when made."""
        return frozenset()

    def at_present(self, preemptor: Preemptor, queues: Queues, cost: Cost) -> Cost:
        """The cost as these queues stand now."""
        return cost


class CheapestNodes(Generic[Cost]):
    """By one cost function, for all kinds of preemptors, shapes and scopes."""

    def __init__(self, costs: CostFunction[Cost]) -> None:
        self.costs = costs
        self._known: dict[object, _Heaps[Cost]] = {}

    def best(
        self, preemptor: Preemptor, unit: PlacementUnit, scope: NodeScope, budget: StepBudget
    ) -> tuple[CandidateNode, list[EvictionUnit]] | None:
        """The node where the unit finds a place for least, and what has to go; None when there is none."""
        key = (self.costs.alike(preemptor), unit.shape, scope)
        known = self._known.get(key)
        if known is None:
            scored = self.costs.policy.statement.placer.scored_nodes(unit.shape, scope)
            known = self._known[key] = _Heaps(self.costs, scored)
        return known.best(preemptor, unit, budget)

    def clear(self) -> None:
        self._known.clear()


class _Heaps(Generic[Cost]):
    """For one kind of preemptor and one shape, over the nodes of `scored`."""

    def __init__(self, costs: CostFunction[Cost], scored: ScoredNodes) -> None:
        self._costs = costs
        self._scored = scored
        self._log = scored.node_snapshot.log
        # By queues of the victims: what those have in surplus changes with every choice, the rest of a cost seldom.
        self._heaps: dict[Queues, list[tuple[Cost, int, CandidateNode]]] = {}
        self._stamp: dict[CandidateNode, int] = {}
        self._cursor = -1

    def best(
        self, preemptor: Preemptor, unit: PlacementUnit, budget: StepBudget
    ) -> tuple[CandidateNode, list[EvictionUnit]] | None:
        self._catch_up(preemptor, unit, budget)
        while (queues := self._cheapest(preemptor)) is not None:
            cost, _, node = self._heaps[queues][0]
            found = self._look(preemptor, unit, node, budget)
            if budget.out:
                budget.ended = True
                return None
            if found is not None and found[0] == cost:
                return node, found[1]
            heapq.heappop(self._heaps[queues])
            self._push(node, found)
        return None

    def _look(
        self, preemptor: Preemptor, unit: PlacementUnit, node: CandidateNode, budget: StepBudget
    ) -> tuple[Cost, list[EvictionUnit]] | None:
        return self._costs.cheapest(Trial(self._costs.policy, self._scored, preemptor, unit, node, budget))

    def _cheapest(self, preemptor: Preemptor) -> Queues | None:
        """The key of the heap that has the cheapest node on top."""
        for queues, heap in list(self._heaps.items()):
            while heap and heap[0][1] != self._stamp[heap[0][2]]:
                heapq.heappop(heap)
            if not heap:
                del self._heaps[queues]
        if len(self._heaps) < 2:
            return next(iter(self._heaps), None)
        by_names = sorted(self._heaps, key=lambda queues: sorted(queue.name for queue in queues))
        return min(by_names, key=lambda queues: self._costs.at_present(preemptor, queues, self._heaps[queues][0][0]))

    def _catch_up(self, preemptor: Preemptor, unit: PlacementUnit, budget: StepBudget) -> None:
        """Look again at the nodes that changed since the last time."""
        self._scored.best()
        changed = None if self._cursor < 0 else self._log.since(self._cursor)
        for node in self._scored.among if changed is None else dict.fromkeys(changed):
            if budget.out:
                budget.ended = True
                self._cursor = -1  # not all were seen: begin again
                return
            possible = self._scored.eligible(node)
            self._push(node, self._look(preemptor, unit, node, budget) if possible else None)
        self._cursor = self._log.cursor

    def _push(self, node: CandidateNode, found: tuple[Cost, list[EvictionUnit]] | None) -> None:
        stamp = self._stamp[node] = self._stamp.get(node, 0) + 1
        if found is not None:
            queues = self._costs.queues(found[1])
            heapq.heappush(self._heaps.setdefault(queues, []), (found[0], stamp, node))
