"""What it would cost to make room for one unit of a gang, node by node: a heap of the cheapest nodes.

Exists so that victims are chosen where their devices make a place, not by count, and so that two thousand alike gangs do
not each look at every node. Evicts nothing: every trial is undone. A node is looked at again when it changed, and before it
is offered: what is allowed only shrinks while one decision is made, so a cost on the heap is never too high.
Cheap is, in this order: nobody is left under what is deserved; no whole gang (surplus only); low priority; few gangs; few pods;
other queues before the own one; the queue with most surplus; the youngest; at last the node's name.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Protocol

from fairlead.controller.legality import parting
from fairlead.controller.placement_model import Placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairlead.controller.allocator_model import Budget
    from fairlead.controller.order_tree import Queue
    from fairlead.controller.placement_shapes import Unit
    from fairlead.controller.placement_spots import Site, Spots
    from fairlead.controller.reasons import Bar
    from fairlead.controller.reclaim import Wish
    from fairlead.controller.reclaim_later import Later
    from fairlead.controller.victims import Crowd, Piece

Cost = tuple[bool, float, int, float, int, bool, float, float, str]
STEPS_PUT = 10  # what asking the allocator costs, in pieces tried


class Law(Protocol):
    """Who may go, and the count of what is used up by those that do: `reclaim.Rules`, or that all may end."""

    crowd: Crowd

    def refusal(self, wish: Wish, piece: Piece) -> Bar | None: ...
    def take(self, piece: Piece) -> None: ...
    def give(self, piece: Piece) -> None: ...


class Rooms:
    """For one kind of wish and one shape, over the nodes of the spots."""

    def __init__(self, later: Later, rules: Law, spots: Spots) -> None:
        self.later = later
        self.rules = rules
        self.spots = spots
        self._heap: list[tuple[Cost, int, Site]] = []
        self._stamp: dict[Site, int] = {}
        self._cursor = -1

    def best(self, wish: Wish, unit: Unit, budget: Budget) -> tuple[Site, list[Piece]] | None:
        """The node where the unit finds a place for least, and who has to go; None when there is none."""
        self._catch_up(wish, unit, budget)
        while self._heap:
            cost, stamp, site = self._heap[0]
            if stamp != self._stamp[site]:
                heapq.heappop(self._heap)
                continue
            found = self._clear(wish, unit, site, budget)
            if budget.steps < 0:
                budget.ended = True
                return None
            now = None if found is None else found[0]
            if found is not None and now == cost:
                return site, found[1]
            self._stamp[site] += 1
            if now is None:
                heapq.heappop(self._heap)
            else:
                heapq.heapreplace(self._heap, (now, self._stamp[site], site))
        return None

    def _catch_up(self, wish: Wish, unit: Unit, budget: Budget) -> None:
        log = self.later.board.sites.log
        self.spots.best()
        changed = None if self._cursor < 0 else log.since(self._cursor)
        for site in self.spots.among if changed is None else dict.fromkeys(changed):
            if budget.steps < 0:
                budget.ended = True
                self._cursor = -1  # not all were seen: begin again
                return
            stamp = self._stamp[site] = self._stamp.get(site, 0) + 1
            found = self._clear(wish, unit, site, budget) if site in self.spots.among else None
            if found is not None:
                heapq.heappush(self._heap, (found[0], stamp, site))
        self._cursor = log.cursor

    # -------------------------------------------------------------------------------------------------- one node

    def _clear(self, wish: Wish, unit: Unit, site: Site, budget: Budget) -> tuple[Cost, list[Piece]] | None:
        """The cheapest pieces found on this node that make room on it for the unit."""
        pieces = self.rules.crowd.by_node.get(site.name)
        if not pieces:
            return None
        best = self._try(wish, unit, site, pieces, budget)
        if best is None or len(best[1]) > 1:
            largest = sorted(pieces, key=lambda piece: (-_here(piece, site), piece.rank))
            other = self._try(wish, unit, site, largest, budget)
            if other is not None and (best is None or other[0] < best[0]):
                best = other
        return best

    def _try(
        self, wish: Wish, unit: Unit, site: Site, order: Sequence[Piece], budget: Budget
    ) -> tuple[Cost, list[Piece]] | None:
        """Take pieces out in order until the unit fits, put back those that were not needed, and undo it all."""
        chosen: list[Piece] = []
        fits = False
        for _ in range(2):  # what is refused at first may be allowed once own gangs are out
            before = len(chosen)
            for piece in order:
                budget.steps -= 1
                if self.rules.refusal(wish, piece) is not None:
                    continue
                self._out(piece, site)
                chosen.append(piece)
                fits = self._fits(wish, unit, site, budget)
                if fits:
                    break
            if fits or len(chosen) == before:
                break
        if fits:
            for piece in chosen[-2::-1]:
                self._back(piece, site)
                chosen.remove(piece)
                if not self._fits(wish, unit, site, budget):
                    self._out(piece, site)
                    chosen.append(piece)
        cost = self._cost(wish, site, chosen) if fits else None
        for piece in chosen:
            self._back(piece, site)
        return None if cost is None else (cost, chosen)

    def _out(self, piece: Piece, site: Site) -> None:
        self.later.take_out(piece, only=site.name)
        self.rules.take(piece)

    def _back(self, piece: Piece, site: Site) -> None:
        self.rules.give(piece)
        self.later.put_back(piece, only=site.name)

    def _fits(self, wish: Wish, unit: Unit, site: Site, budget: Budget) -> bool:
        if len(wish.units) == 1 and wish.queue.over_limit(wish.charge):
            return False
        if self.spots.score(site) is None:
            return False
        if unit.shape.plain:
            return True
        budget.steps -= STEPS_PUT
        entry = self.later.placer.put(unit, site, budget)
        if not isinstance(entry, Placed):
            return False
        self.later.placer.undo((entry,))
        return True

    # ------------------------------------------------------------------------------------------------------ cost

    def _cost(self, wish: Wish, site: Site, chosen: Sequence[Piece]) -> Cost:
        """As things stand with all of them out."""
        whole = [piece for piece in chosen if piece.whole]
        below = own = False
        least = float("inf")  # surplus of the givers
        for piece in chosen:
            if piece.queue is wish.queue:
                own = True
                continue
            giver = parting(wish.queue, piece.queue)[1]
            for flavor, value in piece.charge.items():
                below = below or any(
                    step.used.get(flavor, 0) < min(step.deserved(flavor), step.demand.get(flavor, 0))
                    for step in _up_to(piece, giver)
                )
                if flavor in wish.charge:
                    least = min(least, giver.surplus(flavor, value))
        return (
            below,
            max((float(piece.gang.priority) for piece in whole), default=float("-inf")),
            len(whole),
            max((float(piece.gang.priority) for piece in chosen if not piece.whole), default=float("-inf")),
            sum(len(piece.members) for piece in chosen),
            own,
            -least,
            -min((piece.started for piece in chosen), default=0.0),
            site.name,
        )


def _up_to(piece: Piece, last: Queue) -> Iterator[Queue]:
    for queue in piece.queue.path():
        yield queue
        if queue is last:
            return


def _here(piece: Piece, site: Site) -> int:
    """Devices of the piece on this node."""
    return sum(len(claim.devices) for claim in piece.claims.get(site.name, ()))
