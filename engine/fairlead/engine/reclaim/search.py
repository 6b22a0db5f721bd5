"""Who has to go so that one gang finds a place: found, made minimal, and judged again as a whole.

Exists so that no eviction is decided but one after which the gang really lands on nodes and devices that exist. First unit by
unit, each where it is cheapest (`victims_rooms`); where that fails, everything that may go is taken out, in order, and what
was not needed is put back. A negative answer is final for the kind of gang as long as nothing else comes free.
Keeps: no set that could lose a piece and still do; the final set is judged from nothing, so that putting back never makes an
earlier choice illegal (kueue#14543); on failure ledger, tree and budgets are as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.engine.allocator.model import SearchStatus, StepBudget
from fairlead.engine.placement.model import NodeScope, UnitPlacement
from fairlead.engine.placement.shapes import hardest_first
from fairlead.engine.placement.topology import parse
from fairlead.engine.reclaim.costs import EvictionCosts
from fairlead.engine.types.reasons import PreemptionBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.placement.model import TopologyDomain
    from fairlead.engine.placement.shapes import UnitShape
    from fairlead.engine.reclaim.candidates import EvictionUnit
    from fairlead.engine.reclaim.reclaim import Preemptor, Rules
    from fairlead.engine.reclaim.releasing import PipelinedCluster

PIECES_MAX = 20_000  # looked at for one gang when nodes alone do not show the way
DOMAINS_MAX = 32  # topology domains tried for one gang
STEPS_UNIT = 10  # what placing one unit again costs, in pieces looked at


@dataclass(slots=True)
class VictimChoice:
    """Who goes, in order, and where the gang will be. `placed` is taken in the later ledger."""

    pieces: list[EvictionUnit]
    placed: list[UnitPlacement]


class VictimSearch:
    """One per decision. `choose` leaves a found choice in force."""

    def __init__(self, later: PipelinedCluster, rules: Rules) -> None:
        self.later = later
        self.rules = rules
        self._rooms: dict[object, EvictionCosts] = {}
        self._hopeless: dict[object, PreemptionBlock] = {}

    def choose(self, wish: Preemptor) -> VictimChoice | PreemptionBlock:
        """A legal, minimal set, out of the later ledger and tree; or why there is none."""
        key = (wish.kind, wish.signature, self.later.version)
        known = self._hopeless.get(key)
        if known is None and (wish.kind, "none") in self._hopeless:
            known = PreemptionBlock.PLACE
        if known is not None:
            return known
        if not self.rules.anybody(wish):
            self._hopeless[wish.kind, "none"] = PreemptionBlock.PLACE
            return PreemptionBlock.PLACE
        budget = StepBudget(self.later.snapshot.search_steps)
        choice = self._cheapest(wish, budget) or self._of_all(wish, budget)
        if choice is not None:
            return choice
        bar = self._hopeless[key] = PreemptionBlock.STEPS if budget.ended else PreemptionBlock.PLACE
        return bar

    def again(self) -> None:
        """Others were evicted since: what was hopeless may not be."""
        self._hopeless.clear()
        self.rules.again()

    # ---------------------------------------------------------------------------------------------- unit by unit

    def _cheapest(self, wish: Preemptor, budget: StepBudget) -> VictimChoice | None:
        """Each unit where it costs least; of topology domains the cheapest."""
        topology = parse(wish.gang.topology)
        if topology is None or topology.mode == "preferred":
            return self._settled(wish, self._greedy(wish, None, budget), budget)
        best: tuple[tuple[float, ...], TopologyDomain] | None = None
        for domain in list(self.later.domains.of(topology.label).values())[:DOMAINS_MAX]:
            pieces = self._greedy(wish, domain, budget)
            if pieces is None:
                continue
            for piece in reversed(pieces):
                self._back(piece)
            cost = _cost(pieces)
            if best is None or cost < best[0]:
                best = (cost, domain)
        return None if best is None else self._settled(wish, self._greedy(wish, best[1], budget), budget)

    def _greedy(self, wish: Preemptor, among: TopologyDomain | None, budget: StepBudget) -> list[EvictionUnit] | None:
        """Pieces taken out so that every unit found a node; None (and nothing out) when one found none."""
        placer = self.later.placer
        scope = NodeScope(wish.spread, frozenset(wish.gang.avoid), among)
        pieces: list[EvictionUnit] = []
        placed: list[UnitPlacement] = []
        whole = True
        for unit in hardest_first(wish.units):
            entry: object = placer.place_unit(unit, budget, scope)
            if entry is None:
                found = self._room(wish, unit.shape, scope).best(wish, unit, budget)
                if found is not None:
                    for piece in found[1]:
                        self._out(piece)
                        pieces.append(piece)
                    entry = placer.put(unit, found[0], budget)
            if not isinstance(entry, UnitPlacement):
                whole = False
                break
            placed.append(entry)
        placer.undo(placed)
        if whole:
            return pieces
        for piece in reversed(pieces):
            self._back(piece)
        return None

    def _room(self, wish: Preemptor, shape: UnitShape, scope: NodeScope) -> EvictionCosts:
        key = (wish.kind, shape, scope, len(wish.units) == 1)
        found = self._rooms.get(key)
        if found is None:
            scored_nodes = self.later.placer.scored_nodes(shape, scope)
            found = self._rooms[key] = EvictionCosts(self.later, self.rules, scored_nodes)
        return found

    # ------------------------------------------------------------------------------------------ all that may go

    def _of_all(self, wish: Preemptor, budget: StepBudget) -> VictimChoice | None:
        """Everything that may go is out; then what was not needed comes back.

        Each that goes leaves its queue less to give, and whose surplus goes does not go whole. So where that is not enough the
        same is tried with whole gangs only, and with the largest first.
        """
        pieces = self.rules.crowd.pieces[:PIECES_MAX]
        orders = [pieces]
        whole = [piece for piece in pieces if piece.whole]
        if len(whole) < len(pieces):
            orders.append(whole)
        if len({piece.devices for piece in whole}) > 1:
            orders.append(sorted(whole, key=lambda piece: (-piece.devices, piece.rank)))
        for order in orders:
            choice = self._settled(wish, self._all_out(wish, order, budget), budget)
            if choice is not None:
                return choice
        return None

    def _all_out(self, wish: Preemptor, pieces: Sequence[EvictionUnit], budget: StepBudget) -> list[EvictionUnit]:
        """Those of them that may go, out."""
        out: list[EvictionUnit] = []
        for _ in range(2):  # what is refused at first may be allowed once own gangs are out
            before = len(out)
            for piece in pieces:
                budget.steps -= 1
                if budget.steps < 0:
                    budget.ended = True
                    break
                if self.rules.refusal(wish, piece) is None:
                    self._out(piece)
                    out.append(piece)
            if len(out) == before:
                break
        return out

    # -------------------------------------------------------------------------------------- minimal, and legal

    def _settled(self, wish: Preemptor, pieces: list[EvictionUnit] | None, budget: StepBudget) -> VictimChoice | None:
        """Place the gang, spare whom it can do without, and judge what is left; None, and all undone, if that fails."""
        if pieces is None:
            return None
        placed = self._place(wish)
        if placed is not None:
            pieces, placed = self._spare(wish, pieces, placed, budget)
        if placed is not None and pieces and self._legal(wish, pieces, placed):
            return VictimChoice(pieces, placed)
        if placed is not None:
            self.later.placer.undo(placed)
        for piece in reversed(pieces):
            self._back(piece)
        return None

    def _place(self, wish: Preemptor) -> list[UnitPlacement] | None:
        if wish.queue.over_limit(wish.charge):
            return None
        outcome = self.later.try_place(wish.gang, wish.units, spread=wish.spread)
        return outcome.placed if outcome.status is SearchStatus.FOUND else None

    def _spare(
        self, wish: Preemptor, pieces: list[EvictionUnit], placed: list[UnitPlacement], budget: StepBudget
    ) -> tuple[list[EvictionUnit], list[UnitPlacement] | None]:
        """Put back whoever is not needed: at once those on none of the gang's nodes, then one by one, last one first."""
        kept = self._without_strangers(wish, pieces, placed)
        for piece in list(reversed(kept)) if len(kept) > 1 else ():
            budget.steps -= STEPS_UNIT * len(wish.units)
            if budget.steps < 0:
                budget.ended = True
                break
            self.later.placer.undo(placed)
            self._back(piece)
            others = [other for other in kept if other is not piece]
            found = self._place(wish)
            if found is not None and self._legal(wish, others, found):
                kept, placed = others, found
                continue
            if found is not None:
                self.later.placer.undo(found)
            self._out(piece)
            again = self._place(wish)
            if again is None:
                return kept, None
            placed = again
        return kept, placed

    def _without_strangers(
        self, wish: Preemptor, pieces: list[EvictionUnit], placed: Sequence[UnitPlacement]
    ) -> list[EvictionUnit]:
        """Without the pieces that are on none of the gang's nodes, if limits and law allow."""
        nodes = {entry.node.name for entry in placed}
        strangers = {piece for piece in pieces if not any(node in nodes for node in piece.nodes)}
        kept = [piece for piece in pieces if piece not in strangers]
        if not strangers or self.later.board.node_snapshot.has_network_attached:
            return pieces
        for piece in strangers:
            self._back(piece)
        if self._legal(wish, kept, placed):
            return kept
        for piece in strangers:
            self._out(piece)
        return pieces

    def _legal(self, wish: Preemptor, pieces: Sequence[EvictionUnit], placed: Sequence[UnitPlacement]) -> bool:
        """The whole set from nothing, with what the gang really gets: in some order each piece may go when its turn comes."""
        charge = self.later.board.charges.of_placed(placed)
        if wish.queue.over_limit(charge):
            return False
        real = wish.with_charge(charge)
        for piece in pieces:
            self.rules.give(piece)
            self.later.count_out(piece, -1)
        left = sorted(pieces, key=lambda piece: (piece.devices, piece.rank))
        while left:
            going = next((piece for piece in left if self.rules.refusal(real, piece) is None), None)
            if going is None:
                break
            self.rules.take(going)
            self.later.count_out(going)
            left.remove(going)
        legal = not left and not self.rules.grows(real, pieces) and not self.rules.spoils(real, pieces)
        for piece in left:
            self.rules.take(piece)
            self.later.count_out(piece)
        return legal

    def _out(self, piece: EvictionUnit) -> None:
        self.later.take_out(piece)
        self.rules.take(piece)

    def _back(self, piece: EvictionUnit) -> None:
        self.rules.give(piece)
        self.later.put_back(piece)


def _cost(pieces: Sequence[EvictionUnit]) -> tuple[float, ...]:
    """Low priority, few gangs, few pods, the youngest."""
    whole = [piece.gang.priority for piece in pieces if piece.whole]
    started = min((piece.started for piece in pieces), default=0.0)
    created = min((piece.gang.created for piece in pieces), default=0.0)
    pods = sum(len(piece.members) for piece in pieces)
    return (max(whole, default=float("-inf")), len(whole), pods, -started, -created)
