"""Pending gangs, one after the other: order, place, admit, or post-filter; then blocked ones once more.

`in_order` asks the queues for the next gang until none is left. Gangs of one queue that are alike but for their age (an
equivalence class) are decided on once: what one was refused, the next is refused, too, as long as nothing has come free since.
Retry: what victims left over, or what queues hold since, may serve blocked gangs. Among the victims may now be gangs that this very
decision admitted or nominated: those are withdrawn, the gang in whose way they were is decided on first, and then all that are still
pending, in order, again. Ends when a round brought neither an admission nor an eviction, at the latest after ROUNDS_MAX.
Example, one queue with gangs P (priority 1, 4 devices on one node) and Q (priority 0, 2 devices), 2 devices free: P finds no
place, Q is admitted. Later in the decision a gang of another queue evicts one of 4 devices on that node and leaves 2 of them
over. With those and Q's two P fits, and the next decision would preempt Q. So Q is withdrawn, and P is nominated.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.placement.model import PlacementResult, UnitPlacement
from fairlead.engine.plan.gang import (
    LeftPending,
    Unschedulable,
    WhyPending,
    behind,
    for_gang,
    holds_for_equals,
    invalid,
    shared,
)
from fairlead.engine.plan.postfilter import PostFilter
from fairlead.engine.plan.session import Session
from fairlead.engine.plan.turns import may_preempt_into_share, note_contender, would_be_victim
from fairlead.engine.queues.charges import Charge
from fairlead.engine.queues.gangs import Order, PendingGang
from fairlead.engine.queues.limits import held, limit_reason, over_limit, stopped
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.policy import over_contested_share
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import Reason


class Scheduling:
    def __init__(self, session: Session, *, finds_blockers: bool = True) -> None:
        self.session = session
        self.post_filter = PostFilter(session, finds_blockers=finds_blockers)
        self.left: dict[str, LeftPending] = {}  # by gang id
        self.position = 0
        self._refused: dict[Queue, dict[object, WhyPending]] = {}  # by equivalence class
        self._refused_at = 0  # how many choices of victims had been confirmed then

    def in_order(self, pending: list[PendingGang], *, within_share: bool) -> list[PendingGang]:
        """Decide on each gang in the order of the queues. `within_share`: not on those over a share, which are returned.

        Of a queue that may preempt, gangs of lower priority than such a one are returned with it, as far as they ask for the
        same flavors: they would be its victims.
        """
        session = self.session
        over_share: list[PendingGang] = []
        least: dict[tuple[Queue, str], int] = {}  # priority of the gang that lower ones of queue and flavor wait for
        order = Order(session.tree, pending, session.totals.devices)
        while (head := order.next()) is not None:
            queue = head.queue
            strict = queue.spec.ordering == "StrictFIFO"
            over = within_share and over_contested_share(queue, head.charge) is not None
            if over or would_be_victim(head, least):
                if over and may_preempt_into_share(head):
                    note_contender(head, least)
                self.post_filter.reserve(head)
                over_share += (head, *order.advance(head, (head.equivalence,)))
                over_share += order.block(queue) if strict else ()
                continue
            stays = self.decide(head)
            for equal in order.advance(head, self._refused.get(queue, ())):
                self.position += 1
                self.leave(equal.gang, equal.queue, self._refused_like(equal))
            if stays and strict:
                for other in order.block(queue):
                    self.position += 1
                    self.leave(other.gang, other.queue, behind(head, other.queue, ever=session.ever(head)))
        return over_share

    def decide(self, pending: PendingGang) -> bool:
        """Admit the gang or leave it pending; whether it stays."""
        self.position += 1
        self.session.turns.setdefault(pending.id, self.position)
        why = self._consider(pending)
        if why is None:
            return False
        self.leave(pending.gang, pending.queue, why)
        choices = self.post_filter.preemption.choices
        if choices != self._refused_at:
            self._refused.clear()
            self._refused_at = choices
        elif holds_for_equals(why) and not pending.shares_claims:
            self._refused.setdefault(pending.queue, {})[pending.equivalence] = why
        return True

    def leave(self, gang: GangRequest, queue: Queue | None, why: WhyPending) -> None:
        position = self.session.turns.setdefault(gang.id, self.position)
        self.left[gang.id] = LeftPending(gang, None if queue is None else queue.name, position, why)

    def forget_refusals(self) -> None:
        """Something has come free: what failed may not fail again."""
        self.session.places.failed.clear()
        self._refused.clear()

    def _refused_like(self, pending: PendingGang) -> WhyPending:
        """As another gang of its equivalence class, earlier in this decision."""
        why = self._refused[pending.queue][pending.equivalence]
        given = self.session.admitted.claims
        if given and (key := next((key for key in pending.claim_keys if key in given), None)):
            return shared(pending.gang.claims[pending.claim_keys.index(key)], given[key])
        if isinstance(why, Reason):
            return why
        return Unschedulable(for_gang(why.outcome, pending.units), why.blockers)

    def _consider(self, pending: PendingGang) -> WhyPending | None:
        """Admit the gang (None), or say why not."""
        given = self.session.admitted.claims
        for claim in pending.gang.claims:
            if claim.key in given:
                return shared(claim, given[claim.key])
        stopping = self.session.stopped(pending)
        if stopping is not None:
            return stopped(stopping)
        over_quota = self.session.quotas.shortage(pending.gang)
        if over_quota is not None:
            return over_quota
        passed_over = self.session.turns_of_search.begin(pending)
        if passed_over is not None:
            return passed_over
        why = self._search(pending)
        self.session.turns_of_search.end(pending, stays=why is not None)
        return why

    def _search(self, pending: PendingGang) -> WhyPending | None:
        try:
            found = self._place(pending)
            if isinstance(found, tuple):
                self.session.admit(pending, *found)
                return None
            if self.session.turns_of_search.out and not isinstance(found, Reason):
                return self.session.turns_of_search.passed_over(pending)
            why = self.post_filter.consider(pending, found)
        except InvalidClaimError as error:
            return invalid(error)
        assert why is not None, "there are tentative admissions only when blocked gangs are looked at again"
        return why

    def _place(self, pending: PendingGang) -> Reason | PlacementResult | tuple[list[UnitPlacement], Charge]:
        """A place and its charge, or why there is none: at first with all reservations held, then on those it may use."""
        over = over_limit(pending.queue, pending.charge, held)
        if over:
            return limit_reason(*over[0], pending.charge[over[0][1]])
        places = self.session.places
        found = places.within_limits(pending)
        if isinstance(found, tuple):
            return found
        reservations = self.post_filter.reservations
        usable = reservations.usable(pending)
        if not usable:
            return found
        known, places.failed = places.failed, {}
        for place in usable:
            place.now.lend()
        again = places.within_limits(pending)
        for place in usable:
            if not (isinstance(again, tuple) and reservations.fulfilled(pending, place)):
                place.now.take()
        places.failed = known
        return again if isinstance(again, tuple) else found


ROUNDS_MAX = 16


class Retry:
    def __init__(self, scheduling: Scheduling) -> None:
        self._scheduling = scheduling
        self._session = scheduling.session
        self._post_filter = scheduling.post_filter
        self._ranked = sorted(self._session.pending.gangs, key=lambda pending: pending.rank)

    def run(self) -> None:
        preemption = self._post_filter.preemption
        seen = (0, 0)
        for _ in range(ROUNDS_MAX):
            now = (preemption.choices, self._session.admitted.count)
            if now == seen:
                return
            seen = now
            blocked: dict[object, PendingGang] = {}  # the first of each equivalence class
            for pending in self._ranked:
                if pending.equivalence not in blocked and self._why_blocked(pending) is not None:
                    blocked[pending.equivalence] = pending
            if not preemption.look_again(blocked.values()):
                return
            first = self._look_again(blocked)
            if first is not None:
                self._withdraw_for(first)

    def _why_blocked(self, pending: PendingGang) -> Reason | PlacementResult | None:
        """Why the gang is left pending, where evictions or withdrawals could still make room for it."""
        left = self._scheduling.left.get(pending.id)
        if left is None:
            return None
        if isinstance(left.why, Unschedulable):
            return left.why.outcome
        return None if left.why.limit is None else left.why

    def _look_again(self, blocked: Container[object]) -> PendingGang | None:
        """Consider all gangs of these equivalence classes; the first for which others are to be withdrawn, if there is one."""
        preemption, left = self._post_filter.preemption, self._scheduling.left
        refused: set[object] = set()  # equivalence classes, since something came free last
        choices = preemption.choices
        for pending in self._ranked:
            if pending.equivalence not in blocked or pending.equivalence in refused:
                continue
            why = self._why_blocked(pending)
            if why is None:
                continue
            if self._session.statement.accounts.charge(pending.gang.namespace).exhausted():
                continue
            still = self._post_filter.consider(pending, why, again=True)
            if still is None:
                return pending
            left[pending.id] = left[pending.id]._replace(why=still)
            if preemption.choices != choices:
                refused.clear()
                choices = preemption.choices
            elif holds_for_equals(still) and not pending.shares_claims:
                refused.add(pending.equivalence)
        return None

    def _withdraw_for(self, first: PendingGang) -> None:
        """Withdraw the gangs in its way, decide on it, then on all that are still pending, in order."""
        scheduling, session = self._scheduling, self._session
        for gang_id in self._post_filter.preemption.withdrawn():
            session.admitted.withdraw(gang_id)
        session.commit()
        scheduling.forget_refusals()
        nominated = self._post_filter.nominations.by_gang
        undecided = [
            each for each in self._ranked if each.id not in session.admitted.gangs and each.id not in nominated
        ]
        for each in undecided:
            scheduling.left.pop(each.id, None)
        heads = {each.queue: each for each in self._ranked if each.id in nominated}
        scheduling.decide(first)
        scheduling.in_order(
            scheduling.in_order(self._not_behind(heads, first, undecided), within_share=True), within_share=False
        )

    def _not_behind(
        self, heads: dict[Queue, PendingGang], first: PendingGang, undecided: Sequence[PendingGang]
    ) -> list[PendingGang]:
        """Without `first`, and without those that wait in a strict line behind a nominated gang."""
        free: list[PendingGang] = []
        for each in undecided:
            head = heads.get(each.queue)
            if each is first:
                continue
            if head is not None and each.queue.spec.ordering == "StrictFIFO":
                self._scheduling.leave(each.gang, each.queue, behind(head, each.queue, ever=True))
            else:
                free.append(each)
        return free
