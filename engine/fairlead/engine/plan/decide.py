"""The one decision: which waiting gangs get which devices on which nodes now, who is evicted, and why the others wait.

Exists as the core's only door for the controller's loop: snapshot, decide, commit, report. Does no I/O and reads no clock.
What it remembers between calls (`placement_board`, `plan_memory`) saves time and changes no answer.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.explain.explainer import Explainer
from fairlead.engine.plan import memo as plan_memory
from fairlead.engine.plan.answers import flavor_totals, queue_uses, waiting
from fairlead.engine.plan.gang import Places, behind, for_gang, invalid, shared
from fairlead.engine.plan.pending import PendingGangs, RunningGangs
from fairlead.engine.plan.statement import Statement
from fairlead.engine.plan.turns import may_contend, promised_first, split
from fairlead.engine.plan.unschedulable import Blocked, Unschedulable
from fairlead.engine.queues.cache import SchedulerCache
from fairlead.engine.queues.charges import add
from fairlead.engine.queues.order import Order
from fairlead.engine.queues.tree import limit_reason
from fairlead.engine.queues.tree_shares import divide_tree
from fairlead.engine.reclaim.reclaim import beyond_share
from fairlead.engine.reclaim.replace import BrokenDevices
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.references import DeviceRef

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from fairlead.engine.allocator.result import ShareIds
    from fairlead.engine.placement.model import PlacementResult, UnitPlacement
    from fairlead.engine.queues.charges import Charge
    from fairlead.engine.queues.order import PendingGang
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.gangs import GangRequest

_SHARES = uuid.UUID("5f0f4f3c-6f0e-4c0b-9a55-1b6f8f3c7a10")
ROUNDS_MAX = 16  # how often blocked gangs are looked at again because others made room


def derived_share_id(claim: str, request: str, device: DeviceRef) -> str:
    """A UUID that is the same for the same claim, request and device, and different for any other."""
    return str(uuid.uuid5(_SHARES, f"{claim}|{request}|{device}"))


def decide(snapshot: Snapshot, now: float, *, share_ids: ShareIds = derived_share_id) -> Plan:
    """Admit what fits, in the order of the queues; evict where a queue may take back what is its own; explain the rest.

    `now` is unix seconds: min-runtime, promised ends and the age at which a reservation is due depend on it. Every gang of
    `snapshot.gangs` is in exactly one of `Plan.admissions` and `Plan.waiting`. The tables of the snapshot are left as they
    were: the rim notes what it wrote (`inventory.set_claim`, `nodes.set_pod`) before it decides again, else the same devices
    are given twice. Deciding again on the outcome (evicted pods leaving, their beneficiaries `preemptor`) changes nothing,
    but for a gang that waited for a claim which another gang of this plan shares with it. Raises nothing for bad user
    input: that is a Waiting with `Code.INVALID`. `share_ids` gives the UUID of a share of a shared device, by claim key,
    request and device.
    """
    known = plan_memory.recall(snapshot, now, share_ids)
    if known is not None:
        return known
    decision = _Decision(snapshot, now, share_ids)
    plan = replace(decision.run(), due=decision.due())
    plan_memory.remember(snapshot, now, share_ids, plan)
    return plan


class _Decision:
    def __init__(self, snapshot: Snapshot, now: float, share_ids: ShareIds) -> None:
        self.snapshot = snapshot
        self.board = SchedulerCache.of(snapshot)
        self.charges = self.board.charges
        self.tree = self.board.tree(snapshot.queues)
        self.totals = self.board.totals()
        self.tree.begin({} if self.tree.implicit else self.board.usable())
        self.places = Places(self.board, snapshot)
        self.given = Statement(self.board, snapshot, share_ids)
        self.waiting: dict[str, tuple[GangRequest, str | None, int, Reason | Unschedulable]] = {}
        self.stuck: dict[Queue, dict[object, Reason | Unschedulable]] = {}  # kin of which one waits, and why
        self.stuck_since = 0  # commits of `blocked` then
        self.position = 0
        self.running = RunningGangs(snapshot, self.board, self.tree)
        self.asking = PendingGangs(snapshot, self.board, self.tree)
        self.broken = BrokenDevices(snapshot.inventory, now)
        self.replaced = [self.running.with_queue(each) for each in self.broken.evictions(snapshot.running)]
        leaving = {pod.uid for eviction in self.replaced for pod in eviction.pods}
        self.blocked = Blocked(self.board, snapshot, self.places, now, self.running.gangs, leaving, self.given)

    def run(self) -> Plan:
        entries = self.asking.entries
        for refused in self.asking.refused:
            self._wait(*refused)
        self._divide()
        self.blocked.start()
        first = promised_first(entries)
        passed: set[PendingGang] = set()
        for entry in first:
            if entry.gang.preemptor or beyond_share(entry.queue, entry.charge) is None:
                self._decide(entry)
                passed.add(entry)
        # First what every share allows, then what is left over: nothing is admitted that would be taken back at once.
        within, contending, beyond = split([entry for entry in entries if entry not in passed], self.blocked.keep_place)
        contending += self._in_turn(within, within_share=True)
        self._in_turn(contending, within_share=False)
        self._in_turn(beyond, within_share=False)
        self._again(entries)
        self.blocked.settle()
        self._divide()  # what was given may cost more than the least
        self.asking.demand(lambda entry: not self._servable(entry))  # to be told
        return self._plan()

    def _in_turn(self, entries: list[PendingGang], *, within_share: bool) -> list[PendingGang]:
        """Decide on each in the order of the queues; those are returned undecided that are to stay within a share and do not."""
        beyond: list[PendingGang] = []
        floor: dict[Queue, int] = {}  # what is less important than this waits for a gang that could preempt it
        order = Order(self.tree, entries, self.totals.devices)
        while (head := order.next()) is not None:
            queue = head.queue
            strict = queue.spec.ordering == "StrictFIFO"
            over = within_share and beyond_share(queue, head.charge) is not None
            if over or head.gang.priority < floor.get(queue, head.gang.priority):
                if over and may_contend(head):
                    floor.setdefault(queue, head.gang.priority)
                self.blocked.keep_place(head)
                beyond += (head, *order.settle(head, (head.kin,)))
                beyond += order.block(queue) if strict else ()
                continue
            stays = self._decide(head)
            for entry in order.settle(head, self.stuck.get(queue, ())):
                self.position += 1
                self._wait(entry.gang, entry.queue, self._like(entry))
            if stays and strict:
                for entry in order.block(queue):
                    self.position += 1
                    self._wait(entry.gang, entry.queue, behind(head, entry.queue))
        return beyond

    def due(self) -> float | None:
        """When the answer may change though nothing else does."""
        times = [*self.blocked.due, *(() if self.broken.due is None else (self.broken.due,))]
        return min(times, default=None)

    # --------------------------------------------------------------------------------------------------- before

    def _divide(self) -> None:
        """Fair shares for what runs and what those who wait ask for at least."""
        for queue in self.tree.queues.values():
            queue.demand = dict(queue.used)
        self.asking.demand(self._servable)
        divide_tree(self.tree, self.tree.totals, k=self.snapshot.usage_weight)

    def _servable(self, entry: PendingGang) -> bool:
        """What this cluster could never run is no demand: it would only make shares idle."""
        return not entry.charge or self.places.ever(entry.gang, entry.units) is not False

    # --------------------------------------------------------------------------------------------------- one gang

    def _decide(self, entry: PendingGang) -> bool:
        """Admit the gang or have it wait, with its position; whether it stays."""
        self.position += 1
        self.blocked.line.setdefault(entry.id, self.position)
        verdict = self._consider(entry)
        if verdict is None:
            return False
        self._wait(entry.gang, entry.queue, verdict)
        if self.blocked.commits != self.stuck_since:
            self.stuck.clear()
            self.stuck_since = self.blocked.commits
        elif _lasting(verdict) and not entry.shares:
            self.stuck.setdefault(entry.queue, {})[entry.kin] = verdict
        return True

    def _like(self, entry: PendingGang) -> Reason | Unschedulable:
        """What was found for a gang of its kin, earlier in this decision: nothing has been given back since."""
        verdict = self.stuck[entry.queue][entry.kin]
        given = self.given.claims
        if given and (key := next((key for key in entry.keys if key in given), None)):
            return shared(entry.gang.claims[entry.keys.index(key)], given[key])
        if isinstance(verdict, Reason):
            return verdict
        return Unschedulable(for_gang(verdict.outcome, entry.units), verdict.blockers)

    def _consider(self, entry: PendingGang) -> Reason | Unschedulable | None:
        """Admit the gang (None), or say why not."""
        gang, queue = entry.gang, entry.queue
        for claim in gang.claims:
            if claim.key in self.given.claims:
                return shared(claim, self.given.claims[claim.key])
        why: Reason | PlacementResult
        try:
            broken = self.blocked.over_limit(queue, entry.charge)
            if broken:
                why = limit_reason(*broken[0], entry.charge[broken[0][1]])
            else:
                found = self._place(entry)
                if isinstance(found, tuple):
                    self._admit(entry, *found)
                    return None
                why = found
            verdict = self.blocked.consider(entry, why)
            assert verdict is not None, "only `again` takes back"
            return self._promised(entry, verdict)
        except InvalidClaimError as error:
            return invalid(error)

    def _place(self, entry: PendingGang) -> Reason | PlacementResult | tuple[list[UnitPlacement], Charge]:
        found = self.places.within_limits(entry, self.blocked.over_limit)
        if isinstance(found, tuple):
            return found
        usable = self.blocked.backfill(entry)
        if not usable:
            return found
        known, self.places.failed = self.places.failed, {}
        for held in usable:
            held.let_go()
        again = self.places.within_limits(entry, self.blocked.over_limit)
        for held in usable:
            if not (isinstance(again, tuple) and self.blocked.promises.needless(entry.id, held)):
                held.take()
        self.places.failed = known
        return again if isinstance(again, tuple) else found

    def _promised(self, entry: PendingGang, verdict: Reason | Unschedulable) -> Reason | Unschedulable:
        """Claims of a gang that is promised devices are not given to others with whom it shares them."""
        if self.blocked.promises.last == entry.id:
            self.given.keep_claims(entry)
        return verdict

    def _again(self, entries: list[PendingGang]) -> None:
        """What victims left over, or what queues hold since, may serve gangs that were blocked before; and who is owed what
        this decision gave to others, takes it back before anybody is told.
        """
        ranked = sorted(entries, key=lambda entry: entry.rank)
        seen = (0, 0)
        for _ in range(ROUNDS_MAX):
            now = (self.blocked.commits, self.given.times)
            if now == seen:
                return
            seen = now
            stuck: dict[object, PendingGang] = {}  # one of each kin
            for entry in ranked:
                if entry.kin not in stuck and self._stuck(entry) is not None:
                    stuck[entry.kin] = entry
            if not self.blocked.again(stuck.values()):
                return
            owed = self._look_again(ranked, stuck)
            if owed is not None:
                self._take_back(owed, ranked)

    def _look_again(self, ranked: Sequence[PendingGang], stuck: Container[object]) -> PendingGang | None:
        """At those of the kin that is stuck; returns the first for whom others give back, if there is one."""
        hopeless: set[object] = set()  # kin of which one stays stuck: nothing has been given back since
        commits = self.blocked.commits
        for entry in ranked:
            if entry.kin not in stuck or entry.kin in hopeless:
                continue
            known = self._stuck(entry)
            if known is None:
                continue
            verdict = self.blocked.consider(entry, known, again=True)
            if verdict is None:
                return entry
            position = self.waiting[entry.id][2]
            self.waiting[entry.id] = (entry.gang, entry.queue.name, position, self._promised(entry, verdict))
            if self.blocked.commits != commits:
                hopeless.clear()
                commits = self.blocked.commits
            elif _lasting(verdict) and not entry.shares:
                hopeless.add(entry.kin)
        return None

    def _stuck(self, entry: PendingGang) -> Reason | PlacementResult | None:
        """Why it waits, where others could still make room for it."""
        known = self.waiting.get(entry.id)
        why = None if known is None else known[3]
        if isinstance(why, Unschedulable):
            return why.outcome
        return why if why is not None and why.code is Code.OVER_LIMIT else None

    def _take_back(self, owed: PendingGang, entries: list[PendingGang]) -> None:
        """Those give back who stand in the gang's way and have not started; it comes first, then all who wait, in turn."""
        for gang_id in self.blocked.give_back():
            landed = self.given.withdraw(gang_id)
            if landed is not None:
                self.asking.count(landed.entry)
        self.places.failed.clear()
        self.stuck.clear()
        waiting = [entry for entry in entries if entry.id not in self.given.landed]
        promised = {entry.queue: entry for entry in waiting if entry.id in self.blocked.promises.promised}
        again = [entry for entry in waiting if entry.id not in self.blocked.promises.promised]
        for entry in again:
            if self.waiting.pop(entry.id, None) is not None:
                entry.queue.waiting -= 1
        self._decide(owed)
        free: list[PendingGang] = []
        for entry in again:
            head = promised.get(entry.queue)
            if entry is owed:
                continue
            if head is not None and entry.queue.spec.ordering == "StrictFIFO":
                self._wait(entry.gang, entry.queue, behind(head, entry.queue))
            else:
                free.append(entry)
        self._in_turn(self._in_turn(free, within_share=True), within_share=False)

    def _admit(self, entry: PendingGang, placed: list[UnitPlacement], charge: Charge) -> None:
        self.asking.count(entry, -1)
        self.blocked.note_admitted(self.given.admit(entry, placed, charge))

    def _wait(self, gang: GangRequest, queue: Queue | None, why: Reason | Unschedulable) -> None:
        if queue is not None:
            queue.waiting += 1
        position = self.blocked.line.setdefault(gang.id, self.position)
        self.waiting[gang.id] = (gang, None if queue is None else queue.name, position, why)

    # ---------------------------------------------------------------------------------------------------- after

    def _plan(self) -> Plan:
        taken_by = self.given.taken_by
        held = {device: who for device, who in self.blocked.promises.taken_by.items() if device not in taken_by}
        explainer = Explainer(self.board.node_snapshot, self.board.placer.ledger, self.running.owners, taken_by, held)
        allocated = self.given.charge()
        add(allocated, self.running.allocated)

        reservations = self.blocked.promises.reservations
        standing = {id(each) for each in reservations}  # one may have been cancelled since

        def explain(gang: GangRequest, stuck: Unschedulable) -> Reason:
            units = self.asking.by_id[gang.id].units
            reserved = stuck.reserved if id(stuck.reserved) in standing else None
            return explainer.explain(
                gang, units, stuck.outcome, self.places.ever(gang, units), stuck.blockers, reserved
            )

        return Plan(
            admissions=self.given.admissions(),
            waiting=waiting(self.waiting.values(), explain, self.position),
            evictions=(*self.replaced, *self.blocked.evictions),
            reservations=tuple(reservations),
            queues=queue_uses(self.tree),
            flavors=flavor_totals(self.charges.flavors, self.board.totals(), allocated),
            problems=tuple(self.tree.problems + self.charges.problems + self.board.totals().problems),
        )


def _lasting(verdict: Reason | Unschedulable) -> bool:
    """Whether the same holds for the next gang of the same kin: not where this one was promised something."""
    if isinstance(verdict, Unschedulable):
        return verdict.reserved is None
    return verdict.code is Code.OVER_LIMIT
