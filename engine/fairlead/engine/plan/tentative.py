"""Which gangs of this decision's own making a blocked gang may evict, before the plan is made.

Blocked gangs are looked at again with those among the candidates that were admitted, or nominated for what comes free,
since: what the next decision would evict need not start. So deciding on the outcome of a decision changes nothing.
Chooses no victims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.reclaim.candidates import TentativeAdmission
from fairlead.engine.reclaim.eviction_policy import could_take

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from fairlead.engine.plan.session import Session
    from fairlead.engine.queues.gangs import AssumedGang, PendingGang
    from fairlead.engine.queues.queue import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit
    from fairlead.engine.reclaim.eviction_policy import VictimPolicy


class TentativeAdmissions:
    """Of one decision. They are candidates only between `insert` and `clear`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.units: dict[str, TentativeAdmission] = {}  # by gang id
        self._evicted: list[str] = []  # ids of gangs that are to be withdrawn

    @property
    def any_nominated(self) -> bool:
        return any(not unit.starts for unit in self.units.values())

    def find(self, nominated: Iterable[AssumedGang], blocked: Collection[PendingGang]) -> list[AssumedGang]:
        """Gangs that are no candidates yet. None of them, unless one of the blocked has its turn before a nominated one, or
        may take from the queue of any. `blocked` has one gang of each equivalence class.
        """
        coming = [each for each in nominated if each.pending.id not in self.units]
        admitted = [
            each
            for each in self._session.admitted.gangs.values()
            if each.pending.id not in self.units and not each.pending.gang.placed_nodes
        ]
        if self._comes_before(coming, blocked) or _could_take_any(admitted + coming, blocked):
            return admitted + coming
        return []

    def _comes_before(self, nominated: Iterable[AssumedGang], blocked: Iterable[PendingGang]) -> bool:
        turns = self._session.turns
        first = min((turns.get(pending.id, 0) for pending in blocked), default=None)
        return first is not None and any(first < turns.get(each.pending.id, 0) for each in nominated)

    def insert(self, gangs: Iterable[AssumedGang]) -> None:
        """Admitted ones hold their devices in the pipelined cluster, too; nominated ones hold them there only."""
        session = self._session
        assumed = session.pipelined.assumed
        new = [
            TentativeAdmission(
                each,
                assumed.get(each.pending.id, each.placed),
                session.now,
                session.turns.get(each.pending.id, 0),
                starts=each.pending.id in assumed,
            )
            for each in gangs
        ]
        self.units.update((unit.id, unit) for unit in new)
        session.candidates.insert(new)

    def evict(self, victims: Iterable[EvictionUnit], policy: VictimPolicy) -> bool:
        """Those of the chosen that do not run are no candidates any more, and are to be withdrawn; whether there are any.

        The pipelined ledger and their queues are without them already.
        """
        found = [unit for unit in victims if isinstance(unit, TentativeAdmission)]
        for unit in found:
            policy.tallying(unit, -1)
            self._session.candidates.remove(unit)
            self._session.pipelined.assumed.pop(unit.id, None)
            del self.units[unit.id]
            self._evicted.append(unit.id)
        return bool(found)

    def clear(self) -> list[str]:
        """None is a candidate until the next `insert`; returns the ids of the gangs to withdraw."""
        for unit in self.units.values():
            self._session.candidates.remove(unit)
        self.units.clear()
        evicted, self._evicted = self._evicted, []
        return evicted


def _could_take_any(gangs: Sequence[AssumedGang], blocked: Iterable[PendingGang]) -> bool:
    """Whether the policy lets one of the blocked take from a queue to which one of these gangs belongs."""
    given: dict[Queue, tuple[Charge, int]] = {}
    for each in gangs:
        queue, priority = each.pending.queue, each.pending.gang.priority
        charge, least = given.get(queue, ({}, priority))
        add(charge, each.charge)
        given[queue] = (charge, min(least, priority))
    return any(
        could_take(pending.queue, pending.gang.priority, pending.charge, queue, charge, least)
        for pending in blocked
        for queue, (charge, least) in given.items()
    )
