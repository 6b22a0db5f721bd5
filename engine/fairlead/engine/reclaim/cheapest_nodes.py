"""What it costs to make room for one unit of a gang, node by node: heaps of the cheapest nodes.

So two thousand alike gangs do not each look at every node. Nothing is evicted: every trial is rolled back. A node is looked at again
when it has changed, and before it is offered. While one decision is made fewer and fewer units may be evicted, so that a
cost on a heap is never too high.
A `CostFunction` says what is cheap: evictions (`victim_cost`), ends that are waited for (`reservation`), moves (`moves`).
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic

from fairlead.engine.reclaim.trial import Cost, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.allocator.steps import StepBudget
    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes
    from fairlead.engine.placement.model import NodeScope
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit
    from fairlead.engine.reclaim.eviction_policy import EvictionPolicy, Preemptor

    Queues = frozenset[Queue]  # of the victims on one node


class CostFunction(ABC, Generic[Cost]):
    """What one policy says of victims. A `Cost` is a named tuple that ends with the name of the node: low is cheap, and total."""

    def __init__(self, policy: EvictionPolicy) -> None:
        self.policy = policy

    @abstractmethod
    def alike(self, preemptor: Preemptor) -> object:
        """Equal for preemptors whose units of one shape cost the same on each node, as long as no node changes."""

    @abstractmethod
    def cheapest(self, trial: Trial) -> tuple[Cost, list[EvictionUnit]] | None:
        """The cheapest victims found that make room for the unit on the node; None where none do."""

    @abstractmethod
    def of_set(self, victims: Sequence[EvictionUnit]) -> tuple[float, ...]:
        """The cost of victims on several nodes: by this the domains and models of a gang are compared."""

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
