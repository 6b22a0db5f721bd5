"""One gang, now: a place within its queue's limits, on devices that are free; and the verdicts on gangs that have none.

Admits nothing; the order is `queues.gangs`'.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.allocator.result import SearchStatus
from fairlead.engine.allocator.steps import StepAccount, StepAccounts, StepBudget
from fairlead.engine.placement.capacity.unit_capacity import alike_fit
from fairlead.engine.placement.model import PlacementResult, UnitPlacement
from fairlead.engine.placement.search.placer import Placer
from fairlead.engine.placement.shapes import PlacementUnit, signature
from fairlead.engine.queues.cache import SchedulerCache
from fairlead.engine.queues.charges import Charge
from fairlead.engine.queues.gangs import PendingGang
from fairlead.engine.queues.limits import held, limit_reason, over_limit
from fairlead.engine.queues.statement import Statement
from fairlead.engine.queues.tree import Queue
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import ClaimRequest, GangRequest
from fairlead.engine.types.plan import Reservation
from fairlead.engine.types.reasons import Code, PreemptionBlocker, Reason
from fairlead.kube.containment import described


@dataclass(slots=True)
class Unschedulable:
    """What is known of a gang that found no place. It is explained in full when the decision is over."""

    outcome: PlacementResult
    blockers: tuple[PreemptionBlocker, ...] = ()
    reserved: Reservation | None = None
    demand: bool = False  # nodes are asked for, or would be


WhyPending = Reason | Unschedulable


class LeftPending(NamedTuple):
    """`position`: in the order in which gangs were considered, from 1; 0 where this one was not."""

    gang: GangRequest
    queue: str | None
    position: int
    why: WhyPending


class Places:
    """Placement of one decision on the ledger of now. What failed fails again, until `failed` is cleared."""

    def __init__(
        self, cache: SchedulerCache, snapshot: Snapshot, statement: Statement, accounts: StepAccounts, ever_steps: int
    ) -> None:
        """`accounts`: on which searches on the empty cluster are charged; `ever_steps`: what one of them may use."""
        self.cache = cache
        self._accounts = accounts
        self._ever_steps = ever_steps
        self._ever_now: dict[object, bool | None] = {}  # by signature, of this decision
        self.snapshot = snapshot
        self.statement = statement
        self.failed: dict[object, tuple[str, PlacementResult]] = {}  # by signature: whose, and why

    def within_limits(self, pending: PendingGang) -> Reason | PlacementResult | tuple[list[UnitPlacement], Charge]:
        """A place, allocated in the statement, and its charge, or why there is none. Raises InvalidClaimError.

        Of a gang that was moved, its own place, and another on the nodes of that only where those devices do not suffice any more.
        """
        if pending.gang.kept:
            found = self._on_kept(pending)
            if isinstance(found, tuple):
                return found
        return self._within_limits(pending)

    def _on_kept(self, pending: PendingGang) -> Reason | PlacementResult | tuple[list[UnitPlacement], Charge]:
        """With all devices of their nodes withheld but those: else it would leave, by another choice, less or more than was planned."""
        kept, snapshot = set(pending.gang.kept), self.cache.node_snapshot
        devices = [device for ref in pending.gang.kept if (device := self.snapshot.inventory.device(ref)) is not None]
        names = sorted({each.node for each in devices if each.node is not None})
        sites = [snapshot.by_name[name] for name in names if name in snapshot.by_name]
        known, self.failed = self.failed, {}
        mark = self.statement.checkpoint()
        withheld = self.statement.withhold(sites, kept)
        found: Reason | PlacementResult | tuple[list[UnitPlacement], Charge] | None = None
        try:
            found = self._within_limits(pending)
            return found
        finally:
            if isinstance(found, tuple):
                self.statement.restore(sites, withheld)
            else:
                self.statement.rollback(mark)
            self.failed = known

    def _within_limits(self, pending: PendingGang) -> Reason | PlacementResult | tuple[list[UnitPlacement], Charge]:
        """Where it would cost more than a limit allows, it is tried without the flavors that cost too much, and then again with
        only the later alternatives of each `firstAvailable`. What its pods request anywhere it costs in any case.
        """
        gang, queue, units = pending.gang, pending.queue, pending.units
        charges, shapes = self.cache.charges, self.cache.shapes
        mark = self.statement.checkpoint()
        blocked: Reason | None = None
        deepest = max((unit.shape.deepest for unit in units), default=1)
        for skip in range(deepest):
            banned: list[str] = []
            while True:
                elsewhere = charges.pods.labelled.intersection(banned)
                selectors = tuple(charges.selector(flavor) for flavor in sorted(banned) if flavor not in elsewhere)
                tried = shapes.units(gang, selectors, skip) if selectors or skip else units
                wanted = replace(gang, refused=gang.refused + charges.pods.refused(elsewhere)) if elsewhere else gang
                outcome = self.place(wanted, tried, spread=queue.spec.strategy == "spread")
                if outcome.status is not SearchStatus.FOUND:
                    break
                charge = charges.of_placed(outcome.placed)
                over = over_limit(queue, charge, held)
                if not over:
                    return outcome.placed, charge
                self.statement.rollback(mark)
                blocked = blocked or limit_reason(*over[0], charge[over[0][1]])
                if charges.unavoidable.intersection(flavor for _, flavor in over):
                    return blocked
                banned.extend(flavor for _, flavor in over if flavor not in banned)
            if blocked is None:
                return outcome  # no limit stands in the way: fewer alternatives would not help
        return blocked or outcome

    def place(self, gang: GangRequest, units: list[PlacementUnit], *, spread: bool) -> PlacementResult:
        """A place for the whole gang, allocated in the statement, or why there is none."""
        if self.failed:
            known = self.failed.get(signature(gang, units, spread=spread))
            if known is not None:
                # Its own failure as it was: how often a gang is tried depends on what is remembered, and what is said of it must not.
                return known[1] if known[0] == gang.id else for_gang(known[1], units)
        outcome = self.statement.place(gang, units, self.snapshot.search_steps, spread=spread)
        if outcome.status is not SearchStatus.FOUND and not outcome.starved:
            self.failed[signature(gang, units, spread=spread)] = (gang.id, outcome)
        return outcome

    def ever(self, gang: GangRequest, units: list[PlacementUnit]) -> bool | None:
        """Whether it fits on the same cluster with nothing running; None when that search did not end.

        What an earlier decision found is remembered with the steps that it took, and costs the namespace as many again: a decision
        with a fresh cache gives the same plan.
        """
        gang = replace(gang, refused=()) if gang.refused else gang  # for a while only
        key = (signature(gang, units, spread=False), self._ever_steps)
        if key in self._ever_now:
            return self._ever_now[key]
        account, known = self._accounts.of(gang.namespace), self.cache.ever
        if account.exhausted():
            return None
        if key in known:
            found, cost, peak = known[key]
            account.spend(peak)
            if account.exhausted():
                return None
            account.spend(cost - peak)
        else:
            before, account.peak = account.used, account.used
            found = self._ever(gang, units, account)
            if account.exhausted():
                return None
            known[key] = found, account.used - before, account.peak - before
        self._ever_now[key] = found
        return found

    def _ever(self, gang: GangRequest, units: list[PlacementUnit], account: StepAccount) -> bool | None:
        placer, domains = self.cache.empty
        placer.begin()
        if not gang.topology and not gang.subgroup_topology and not gang.align:
            choices = domains.models.choices(gang, units)
            found = _alike_fit([choice.units for choice in choices.of] if choices else [units], placer)
            if found is not None and (found or choices is None or choices.whole):
                return found
        budget = StepBudget(self._ever_steps, account=account)
        outcome = domains.place(gang, units, budget, spread=False)
        placer.undo(outcome.placed)
        if outcome.status is SearchStatus.FOUND and any(unit.shape.facets for unit in units):
            return None  # terms about other pods do not count here: that it fits without them is no proof
        return None if outcome.status is SearchStatus.BUDGET_ENDED else outcome.status is SearchStatus.FOUND


def _alike_fit(ways: Sequence[Sequence[PlacementUnit]], placer: Placer) -> bool | None:
    """Whether one of these lists of alike units fits on the empty cluster; None where only a search can tell."""
    undecided = False
    for units in ways:
        shape = units[0].shape
        alike = all(unit.shape is shape for unit in units) and not shape.facets
        found = alike_fit(units, placer.node_snapshot, placer.device_fit(shape)) if alike else None
        if found:
            return True
        undecided = undecided or found is None
    return None if undecided else False


def for_gang(known: PlacementResult, units: list[PlacementUnit]) -> PlacementResult:
    """The same failure of another gang of the equivalence class: with this one's own unit that found no place."""
    unplaced = known.unplaced
    own = next((unit for unit in units if unplaced is not None and unit.shape is unplaced.shape), None)
    return dataclasses.replace(known, unplaced=own)


def holds_for_equals(why: WhyPending) -> bool:
    """Whether it is so for the next gang of the same equivalence class, too: not where something is held or asked for, for this one."""
    if isinstance(why, Unschedulable):
        return why.reserved is None and not why.demand
    return why.code in {Code.OVER_LIMIT, Code.OVER_QUOTA, Code.BUDGET_EXHAUSTED}


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


def failed(error: Exception) -> Reason:
    """An unforeseen error in deciding on this gang alone."""
    return Reason(
        code=Code.INVALID,
        message=f"it cannot be computed ({described(error)}); the others are",
        advice="this is a fault of Fairlead: please report it, with the gang's pods and claims",
    )


def invalid(error: InvalidClaimError) -> Reason:
    return Reason(code=Code.INVALID, message=str(error), advice="", could_ever_fit=False)


def behind(head: PendingGang, queue: Queue, *, ever: bool | None) -> Reason:
    """`ever`: whether the head could ever start."""
    if ever is False:
        return Reason(
            code=Code.BEHIND_HEAD,
            message=f"queue {queue.name} is strict FIFO and its head {head.gang.id} can never start",
            advice=f"change what gang {head.gang.id} asks for, or delete it; BestEffortFIFO would let this one pass",
            behind=head.gang.id,
        )
    return Reason(
        code=Code.BEHIND_HEAD,
        message=f"queue {queue.name} is strict FIFO and its head {head.gang.id} waits",
        advice="it is considered when the head has started; BestEffortFIFO would let it pass",
    )
