"""What it would cost to make room for one unit of a gang, node by node: a heap of the cheapest nodes.

Exists so that victims are chosen where their devices make a place, not by count, and so that two thousand alike gangs do
not each look at every node. Evicts nothing: every trial is undone. A node is looked at again when it changed, and before it
is offered: what is allowed only shrinks while one decision is made, so a cost on the heap is never too high.
Cheap is, in this order: nobody is left under what is deserved; no whole gang (surplus only); low priority; few gangs; few pods;
other queues before the own one; few devices; the queue with most surplus; the youngest; the one made last; the node's name.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Protocol

from fairlead.engine.placement.model import UnitPlacement
from fairlead.engine.queues.charges import add
from fairlead.engine.reclaim.policy import parting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairlead.engine.allocator.model import StepBudget
    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.scored_nodes import ScoredNodes
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.queues.charges import Charge
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit, Rank, VictimCandidates
    from fairlead.engine.reclaim.reclaim import Preemptor
    from fairlead.engine.reclaim.releasing import PipelinedCluster
    from fairlead.engine.types.reasons import PreemptionBlock

Givers = frozenset["Queue"]
# What counts before the surplus of those who give, and what counts after it.
Cost = tuple[tuple[bool, float, int, float, int, bool, int], tuple[float, float, str]]
STEPS_PUT = 10  # what asking the allocator costs, in pieces tried


class EvictionRules(Protocol):
    """Who may go, and the count of what is used up by those that do: `reclaim.Rules`, or that all may end."""

    crowd: VictimCandidates

    def refusal(self, wish: Preemptor, piece: EvictionUnit) -> PreemptionBlock | None: ...
    def take(self, piece: EvictionUnit) -> None: ...
    def give(self, piece: EvictionUnit) -> None: ...


class EvictionCosts:
    """For one kind of wish and one shape, over the nodes of the scored_nodes."""

    def __init__(self, later: PipelinedCluster, rules: EvictionRules, scored_nodes: ScoredNodes) -> None:
        self.later = later
        self.rules = rules
        self.scored_nodes = scored_nodes
        # By who would give: what a queue has in surplus changes with every choice, the rest of a cost seldom.
        self._heaps: dict[Givers, list[tuple[Cost, int, CandidateNode]]] = {}
        self._stamp: dict[CandidateNode, int] = {}
        self._cursor = -1

    def best(
        self, wish: Preemptor, unit: PlacementUnit, budget: StepBudget
    ) -> tuple[CandidateNode, list[EvictionUnit]] | None:
        """The node where the unit finds a place for least, and who has to go; None when there is none."""
        self._catch_up(wish, unit, budget)
        while (givers := self._cheapest(wish)) is not None:
            cost, _, node = self._heaps[givers][0]
            found = self._clear(wish, unit, node, budget)
            if budget.steps < 0:
                budget.ended = True
                return None
            if found is not None and found[0] == cost:
                return node, found[1]
            heapq.heappop(self._heaps[givers])
            self._enter(node, found)
        return None

    def _cheapest(self, wish: Preemptor) -> Givers | None:
        """Whose heap has the cheapest node on top."""
        best: tuple[tuple[object, ...], Givers] | None = None
        for givers in sorted(self._heaps, key=_names) if len(self._heaps) > 1 else list(self._heaps):
            heap = self._heaps[givers]
            while heap and heap[0][1] != self._stamp[heap[0][2]]:
                heapq.heappop(heap)
            if not heap:
                del self._heaps[givers]
                continue
            first, last = heap[0][0]
            cost = (*first, -self._surplus(wish, givers), *last)
            if best is None or cost < best[0]:
                best = (cost, givers)
        return None if best is None else best[1]

    def _surplus(self, wish: Preemptor, givers: Givers) -> float:
        """The least that one of them, at the level where it parts from the taker, has beyond deserved, for its weight."""
        return min((_surplus_of(wish, queue, {}) for queue in givers), default=float("inf"))

    def _catch_up(self, wish: Preemptor, unit: PlacementUnit, budget: StepBudget) -> None:
        log = self.later.board.node_snapshot.log
        self.scored_nodes.best()
        changed = None if self._cursor < 0 else log.since(self._cursor)
        for node in self.scored_nodes.among if changed is None else dict.fromkeys(changed):
            if budget.steps < 0:
                budget.ended = True
                self._cursor = -1  # not all were seen: begin again
                return
            self._enter(node, self._clear(wish, unit, node, budget) if node in self.scored_nodes.among else None)
        self._cursor = log.cursor

    def _enter(self, node: CandidateNode, found: tuple[Cost, list[EvictionUnit]] | None) -> None:
        stamp = self._stamp[node] = self._stamp.get(node, 0) + 1
        if found is not None:
            givers = frozenset(self._givers(found[1]))
            heapq.heappush(self._heaps.setdefault(givers, []), (found[0], stamp, node))

    def _givers(self, pieces: Sequence[EvictionUnit]) -> Iterator[Queue]:
        for piece in pieces:
            yield piece.queue

    # -------------------------------------------------------------------------------------------------- one node

    def _clear(
        self, wish: Preemptor, unit: PlacementUnit, node: CandidateNode, budget: StepBudget
    ) -> tuple[Cost, list[EvictionUnit]] | None:
        """The cheapest pieces found on this node that make room on it for the unit: in order, one alone, or large ones first."""
        pieces: Sequence[EvictionUnit] = self.rules.crowd.by_node.get(node.name, ())
        if not pieces:
            return None
        pieces = self._in_turn(wish, pieces)
        best = self._try(wish, unit, node, pieces, budget)
        alone = best[1][0].here(node.name) if best is not None and len(best[1]) == 1 else None
        tries: list[Sequence[EvictionUnit]] = [
            (piece,)
            for piece in pieces
            if (alone is None or piece.here(node.name) < alone) and self._may_do(unit, node, piece)
        ]
        if alone is None and len({piece.here(node.name) for piece in pieces}) > 1:
            tries.append(sorted(pieces, key=lambda piece: (-piece.here(node.name), piece.rank)))
        for order in tries:
            other = self._try(wish, unit, node, order, budget)
            if other is not None and (best is None or other[0] < best[0]):
                best = other
        return best

    def _in_turn(self, wish: Preemptor, pieces: Sequence[EvictionUnit]) -> Sequence[EvictionUnit]:
        """Of alike pieces of several queues, each time the next of whose queue then has most beyond deserved; own ones last."""
        if len({piece.queue for piece in pieces}) == 1:
            return pieces
        lines: dict[tuple[bool, int, Queue], list[EvictionUnit]] = {}
        for piece in reversed(pieces):
            lines.setdefault((*piece.rank[:2], piece.queue), []).append(piece)
        gone: dict[Queue, Charge] = {}  # of each giver, by those before
        order: list[EvictionUnit] = []

        def turn(key: tuple[bool, int, Queue]) -> tuple[bool, int, bool, float, Rank]:
            queue = key[2]
            return (*key[:2], queue is wish.queue, -_surplus_of(wish, queue, gone), lines[key][-1].rank)

        while lines:
            key = min(lines, key=turn) if len(lines) > 1 else next(iter(lines))
            piece = lines[key].pop()
            order.append(piece)
            add(gone.setdefault(_giver(wish, piece.queue), {}), piece.charge)
            if not lines[key]:
                del lines[key]
        return order

    def _may_do(self, unit: PlacementUnit, node: CandidateNode, piece: EvictionUnit) -> bool:
        """Whether the piece alone might make room: for n alike devices only if it and what is free are enough."""
        if not unit.shape.plain:
            return True
        request = unit.shape.claims[0].alternatives[0][0]
        return (
            self.scored_nodes.free(request, self.later.board.node_snapshot.candidates(node, request))
            + piece.here(node.name)
            >= request.count
        )

    def _try(
        self,
        wish: Preemptor,
        unit: PlacementUnit,
        node: CandidateNode,
        order: Sequence[EvictionUnit],
        budget: StepBudget,
    ) -> tuple[Cost, list[EvictionUnit]] | None:
        """Take pieces out in order until the unit fits, put back those that were not needed, and undo it all."""
        chosen: list[EvictionUnit] = []
        fits = False
        for _ in range(2):  # what is refused at first may be allowed once own gangs are out
            before = len(chosen)
            for piece in order:
                budget.steps -= 1
                if self.rules.refusal(wish, piece) is not None:
                    continue
                self._out(piece, node)
                chosen.append(piece)
                fits = self._fits(wish, unit, node, budget)
                if fits:
                    break
            if fits or len(chosen) == before:
                break
        if fits:
            for piece in chosen[-2::-1]:
                self._back(piece, node)
                chosen.remove(piece)
                if not self._fits(wish, unit, node, budget):
                    self._out(piece, node)
                    chosen.append(piece)
        cost = self._cost(wish, node, chosen) if fits else None
        for piece in chosen:
            self._back(piece, node)
        return None if cost is None else (cost, chosen)

    def _out(self, piece: EvictionUnit, node: CandidateNode) -> None:
        self.later.take_out(piece, only=node.name)
        self.rules.take(piece)

    def _back(self, piece: EvictionUnit, node: CandidateNode) -> None:
        self.rules.give(piece)
        self.later.put_back(piece, only=node.name)

    def _fits(self, wish: Preemptor, unit: PlacementUnit, node: CandidateNode, budget: StepBudget) -> bool:
        if len(wish.units) == 1 and wish.queue.over_limit(wish.charge):
            return False
        if self.scored_nodes.score(node) is None:
            return False
        if unit.shape.plain:
            return True
        budget.steps -= STEPS_PUT
        entry = self.later.placer.put(unit, node, budget)
        if not isinstance(entry, UnitPlacement):
            return False
        self.later.placer.undo((entry,))
        return True

    # ------------------------------------------------------------------------------------------------------ cost

    def _cost(self, wish: Preemptor, node: CandidateNode, chosen: Sequence[EvictionUnit]) -> Cost:
        """As things stand with all of them out; what the givers have in surplus comes in between."""
        whole = [float(piece.gang.priority) for piece in chosen if piece.whole]
        surplus = [float(piece.gang.priority) for piece in chosen if not piece.whole]
        pods = sum(len(piece.members) for piece in chosen)
        own = any(piece.queue is wish.queue for piece in chosen)
        first = (
            any(_below(wish, piece) for piece in chosen),
            max(whole, default=float("-inf")),
            len(whole),
            max(surplus, default=float("-inf")),
            pods,
            own,
            sum(piece.devices for piece in chosen),
        )
        started = min((piece.started for piece in chosen), default=0.0)
        return first, (-started, -min((piece.gang.created for piece in chosen), default=0.0), node.name)


def _giver(wish: Preemptor, queue: Queue) -> Queue:
    """The queue that gives, at the level where it parts from the taker."""
    return queue if queue is wish.queue else parting(wish.queue, queue)[1]


def _surplus_of(wish: Preemptor, queue: Queue, gone: Mapping[Queue, Charge]) -> float:
    """What the giver has beyond deserved, for its weight, without what is `gone`."""
    giver = _giver(wish, queue)
    less = gone.get(giver, {})
    return max((giver.surplus(flavor, -less.get(flavor, 0)) for flavor in wish.charge), default=0.0)


def _below(wish: Preemptor, piece: EvictionUnit) -> bool:
    """Whether its queue, or one above it, is left with less than it deserves and asks for."""
    if piece.queue is wish.queue:
        return False
    giver = parting(wish.queue, piece.queue)[1]
    return any(
        step.used.get(flavor, 0) < min(step.deserved(flavor), step.demand.get(flavor, 0))
        for step in _up_to(piece, giver)
        for flavor in piece.charge
    )


def _names(givers: Givers) -> list[str]:
    return sorted(queue.name for queue in givers)


def _up_to(piece: EvictionUnit, last: Queue) -> Iterator[Queue]:
    for queue in piece.queue.path():
        yield queue
        if queue is last:
            return
