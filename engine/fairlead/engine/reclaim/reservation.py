"""Places kept for gangs that have waited too long, and who may use them meanwhile.

Exists so that small jobs do not push a large gang back for ever. A reservation is devices and room on named nodes: those
for which the least has to end that has not promised an end, then what ends soonest, then the fewest devices. Worked out
anew by every decision, it stays where it is while the same gangs run, and moves only to where less is to be waited for:
nothing starts on it (but what ends in time), so each end of a gang there brings the reserved one nearer. So a feasible gang
is passed over at most until those have ended that ran on its nodes when its reservation began.
Bounded: one per queue, RESERVATIONS_MAX in all, and only for a gang that its queue's limits and fair share allow; beyond
that nothing idles. Backfill: a gang that promises (activeDeadlineSeconds) to end before `ready_by` may start on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from fairlead.engine.allocator.model import StepBudget
from fairlead.engine.placement.model import NodeScope, UnitPlacement
from fairlead.engine.placement.shapes import hardest_first
from fairlead.engine.placement.topology import parse
from fairlead.engine.reclaim.costs import EvictionCosts
from fairlead.engine.reclaim.reclaim import over_share
from fairlead.engine.reclaim.releasing import drop, keep
from fairlead.engine.types.reasons import PreemptionBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.candidate_nodes import CandidateNode, NodeSnapshot
    from fairlead.engine.placement.model import TopologyDomain
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit, VictimCandidates
    from fairlead.engine.reclaim.costs import Cost
    from fairlead.engine.reclaim.reclaim import Preemptor
    from fairlead.engine.reclaim.releasing import PipelinedCluster

RESERVATIONS_MAX = 8
DOMAINS_MAX = 32  # topology domains looked at for one gang


@dataclass(slots=True, eq=False)
class Held:
    """A reservation's hold on the ledger of now, and on that of later."""

    wish: Preemptor
    placed: list[UnitPlacement]
    ready_by: float | None
    ledger: Ledger
    node_snapshot: NodeSnapshot
    _kept: list[UnitPlacement] | None = None
    _later: list[UnitPlacement] | None = None

    def take(self) -> None:
        """Hold it, but for what somebody else has taken meanwhile."""
        self._kept = keep(self.placed, self.ledger)
        self._changed()

    def let_go(self) -> None:
        drop(self._kept or (), self.ledger)
        self._kept = None
        self._changed()

    def come_back(self, later: PipelinedCluster) -> None:
        """Hold it later, too."""
        self._later = later.mirror(self.placed)

    def stand_aside(self, later: PipelinedCluster) -> None:
        """Undo `come_back`."""
        drop(self._later or (), later.ledger)
        self._later = None
        self._changed()

    def _changed(self) -> None:
        for entry in self.placed:
            self.node_snapshot.changed(entry.node)


class AllWhoRun:
    """Every running gang may end: what rules are to victims, this is to waiting."""

    def __init__(self, crowd: VictimCandidates) -> None:
        self.crowd = crowd
        self._ended: set[str] = set()

    def refusal(self, wish: Preemptor, piece: EvictionUnit) -> PreemptionBlock | None:
        return None if piece.whole and piece.gang.id not in self._ended else PreemptionBlock.PLACE

    def take(self, piece: EvictionUnit) -> None:
        self._ended.add(piece.gang.id)

    def give(self, piece: EvictionUnit) -> None:
        self._ended.discard(piece.gang.id)


class Waits(EvictionCosts):
    """What has to end on each node before the unit fits there."""

    def _cost(self, wish: Preemptor, node: CandidateNode, chosen: Sequence[EvictionUnit]) -> Cost:
        ends = [inf if piece.gang.ends_by is None else piece.gang.ends_by for piece in chosen]
        known = [end for end in ends if end < inf]
        devices = sum(piece.here(node.name) for piece in chosen)
        until = max(known, default=0.0)
        return (False, float(len(ends) - len(known)), 0, until, devices, False, 0), (0.0, 0.0, node.name)

    def _fits(self, wish: Preemptor, unit: PlacementUnit, node: CandidateNode, budget: StepBudget) -> bool:
        return super()._fits(wish, unit, node, budget) and (len(wish.units) > 1 or allowed(wish))

    def _in_turn(self, wish: Preemptor, pieces: Sequence[EvictionUnit]) -> Sequence[EvictionUnit]:
        """Own gangs first: their end also gives back what the queue's share is short of."""
        return sorted(pieces, key=lambda piece: (piece.queue is not wish.queue, piece.rank))

    def _givers(self, pieces: Sequence[EvictionUnit]) -> Iterator[Queue]:
        return iter(())  # nobody gives: whose they are does not matter


class Reserver:
    """One per decision."""

    def __init__(self, later: PipelinedCluster, crowd: VictimCandidates, now: float) -> None:
        self.later = later
        self.now = now
        self.all = AllWhoRun(crowd)
        self.held: list[Held] = []
        self._queues: set[Queue] = set()

    def reserve(self, wish: Preemptor, ledger: Ledger) -> Held | None:
        """A place for the gang, held in both ledgers; None when it gets none."""
        if wish.queue in self._queues or len(self.held) >= RESERVATIONS_MAX:
            return None
        budget = StepBudget(self.later.snapshot.search_steps)
        topology = parse(wish.gang.topology)
        domains: Sequence[TopologyDomain | None] = [None]
        if topology is not None and topology.mode == "required":
            domains = [*self.later.domains.of(topology.label).values()][:DOMAINS_MAX]
        best: tuple[tuple[float, float, int], list[UnitPlacement], float | None] | None = None
        for domain in domains:
            found = self._wait(wish, domain, budget)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        if best is None:
            return None
        held = Held(wish, best[1], best[2], ledger, self.later.board.node_snapshot)
        held.take()
        held.come_back(self.later)
        self.held.append(held)
        self._queues.add(wish.queue)
        return held

    def cancel(self, held: Held) -> None:
        """For another gang that stands aside already in the later ledger."""
        held.let_go()
        self.held.remove(held)
        self._queues.discard(held.wish.queue)

    def usable(self, end: float) -> list[Held]:
        """Reservations that are ready no sooner than this; the caller lets them go and takes them again."""
        return [held for held in self.held if held.ready_by is not None and end <= held.ready_by]

    def _wait(
        self, wish: Preemptor, among: TopologyDomain | None, budget: StepBudget
    ) -> tuple[tuple[float, float, int], list[UnitPlacement], float | None] | None:
        """Where it would land first, and for whom it would wait; nothing stays taken."""
        placer = self.later.placer
        scope = NodeScope(wish.spread, frozenset(wish.gang.avoid), among)
        rooms: dict[object, Waits] = {}
        pieces: list[EvictionUnit] = []
        placed: list[UnitPlacement] = []
        whole = True
        for unit in hardest_first(wish.units):
            entry: object = placer.place_unit(unit, budget, scope)
            if entry is None:
                room = rooms.get(unit.shape)
                if room is None:
                    scored_nodes = placer.scored_nodes(unit.shape, scope)
                    room = rooms[unit.shape] = Waits(self.later, self.all, scored_nodes)
                found = room.best(wish, unit, budget)
                if found is not None:
                    for piece in found[1]:
                        self.later.take_out(piece)
                        self.all.take(piece)
                        pieces.append(piece)
                    entry = placer.put(unit, found[0], budget)
            if not isinstance(entry, UnitPlacement):
                whole = False
                break
            placed.append(entry)
        may = whole and allowed(wish)
        placer.undo(placed)
        for piece in reversed(pieces):
            self.all.give(piece)
            self.later.put_back(piece)
        if not may:
            return None
        ends = [piece.gang.ends_by for piece in pieces]
        known = [end for end in ends if end is not None]
        cost = (float(len(ends) - len(known)), max(known, default=0.0), sum(piece.devices for piece in pieces))
        return cost, placed, max(known) if known and len(known) == len(ends) else None


def allowed(wish: Preemptor) -> bool:
    """Within limits, and within the fair share of its queues, once those have ended that it waits for."""
    if wish.queue.over_limit(wish.charge):
        return False
    return not wish.queue.name or over_share(wish.queue, wish.charge) is None
