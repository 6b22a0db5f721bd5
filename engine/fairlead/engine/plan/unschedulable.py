"""A gang that finds no place now: will it find one later, may others be evicted for it, is anything kept for it?

Exists so that the decision's loop only asks once per blocked gang. In this order: devices that are coming free anyway;
victims (`victims_search`); a reservation (`reserve`). Whatever a gang is promised is held in both ledgers and charged to its
queue, so that no later gang of the decision starts on it and nobody is evicted twice for the same.
A gang for which others were evicted before evicts nobody more while anything is still leaving: a decision on its own outcome
changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairlead.engine.allocator.model import SearchStatus
from fairlead.engine.placement.model import PlacementResult
from fairlead.engine.placement.shapes import signature
from fairlead.engine.plan.nominations import Nominations
from fairlead.engine.plan.rollback import Rollback
from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.reclaim.candidates import VictimCandidates
from fairlead.engine.reclaim.evictions import evictions, making_room
from fairlead.engine.reclaim.reclaim import Preemptor, Rules, over_share_blocker
from fairlead.engine.reclaim.releasing import PipelinedCluster, devices_of
from fairlead.engine.reclaim.reservation import Held, Reserver
from fairlead.engine.reclaim.search import VictimSearch
from fairlead.engine.types.reasons import Code, PreemptionBlock, PreemptionBlocker, Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.plan.gang import Places
    from fairlead.engine.plan.statement import Statement
    from fairlead.engine.queues.assumed import AssumedGang
    from fairlead.engine.queues.cache import SchedulerCache
    from fairlead.engine.queues.order import PendingGang
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.search import VictimChoice
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.amounts import Amount
    from fairlead.engine.types.gangs import RunningGang
    from fairlead.engine.types.plan import Eviction, Reservation


@dataclass(slots=True)
class Unschedulable:
    """A gang that stays, with what is known of why: told in full when the decision is over."""

    outcome: PlacementResult
    blockers: tuple[PreemptionBlocker, ...] = ()
    reserved: Reservation | None = None


@dataclass(slots=True)
class Blocked:
    """Those of one decision. `running` with their queues; `leaving`: UIDs of pods that go for another reason."""

    board: SchedulerCache
    snapshot: Snapshot
    places: Places
    now: float
    running: Sequence[tuple[RunningGang, Queue]]
    leaving: set[str]
    given: Statement
    gone: dict[Queue, Charge] = field(default_factory=dict)  # held now by pods that leave
    evictions: list[Eviction] = field(default_factory=list)
    due: list[float] = field(default_factory=list)  # times at which an answer may change
    commits: int = 0
    line: dict[str, int] = field(default_factory=dict)  # gang id: when it was its turn first
    _least: dict[Queue, tuple[int, int]] | None = None  # queue: least priority that runs there, and how many gangs
    _later: PipelinedCluster | None = None
    _crowd: VictimCandidates | None = None
    _rules: Rules | None = None
    _victims: VictimSearch | None = None
    _reserver: Reserver | None = None
    _blockers: dict[object, tuple[PreemptionBlocker, ...]] = field(default_factory=dict)
    _mirrored: dict[str, list[UnitPlacement]] = field(
        default_factory=dict
    )  # gang id: what it holds of the later ledger
    promises: Nominations = field(init=False)
    back: Rollback = field(init=False)
    _tried: set[object] = field(default_factory=set)  # for whom weak reservations stood aside, to no avail

    def __post_init__(self) -> None:
        self.promises = Nominations(self.board)
        self.back = Rollback(self.now)

    def start(self) -> None:
        """Before anybody is considered: what leaves counts as gone for shares and order."""
        for gang, _ in self.running:
            for member in gang.members:
                if member.leaving or (self.leaving and member.pod.uid in self.leaving):
                    self.later.leaves(self.running, self.leaving)
                    return

    @property
    def later(self) -> PipelinedCluster:
        if self._later is None:
            self._later = PipelinedCluster(self.board, self.snapshot, self.gone)
            for landed in self.given.landed.values():
                self._mirrored[landed.entry.id] = self._later.mirror(landed.placed)
        return self._later

    @property
    def crowd(self) -> VictimCandidates:
        if self._crowd is None:
            self._crowd = VictimCandidates(self.snapshot.inventory, self.board.charges, self.now)
            for gang, queue in self.running:
                self._crowd.enter(gang, queue, self.leaving)
            self._crowd.sort()
            self.due += [until for until in self._crowd.protected.values() if until > self.now]
        return self._crowd

    @property
    def rules(self) -> Rules:
        if self._rules is None:
            self._rules = Rules(self.crowd, self.snapshot.budgets)
        return self._rules

    @property
    def victims(self) -> VictimSearch:
        if self._victims is None:
            self._victims = VictimSearch(self.later, self.rules)
        return self._victims

    @property
    def reserver(self) -> Reserver:
        if self._reserver is None:
            self._reserver = Reserver(self.later, self.crowd, self.now)
        return self._reserver

    # ---------------------------------------------------------------------------------------------------- now

    def over_limit(self, queue: Queue, charge: Mapping[str, Amount]) -> list[tuple[Queue, str]]:
        """Limits that would break while those that leave still hold what they have."""
        if not self.gone:
            return queue.over_limit(charge)
        steps = list(self.gone if queue.tree.lending_limited else queue.path())  # what is lent counts what all hold
        for step in steps:
            add(step.used, self.gone.get(step, {}))
        broken = queue.over_limit(charge)
        for step in steps:
            add(step.used, self.gone.get(step, {}), -1)
        return broken

    def note_admitted(self, landed: AssumedGang) -> None:
        if self._later is not None:
            self._mirrored[landed.entry.id] = self._later.mirror(landed.placed)

    def backfill(self, entry: PendingGang) -> list[Held]:
        """Reservations that this gang may use meanwhile: it ends before they are ready. Let go; take again afterwards."""
        kept = self.promises.kept
        own = [kept[entry.id][0]] if entry.id in kept else []
        if self._reserver is None or entry.gang.run_s is None:
            return own
        return [*own, *(held for held in self._reserver.usable(self.now + entry.gang.run_s) if held not in own)]

    def keep_place(self, entry: PendingGang) -> None:
        """For a gang that waits for its own queue's gangs to end, before others of the queue take what they leave."""
        if not self.running or entry.gang.created + self.snapshot.reserve_after_s > self.now:
            return
        wish = self._wish(entry)
        outcome = self.places.place(entry.gang, entry.units, spread=wish.spread)
        if outcome.status is SearchStatus.FOUND:
            self.board.placer.undo(outcome.placed)
        elif self.places.ever(entry.gang, entry.units):
            self._reserve(entry, wish)

    # --------------------------------------------------------------------------------------------------- later

    def consider(
        self, entry: PendingGang, why: Reason | PlacementResult, *, again: bool = False
    ) -> Reason | Unschedulable | None:
        """What becomes of a gang that cannot start now. `again`: it was blocked before, and more has come free since.

        None: it takes back from gangs of this decision; see `give_back`, and decide on it anew.
        """
        limited = isinstance(why, Reason)
        if isinstance(why, Reason) and (why.code is not Code.OVER_LIMIT or why.could_ever_fit is False):
            return why
        gang, queue, units = entry.gang, entry.queue, entry.units
        wish = self._wish(entry)
        spread = wish.spread
        if not self.running and not self.back.fresh:
            over = over_share_blocker(wish)
            return why if isinstance(why, Reason) else Unschedulable(why, () if over is None else (over,))
        if self._later is not None and self._later.version and not queue.over_limit(entry.charge):
            outcome = self.later.place(gang, units, wish.signature, spread=spread)
            if outcome.status is SearchStatus.FOUND:
                charge = self.board.charges.of_placed(outcome.placed)
                if not queue.over_limit(charge):
                    reserved = self.promises.promise(entry, outcome.placed, evicted=gang.preemptor)
                    return _coming(wish, reserved)
                self.later.placer.undo(outcome.placed)
        if self.places.ever(gang, units) is False:
            return why if isinstance(why, Reason) else Unschedulable(why)
        blockers: tuple[PreemptionBlocker, ...] = ()
        if gang.preemptor and self._later is not None and self._later.leaving:
            blockers = (PreemptionBlocker(block=PreemptionBlock.LEAVING, queue=queue.name),)
        elif not self.back.fresh and (equals := self._only_equals(wish)) is not None:
            blockers = equals
        else:
            choice = self._choose(wish)
            if not isinstance(choice, PreemptionBlock):
                return self._make_room(entry, wish, choice)
            blockers = () if limited else self._blockers_of(wish, choice)
        if again:
            kept = self.promises.kept.get(entry.id)
            reserved_ = None if kept is None else kept[1]
        else:
            reserved_ = None if limited else self._reserve(entry, wish)
        if isinstance(why, Reason):
            return why
        return Unschedulable(why, blockers, reserved_)

    def _choose(self, wish: Preemptor) -> VictimChoice | PreemptionBlock:
        """VictimSearch; weak reservations stand aside where they are in the way.

        Nobody is evicted because his queue has been promised what comes free: that promise would be taken back first.
        """
        if not self.back.fresh:
            self.promises.count_coming(wish.queue, -1)
        choice = self._choose_past_weak(wish)
        if not self.back.fresh:
            self.promises.count_coming(wish.queue)
        return choice

    def _choose_past_weak(self, wish: Preemptor) -> VictimChoice | PreemptionBlock:
        choice = self.victims.choose(wish)
        weak = self.promises.weak(wish) if isinstance(choice, PreemptionBlock) else []
        tried = (wish.kind, wish.signature, self.commits, len(self.back.fresh))
        if not weak or tried in self._tried:
            return choice
        self._tried.add(tried)
        for held in weak:
            held.stand_aside(self.later)
        self.later.version += 1
        self.victims.again()
        choice = self.victims.choose(wish)
        taken = set() if isinstance(choice, PreemptionBlock) else devices_of(choice.placed)
        for held in weak:
            if taken and (held.wish.id == wish.id or taken & devices_of(held.placed)):
                self.promises.cancel(held, self.reserver)
            else:
                held.come_back(self.later)
        return choice

    def _make_room(self, entry: PendingGang, wish: Preemptor, choice: VictimChoice) -> Reason | None:
        """Who runs, is evicted; who only was about to, need not start."""
        gone = [piece for piece in choice.pieces if piece.runs]
        made = evictions(wish, gone)
        self.evictions += made
        for piece in gone:
            self.rules.settle(piece)
        self.commits += 1
        self.later.version += 1
        void = self.back.take(choice.pieces, self.crowd, self.rules)
        if void:
            for gang_id in void:
                self._mirrored.pop(gang_id, None)
            self.later.placer.undo(choice.placed)
            return None
        self.promises.promise(entry, choice.placed, evicted=True)
        return making_room(wish, made)

    def again(self, stuck: Collection[PendingGang]) -> bool:
        """Before gangs are looked at that were blocked: who has landed since may have to give back. False: nobody gives."""
        new = self.back.new(self.given.landed.values(), self.promises.coming(), stuck, self.line)
        if new:
            assert self.later
            self.back.join(self.crowd, new, self._mirrored, self.line)
            self._victims = None
        if self.running or self.back.fresh:
            self.victims.again()
            return True
        return False

    def give_back(self) -> list[str]:
        """Ids of gangs whose admission or promise is void; those that remain are nobody's victims until `again`."""
        self._victims = None
        self._blockers.clear()
        void = self.back.part(self.crowd)
        for gang_id in void:
            if gang_id in self.promises.promised:
                self.promises.withdraw(gang_id)
        return void

    def _wish(self, entry: PendingGang) -> Preemptor:
        spread = entry.queue.spec.strategy == "spread"
        looks = signature(entry.gang, entry.units, spread=spread)
        turn = self.line.get(entry.id, 0) if self.back.coming else 0
        return Preemptor(entry.gang, entry.queue, entry.units, entry.charge, spread, looks, entry.id, turn)

    def _only_equals(self, wish: Preemptor) -> tuple[PreemptionBlocker, ...] | None:
        """Where only its own queue runs, or flavors say nothing: that all of it is as important. None where one must look.

        Asked before anything is worked out about who runs: so saying no costs little.
        """
        if self._least is None:
            self._least = {}
            for gang, queue in self.running:
                least, count = self._least.get(queue, (gang.priority, 0))
                self._least[queue] = (min(least, gang.priority), count + 1)
        queue = wish.queue
        if wish.charge and any(other is not queue for other in self._least):
            return None
        least, count = self._least.get(queue, (wish.gang.priority, 0))
        never = queue.spec.preemption == "Never"
        if least < wish.gang.priority and not never:
            return None
        bar = PreemptionBlock.POLICY if never and least < wish.gang.priority else PreemptionBlock.PRIORITY
        over = over_share_blocker(wish)
        first = () if over is None else (over,)
        return (
            (*first, PreemptionBlocker(block=bar, queue=queue.name, gangs=count, devices=queue.devices))
            if count
            else first
        )

    def _blockers_of(self, wish: Preemptor, bar: PreemptionBlock) -> tuple[PreemptionBlocker, ...]:
        known = self._blockers.get(wish.kind)
        if known is None:
            known = self._blockers[wish.kind] = self.rules.blockers(wish)
        return (PreemptionBlocker(block=bar, queue=wish.queue.name), *known) if bar is PreemptionBlock.STEPS else known

    def settle(self) -> None:
        """The decision is made: queues hold what they hold now, with what leaves and without what is promised."""
        self.promises.settle()
        for queue, charge in self.gone.items():
            add(queue.used, charge)

    def _reserve(self, entry: PendingGang, wish: Preemptor) -> Reservation | None:
        """For a gang that has waited long enough, if its queue has none yet."""
        if entry.id in self.promises.kept:
            return self.promises.kept[entry.id][1]
        since = wish.gang.created + self.snapshot.reserve_after_s
        if since > self.now:
            self.due.append(since)
            return None
        held = self.reserver.reserve(wish, self.board.placer.ledger)
        return None if held is None else self.promises.keep(entry, held)


def _coming(wish: Preemptor, reserved: Reservation) -> Reason:
    where = ", ".join(reserved.nodes[:3]) + (f" and {len(reserved.nodes) - 3} more" if len(reserved.nodes) > 3 else "")
    evicted = wish.gang.preemptor
    return Reason(
        code=Code.MAKING_ROOM if evicted else Code.COMING_FREE,
        message=f"{'pods that were evicted for it' if evicted else 'pods that are leaving'} still hold devices on {where}; "
        "it fits as soon as they are gone, and what they give back is held for it",
        advice="wait until they have ended: their grace periods bound that",
        could_ever_fit=True,
    )
