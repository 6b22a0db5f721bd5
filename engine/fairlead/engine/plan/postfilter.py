"""What becomes of a gang that finds no place now: nominated, others evicted for it, a place reserved, or none of these.

Asked once for each blocked gang, in this order, as kube-scheduler's PostFilter is:
    coming free    it fits once those have gone that are leaving anyway: it is nominated for their devices
    nodes          nodes are asked for, for it (`node_demand`): nothing moves or is evicted until the flavor's time for that is over
    move           gangs that may move make room elsewhere (`moves`): it is nominated for what they leave
    evict          victims make room for it (`preemption`): they are evicted, and it is nominated for theirs
    reserve        it has waited long enough: a place is reserved for it (`reservations`)
A gang that only observes devices, by admin access, is charged to no queue: it waits, and nothing is held or moved for it.
What a gang is nominated for is held in both ledgers and charged to its queue, so that no later gang of the decision starts on
it and nothing is evicted twice for the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.engine.allocator.result import SearchStatus
from fairlead.engine.placement.model import PlacementResult
from fairlead.engine.placement.shapes import signature
from fairlead.engine.plan.gang import Unschedulable, WhyPending
from fairlead.engine.plan.held import HeldDevices, Nominations, Reservations
from fairlead.engine.plan.moves import Moves, moving
from fairlead.engine.plan.node_demand import NodeDemands
from fairlead.engine.plan.preemption import Preemption
from fairlead.engine.plan.session import Session
from fairlead.engine.queues.gangs import PendingGang
from fairlead.engine.queues.limits import over_limit
from fairlead.engine.reclaim.blockers import share_blocker
from fairlead.engine.reclaim.eviction_policy import Preemptor
from fairlead.engine.reclaim.evictions import making_room
from fairlead.engine.types.plan import Reservation
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube import timestamps

LEAVING_MAX = 4  # pods and devices that a message names


class PostFilter:
    def __init__(self, session: Session, *, finds_blockers: bool) -> None:
        self._session = session
        self._finds_blockers = finds_blockers
        self.held = HeldDevices()
        self.nominations = Nominations(session, self.held)
        self.reservations = Reservations(session, self.held)
        self.preemption = Preemption(session, self.nominations, self.reservations)
        self.moves = Moves(session, self.preemption, self.reservations)
        self.demands = NodeDemands(session, self.held)

    def consider(
        self, pending: PendingGang, why: Reason | PlacementResult, *, again: bool = False
    ) -> WhyPending | None:
        """Why the gang stays pending. `again`: it was blocked before, and more has come free since.

        None: gangs of this decision have to be withdrawn first (`Preemption.withdrawn`); then decide on this gang again.
        """
        still = self._consider(pending, why, again=again)
        self._session.commit()
        return still

    def _consider(self, pending: PendingGang, why: Reason | PlacementResult, *, again: bool) -> WhyPending | None:
        limited = isinstance(why, Reason)
        if isinstance(why, Reason) and (why.limit is None or why.limit.whole):
            return why
        if pending.observes:
            return why if isinstance(why, Reason) else Unschedulable(why)
        preemptor = self._preemptor(pending)
        if not self.preemption.possible and not self._session.being_released:
            if isinstance(why, Reason):
                return why
            demand = self.demands.consider(pending, why)
            return Unschedulable(why, share_blocker(preemptor), demand=demand is not None)
        reserved = self._nominate(pending, preemptor)
        if reserved is not None:
            placed = self.nominations.by_gang[pending.id].assumed.placed
            released = self._session.released_by_nodes(placed)
            due = self._session.evicted_at(reserved.nodes, placed)
            return _coming_free(preemptor, reserved, self._session.leaving_on(reserved.nodes), released, due)
        demand = None if isinstance(why, Reason) else self.demands.consider(pending, why)
        if self._session.places.ever(pending.gang, pending.units) is False:
            return why if isinstance(why, Reason) else Unschedulable(why, demand=demand is not None)
        awaited = self.demands.blocker(demand)
        if awaited is not None and not isinstance(why, Reason):
            reserved = self.reservations.of(pending) if again else self.reservations.reserve(pending, preemptor)
            return Unschedulable(why, (awaited,), reserved, demand=True)
        moved = None if limited else self.moves.make_room(pending, preemptor)
        if moved is not None:
            made, placed = moved
            self.nominations.nominate(pending, placed, evicted=True)
            return moving(made)
        found = self.preemption.victims_or_blockers(
            preemptor, pending.cost.choices, explained=self._finds_blockers and not limited
        )
        if not isinstance(found, tuple):
            evicted = self.preemption.confirm(found)
            if evicted is None:
                return None
            self.nominations.nominate(pending, found.placed, evicted=True)
            return making_room(evicted)
        if again:
            reserved = self.reservations.of(pending)
        else:
            reserved = None if limited else self.reservations.reserve(pending, preemptor)
        return why if isinstance(why, Reason) else Unschedulable(why, found, reserved, demand=demand is not None)

    def _nominate(self, pending: PendingGang, preemptor: Preemptor) -> Reservation | None:
        """For what is leaving anyway, if the gang fits there."""
        releasing = self._session.releasing
        if releasing is None or over_limit(pending.queue, pending.charge):
            return None
        mark = releasing.statement.checkpoint()
        outcome = releasing.place(pending.gang, pending.units, preemptor.signature, spread=preemptor.spread)
        if outcome.status is not SearchStatus.FOUND:
            return None
        if over_limit(pending.queue, self._session.cache.charges.of_placed(outcome.placed)):
            releasing.statement.rollback(mark)
            return None
        return self.nominations.nominate(pending, outcome.placed, evicted=pending.gang.preemptor)

    def reserve(self, pending: PendingGang) -> None:
        """A place for a gang that waits for its own queue's gangs to end, before others of the queue take what they leave."""
        session = self._session
        if pending.observes or not session.running or session.stopped(pending) is not None:
            return
        if (
            session.quotas.shortage(pending.gang) is not None
            or session.places.ever(pending.gang, pending.units) is False
        ):
            return
        if not self.reservations.waited(pending):
            return
        if session.statement.accounts.charge(pending.gang.namespace).exhausted():
            return
        preemptor = self._preemptor(pending)
        mark = session.statement.checkpoint()
        outcome = session.places.place(pending.gang, pending.units, spread=preemptor.spread)
        if outcome.status is SearchStatus.FOUND:
            session.statement.rollback(mark)
        elif session.places.ever(pending.gang, pending.units):
            self.reservations.reserve(pending, preemptor)
        session.commit()

    def _preemptor(self, pending: PendingGang) -> Preemptor:
        spread = pending.queue.spec.strategy == "spread"
        return Preemptor(
            pending.gang,
            pending.queue,
            pending.units,
            pending.charge,
            spread,
            signature(pending.gang, pending.units, spread=spread),
            pending.id,
            self._session.turns.get(pending.id, 0) if self.preemption.tentative.any_nominated else 0,
        )


def _coming_free(
    preemptor: Preemptor, reserved: Reservation, leaving: Sequence[str], released: Sequence[str], due: float | None
) -> Reason:
    """`leaving`: of the pods that hold devices there, since when and until when they are awaited, as far as that is known; `released`: the
    same of devices whose pods were deleted by force; `due`: for when the last of their evictions is set, unix seconds.
    """
    where = ", ".join(reserved.nodes[:3]) + (f" and {len(reserved.nodes) - 3} more" if len(reserved.nodes) > 3 else "")
    evicted = preemptor.gang.preemptor
    holding = "pods that were evicted for it still" if evicted else "pods that are leaving still"
    if released and not leaving:
        holding = "containers of pods that were deleted by force still"
    if due is not None:
        holding = f"pods that are evicted{' for it' if evicted else ''} at {timestamps.seconds(due)}"
    said = [*leaving, *released]
    return Reason(
        code=Code.MAKING_ROOM if evicted else Code.COMING_FREE,
        message=f"{holding} hold devices on {where}; "
        "it fits as soon as they are gone, and the devices that they release are held for it"
        + "".join(f"; {text}" for text in said[:LEAVING_MAX])
        + (f"; and {len(said) - LEAVING_MAX} more" if len(said) > LEAVING_MAX else ""),
        advice="wait until they have ended: their grace periods bound that",
        could_ever_fit=True,
        due=due,
    )
