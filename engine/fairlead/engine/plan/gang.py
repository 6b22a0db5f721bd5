"""One gang, now: within its queue's limits, on devices that are free.

Exists apart from the decision because it is the same for whoever is next. Admits nothing itself and knows no order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.engine.allocator.model import SearchStatus, StepBudget
from fairlead.engine.placement.shapes import signature
from fairlead.engine.queues.tree import limit_reason
from fairlead.engine.types.reasons import Code, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairlead.engine.allocator.requests import InvalidClaimError
    from fairlead.engine.placement.model import PlacementResult, UnitPlacement
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.queues.cache import SchedulerCache
    from fairlead.engine.queues.charges import Charge
    from fairlead.engine.queues.order import PendingGang
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.amounts import Amount
    from fairlead.engine.types.gangs import ClaimRequest, GangRequest

    OverLimit = Callable[[Queue, Mapping[str, Amount]], list[tuple[Queue, str]]]


class Places:
    """Placement of one decision, with what failed remembered: nothing is given back, so it fails again."""

    def __init__(self, board: SchedulerCache, snapshot: Snapshot) -> None:
        self.board = board
        self.snapshot = snapshot
        self.failed: dict[object, PlacementResult] = {}

    def within_limits(
        self, entry: PendingGang, over_limit: OverLimit
    ) -> Reason | PlacementResult | tuple[list[UnitPlacement], Charge]:
        """A place and its charge, or why there is none. Raises InvalidClaimError.

        Where it would cost more than a limit allows, it is tried without the flavors that are too dear, and then again with
        only the later alternatives of each `firstAvailable`.
        """
        gang, queue, units = entry.gang, entry.queue, entry.units
        charges, shapes = self.board.charges, self.board.shapes
        blocked: Reason | None = None
        deepest = max((unit.shape.deepest for unit in units), default=1)
        for skip in range(deepest):
            banned: list[str] = []
            while True:
                selectors = tuple(charges.selector(flavor) for flavor in sorted(banned))
                tried = shapes.units(gang, selectors, skip) if banned or skip else units
                outcome = self.place(gang, tried, spread=queue.spec.strategy == "spread")
                if outcome.status is not SearchStatus.FOUND:
                    break
                charge = charges.of_placed(outcome.placed)
                over = over_limit(queue, charge)
                if not over:
                    return outcome.placed, charge
                self.board.placer.undo(outcome.placed)
                blocked = blocked or limit_reason(*over[0], charge[over[0][1]])
                banned.extend(flavor for _, flavor in over if flavor not in banned)
            if blocked is None:
                return outcome  # no limit stands in the way: fewer alternatives would not help
        return blocked or outcome

    def place(self, gang: GangRequest, units: list[PlacementUnit], *, spread: bool) -> PlacementResult:
        if self.failed:
            known = self.failed.get(signature(gang, units, spread=spread))
            if known is not None:
                return for_gang(known, units)
        budget = StepBudget(self.snapshot.search_steps)
        outcome = self.board.domains.place(gang, units, budget, spread=spread)
        if outcome.status is not SearchStatus.FOUND:
            self.failed[signature(gang, units, spread=spread)] = outcome
        return outcome

    def ever(self, gang: GangRequest, units: list[PlacementUnit]) -> bool | None:
        """Whether it fits on the same cluster with nothing running; None when that search did not end."""
        key = (signature(gang, units, spread=False), self.snapshot.search_steps)
        known = self.board.ever
        if key not in known:
            placer, domains = self.board.empty
            placer.begin()
            outcome = domains.place(gang, units, StepBudget(self.snapshot.search_steps), spread=False)
            placer.undo(outcome.placed)
            known[key] = None if outcome.status is SearchStatus.BUDGET_ENDED else outcome.status is SearchStatus.FOUND
        return known[key]


def for_gang(known: PlacementResult, units: list[PlacementUnit]) -> PlacementResult:
    """The same failure, told of this gang's own unit."""
    unplaced = known.unplaced
    mine = next((unit for unit in units if unplaced is not None and unit.shape is unplaced.shape), None)
    return replace(known, unplaced=mine)


# ------------------------------------------------------------------------------------------ why it is not considered


def gathering(gang: GangRequest, present: int) -> Reason:
    return Reason(
        code=Code.GATHERING,
        message=f"{present} of {gang.size} pods of the gang exist",
        advice=f"create the other {max(gang.size - present, 0)}, or lower the gang's size",
    )


def shared(claim: ClaimRequest, gang: str) -> Reason:
    return Reason(
        code=Code.CLAIM_BEING_ALLOCATED,
        message=f"ResourceClaim {claim} is shared with gang {gang}, for which it is being allocated",
        advice="it is considered again as soon as that is written",
    )


def invalid(error: InvalidClaimError) -> Reason:
    return Reason(code=Code.INVALID, message=str(error), advice="", could_ever_fit=False)


def behind(head: PendingGang, queue: Queue) -> Reason:
    return Reason(
        code=Code.BEHIND_HEAD,
        message=f"queue {queue.name} is strict FIFO and its head {head.gang.id} waits",
        advice="it is considered when the head has started; BestEffortFIFO would let it pass",
    )
