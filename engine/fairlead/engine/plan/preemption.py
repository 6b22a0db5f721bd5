"""Which gangs are evicted for a blocked one, and what keeps the others from being evicted.

Chooses by `reclaim.search`, in the light of what this decision holds for others: what comes free for nominated gangs is no
reason to evict from their queues, and soft reservations yield where they are in the way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from fairlead.engine.plan.held import Nominations, Reservations
from fairlead.engine.plan.session import Session
from fairlead.engine.queues.charges import Charge, add, chargeable
from fairlead.engine.queues.gangs import AssumedGang, PendingGang
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.blockers import LeastPriorities, blockers
from fairlead.engine.reclaim.candidates import EvictionUnit, TentativeAdmission
from fairlead.engine.reclaim.eviction_policy import Preemptor, VictimPolicy, could_take
from fairlead.engine.reclaim.evictions import evictions
from fairlead.engine.reclaim.search import VictimChoice, VictimSearch
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import PreemptionBlock, PreemptionBlocker


class Preemption:
    def __init__(self, session: Session, nominations: Nominations, reservations: Reservations) -> None:
        self._session = session
        self._nominations = nominations
        self._reservations = reservations
        self.tentative = TentativeAdmissions(session)
        self.evictions: list[Eviction] = []
        self.choices = 0  # that were confirmed
        self._search: VictimSearch | None = None
        self._blockers: dict[object, tuple[PreemptionBlocker, ...]] = {}  # by kind of preemptor
        self._tried_soft: set[object] = set()  # for what soft reservations yielded to no avail

    @property
    def possible(self) -> bool:
        return bool(self._session.running or self.tentative.units)

    @cached_property
    def policy(self) -> VictimPolicy:
        session = self._session
        return VictimPolicy(session.pipelined, session.candidates, session.snapshot.budgets)

    @cached_property
    def _least(self) -> LeastPriorities:
        return LeastPriorities(self._session.running.priorities())

    @property
    def search(self) -> VictimSearch:
        if self._search is None:
            self._search = VictimSearch(self.policy)
        return self._search

    def victims_or_blockers(
        self, preemptor: Preemptor, choices: Sequence[Charge], *, explained: bool
    ) -> VictimChoice | tuple[PreemptionBlocker, ...]:
        """The choice, in force in the pipelined statement; or why nothing is evicted for the gang, as far as that is `explained`.

        `choices`: what it costs on each kind of device that may serve it. Devices that its queue deserves are taken back for it
        though others, which count for less or for nothing, would do as well.

        A gang for which others were evicted before evicts no more while anything is still leaving: so a decision on its own
        outcome changes nothing.
        """
        if not preemptor.gang.preempts:
            return (PreemptionBlocker(block=PreemptionBlock.NEVER, queue=preemptor.queue.name),)
        releasing = self._session.releasing
        if preemptor.gang.preemptor and releasing is not None and releasing.leaving:
            return (PreemptionBlocker(block=PreemptionBlock.LEAVING, queue=preemptor.queue.name),)
        found: VictimChoice | tuple[PreemptionBlocker, ...] = ()
        for charge in (preemptor.charge, *choices):
            found = self._victims_or_blockers(replace(preemptor, charge=charge), explained=explained)
            if not isinstance(found, tuple):
                break
        return found

    def _victims_or_blockers(
        self, preemptor: Preemptor, *, explained: bool
    ) -> VictimChoice | tuple[PreemptionBlocker, ...]:
        if not self.tentative.units and (known := self._least.blockers(preemptor)) is not None:
            return known
        choice = self._choose(preemptor)
        if not isinstance(choice, PreemptionBlock):
            return choice
        return self._explained(preemptor, choice) if explained else ()

    def _explained(self, preemptor: Preemptor, block: PreemptionBlock) -> tuple[PreemptionBlocker, ...]:
        known = self._blockers.get(preemptor.kind)
        if known is None:
            overriding = self._overriding(preemptor, self.policy.budget_delays_s(preemptor))
            known = self._blockers[preemptor.kind] = blockers(self.policy, overriding)
        if block is not PreemptionBlock.STEPS:
            return known
        return (PreemptionBlocker(block=block, queue=preemptor.queue.name), *known)

    def _choose(self, preemptor: Preemptor) -> VictimChoice | PreemptionBlock:
        """With PodDisruptionBudgets respected, if that leaves a choice; else without those that have delayed the gang for long enough.

        Queues do not use what comes free for nominated gangs meanwhile, unless these may be evicted themselves.
        """
        statement, coming = self._session.pipelined.statement, self._nominations.without_coming
        if not self.tentative.units:
            statement.do(coming, preemptor.queue)
        choice = self._past_reservations(preemptor)
        if isinstance(choice, PreemptionBlock) and (delays_s := self.policy.budget_delays_s(preemptor)):
            overriding = self._overriding(preemptor, delays_s)
            if overriding is not preemptor:
                choice = self._past_reservations(overriding)
            ends = (preemptor.gang.created + each for each in delays_s)
            later = next((end for end in ends if end > self._session.now), None)
            if isinstance(choice, PreemptionBlock) and later is not None:
                self._session.note_due(later)
        if not self.tentative.units:
            statement.undo(coming, preemptor.queue)
        return choice

    def _overriding(self, preemptor: Preemptor, delays_s: Sequence[float]) -> Preemptor:
        """Without the PodDisruptionBudgets that have delayed the gang for long enough; the same where there are none."""
        waited_s = self._session.now - preemptor.gang.created
        over = [each for each in delays_s if each <= waited_s]
        return replace(preemptor, overrides_s=over[-1]) if over else preemptor

    def _past_reservations(self, preemptor: Preemptor) -> VictimChoice | PreemptionBlock:
        """With reservations respected, if that leaves a choice; else on the places of soft ones, which are cancelled where it takes them."""
        choice = self.search.choose(preemptor)
        soft = self._reservations.soft(preemptor) if isinstance(choice, PreemptionBlock) else []
        attempt = (preemptor.kind, preemptor.signature, self.choices, len(self.tentative.units))
        if not soft or attempt in self._tried_soft:
            return choice
        self._tried_soft.add(attempt)
        for place in soft:
            place.later.lend()
        self._session.pipelined.note_more_free()
        self.search.forget()
        choice = self.search.choose(preemptor)
        taken = set() if isinstance(choice, PreemptionBlock) else {pick.device for pick in chargeable(choice.placed)}
        for place in soft:
            if taken and (
                place.preemptor.id == preemptor.id or any(pick.device in taken for pick in chargeable(place.placed))
            ):
                self._reservations.cancel(place)
            else:
                place.later.take()
        return choice

    def confirm(self, choice: VictimChoice) -> list[Eviction] | None:
        """Running victims are evicted; None, and no place for the gang yet, where others only have to be withdrawn first."""
        running = [unit for unit in choice.victims if unit.runs]
        made = evictions(choice.preemptor, running, self._session.candidates.protection)
        self.evictions += made
        for unit in running:
            self.policy.confirm(unit)
        self.choices += 1
        self._session.pipelined.note_more_free()
        if self.tentative.evict(choice.victims, self.policy):
            self._session.pipelined.statement.deallocate(choice.placed)
            return None
        return made

    def note(self, made: Sequence[Eviction]) -> None:
        """Decided beside `confirm`: moves, which are in force in the pipelined cluster."""
        self.evictions += made
        self.choices += 1
        self._session.pipelined.note_more_free()

    def look_again(self, blocked: Collection[PendingGang]) -> bool:
        """Before blocked gangs are looked at again: what was given since may be evicted. False: there is nothing to evict."""
        new = self.tentative.find(self._nominations.coming(), blocked)
        if new:
            self.tentative.insert(new)
            self._search = None
        if not self.possible:
            return False
        if self._search is not None:
            self._search.forget()
        else:  # the search, and the candidates, are built when victims have to be looked for
            self._session.note_protection()
        return True

    def withdrawn(self) -> list[str]:
        """Ids of gangs that are to be withdrawn, nominations being so already; the others are victims no more."""
        self._search = None
        self._blockers.clear()
        withdrawn = self.tentative.clear()
        for gang_id in withdrawn:
            if gang_id in self._nominations.by_gang:
                self._nominations.withdraw(gang_id)
        return withdrawn


class TentativeAdmissions:
    """Gangs of this decision's own making that a blocked gang may evict. Candidates only between `insert` and `clear`.

    Blocked gangs are looked at again with those among the candidates that were admitted, or nominated for what comes free,
    since: what the next decision would evict need not start. So deciding on the outcome of a decision changes nothing.
    """

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
