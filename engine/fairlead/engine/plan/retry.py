"""Blocked gangs once more: what victims left over, or what queues hold since, may serve them.

Among the victims may now be gangs that this very decision admitted or nominated: those are withdrawn, the gang in whose way
they were is decided on first, and then all that are still pending, in order, again.
Ends when a round brought neither an admission nor an eviction, at the latest after ROUNDS_MAX.

Example, one queue with gangs P (priority 1, 4 devices on one node) and Q (priority 0, 2 devices), 2 devices free: P finds no
place, Q is admitted. Later in the decision a gang of another queue evicts one of 4 devices on that node and leaves 2 of them
over. With those and Q's two P fits, and the next decision would preempt Q. So Q is withdrawn, and P is nominated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.plan.gang import Unschedulable, behind, holds_for_equals

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from fairlead.engine.placement.model import PlacementResult
    from fairlead.engine.plan.scheduling import Scheduling
    from fairlead.engine.queues.gangs import PendingGang
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.types.reasons import Reason

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
