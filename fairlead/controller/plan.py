"""The one decision: which waiting gangs get which devices on which nodes now, who is evicted, and why the others wait.

Exists as the core's only door for the controller's loop: snapshot, decide, commit, report. Does no I/O and reads no clock.
What it remembers between calls (`placement_board`, `plan_memory`) saves time and changes no answer.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.controller import plan_memory
from fairlead.controller.allocator_requests import InvalidClaimError
from fairlead.controller.charges import add
from fairlead.controller.fairshare_tree import divide_tree
from fairlead.controller.model import DeviceRef, Eviction, Plan
from fairlead.controller.order import Entry, Order
from fairlead.controller.order_tree import Queue, limit_reason
from fairlead.controller.placement_board import Board
from fairlead.controller.plan_answers import admission, flavor_totals, queue_uses, waiting
from fairlead.controller.plan_blocked import Blocked, Stuck
from fairlead.controller.plan_gang import Places, behind, for_gang, gathering, invalid, shared
from fairlead.controller.plan_turns import beyond_share, promised_first, split
from fairlead.controller.reasons import Code, Reason
from fairlead.controller.reasons_explain import Explainer
from fairlead.controller.replace import Broken

if TYPE_CHECKING:
    from fairlead.controller.allocator_result import ShareIds
    from fairlead.controller.charges import Charge
    from fairlead.controller.inventory_device import Device
    from fairlead.controller.model import Admission, GangRequest, RunningGang, Snapshot
    from fairlead.controller.placement_model import Outcome, Placed
    from fairlead.controller.placement_shapes import Unit

_SHARES = uuid.UUID("5f0f4f3c-6f0e-4c0b-9a55-1b6f8f3c7a10")
ROUNDS_MAX = 4  # how often blocked gangs are looked at again because others made room


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
        self.share_ids = share_ids
        self.board = Board.of(snapshot)
        self.charges = self.board.charges
        self.tree = self.board.tree(snapshot.queues)
        self.totals = self.board.totals()
        self.tree.begin({} if self.tree.implicit else self.board.usable())
        self.places = Places(self.board, snapshot)
        self.units: dict[str, list[Unit]] = {}  # by gang id
        self.owners: dict[str, tuple[str, str]] = {}  # claim UID: gang, queue
        self.taken_by: dict[Device, tuple[str, str]] = {}
        self.given: dict[str, str] = {}  # key of each claim allocated by this decision: gang
        self.admissions: list[Admission] = []
        self.waiting: dict[str, tuple[GangRequest, str | None, int, Reason | Stuck]] = {}
        self.allocated: Charge = {}  # to gangs of any queue, or of none
        self.alike: dict[tuple[Queue, object], tuple[Entry, int]] = {}  # by kin: one of them, and how many wait
        self.stuck: dict[Queue, dict[object, Reason | Stuck]] = {}  # kin of which one waits, and why
        self.stuck_since = 0  # commits of `blocked` then
        self.position = 0
        running = self._charge_running()
        self.broken = Broken(snapshot.inventory, now)
        self.replaced = [self._of_queue(eviction) for eviction in self.broken.evictions(snapshot.running)]
        leaving = {pod.uid for eviction in self.replaced for pod in eviction.pods}
        self.blocked = Blocked(self.board, snapshot, self.places, now, running, leaving)

    def run(self) -> Plan:
        entries = self._entries()
        self._divide()
        self.blocked.start()
        first = promised_first(entries)
        for entry in first:
            self._decide(entry)
        passed = set(first)
        # First what every share allows, then what is left over: nothing is admitted that would be taken back at once.
        within, contending, beyond = split([entry for entry in entries if entry not in passed], self.blocked.keep_place)
        contending += self._in_turn(within, within_share=True)
        self._in_turn(contending, within_share=False)
        self._in_turn(beyond, within_share=False)
        self._again(entries)
        self.blocked.settle()
        self._divide()  # what was given may cost more than the least
        self._ask(servable=False)  # to be told
        return self._plan()

    def _in_turn(self, entries: list[Entry], *, within_share: bool) -> list[Entry]:
        """Decide on each in the order of the queues; those are returned undecided that are to stay within a share and do not."""
        beyond: list[Entry] = []
        order = Order(self.tree, entries, self.totals.devices)
        while (head := order.next()) is not None:
            strict = head.queue.spec.ordering == "StrictFIFO"
            if within_share and beyond_share(head):
                self.blocked.keep_place(head)
                beyond += (head, *order.settle(head, (head.kin,)))
                beyond += order.block(head.queue) if strict else ()
                continue
            stays = self._decide(head)
            for entry in order.settle(head, self.stuck.get(head.queue, ())):
                self.position += 1
                self._wait(entry.gang, entry.queue, self._like(entry))
            if stays and strict:
                for entry in order.block(head.queue):
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
        self._ask(servable=True)
        divide_tree(self.tree, self.tree.totals, k=self.snapshot.usage_weight)

    def _ask(self, *, servable: bool) -> None:
        """Count what so many like each of these want, if the cluster could ever run them, or if not."""
        for entry, count in self.alike.values():
            if count and self._servable(entry) is servable:
                for step in entry.queue.path():
                    add(step.demand, entry.charge, count)

    def _servable(self, entry: Entry) -> bool:
        """What this cluster could never run is no demand: it would only make shares idle."""
        return not entry.charge or self.places.ever(entry.gang, entry.units) is not False

    def _charge_running(self) -> list[tuple[RunningGang, Queue]]:
        """Charge the queues for what runs."""
        inventory, owners, free = self.snapshot.inventory, self.owners, not self.charges.flavors
        running: list[tuple[RunningGang, Queue]] = []
        for gang in self.snapshot.running:
            queue = self.tree.resolve(gang)
            owner = (gang.id, queue.name if isinstance(queue, Queue) else gang.queue or "")
            devices = 0
            total: Charge = {}
            for uid in gang.claims:
                claim = inventory.claim(uid)
                if claim is None or uid in owners:
                    continue
                owners[uid] = owner
                devices += claim.counted
                if not free:
                    charge = self.charges.of_held(claim, inventory)
                    if total:
                        total = dict(total)
                        add(total, charge)
                    else:
                        total = charge  # read only
            if total:
                add(self.allocated, total)
            if isinstance(queue, Queue):
                if total or devices:
                    queue.charge(total, devices)
                queue.admitted += 1
                running.append((gang, queue))
        return running

    def _of_queue(self, eviction: Eviction) -> Eviction:
        name = next((queue for gang, queue in self.owners.values() if gang == eviction.id), eviction.queue)
        return replace(eviction, queue=name)

    def _entries(self) -> list[Entry]:
        """The gangs that can be considered. What is known of one is kept for the next decision."""
        entries: list[Entry] = []
        known, self.board.entries = self.board.entries, {}
        for gang in self.snapshot.gangs:
            before = known.get(gang.uid)
            if before is not None and before[0].gang is gang and before[1] is self.tree and before[2] is self.charges:
                self.board.entries[gang.uid] = before
                entries.append(before[0])
                continue
            queue = self.tree.resolve(gang)
            if isinstance(queue, Reason):
                self._wait(gang, None, queue)
                continue
            present = len(gang.members) + len(gang.placed_nodes)
            if present < gang.size or not gang.members:
                self._wait(gang, queue, gathering(gang, present))
                continue
            try:
                units = self.board.shapes.units(gang)
            except InvalidClaimError as error:
                self._wait(gang, queue, invalid(error))
                continue
            entry = Entry(gang, queue, units, self.charges.least(units, self.board.sites), self.board.kinds)
            self.board.entries[gang.uid] = (entry, self.tree, self.charges)
            entries.append(entry)
        for entry in entries:
            self.units[entry.id] = entry.units
            first, count = self.alike.get((entry.queue, entry.kin), (entry, 0))
            self.alike[entry.queue, entry.kin] = (first, count + 1)
        return entries

    # --------------------------------------------------------------------------------------------------- one gang

    def _decide(self, entry: Entry) -> bool:
        """Admit the gang or have it wait, with its position; whether it stays."""
        self.position += 1
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

    def _like(self, entry: Entry) -> Reason | Stuck:
        """What was found for a gang of its kin, earlier in this decision: nothing has been given back since."""
        verdict = self.stuck[entry.queue][entry.kin]
        if self.given and (key := next((key for key in entry.keys if key in self.given), None)):
            return shared(entry.gang.claims[entry.keys.index(key)], self.given[key])
        if isinstance(verdict, Reason):
            return verdict
        return Stuck(for_gang(verdict.outcome, entry.units), verdict.barriers)

    def _consider(self, entry: Entry) -> Reason | Stuck | None:
        """Admit the gang (None), or say why not."""
        gang, queue = entry.gang, entry.queue
        for claim in gang.claims:
            if claim.key in self.given:
                return shared(claim, self.given[claim.key])
        why: Reason | Outcome
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
            return self._promised(entry, self.blocked.consider(entry, self.units[gang.id], why))
        except InvalidClaimError as error:
            return invalid(error)

    def _place(self, entry: Entry) -> Reason | Outcome | tuple[list[Placed], Charge]:
        units = self.units[entry.gang.id]
        found = self.places.within_limits(entry, units, self.blocked.over_limit)
        if isinstance(found, tuple):
            return found
        usable = self.blocked.backfill(entry)
        if not usable:
            return found
        known, self.places.failed = self.places.failed, {}
        for held in usable:
            held.let_go()
        again = self.places.within_limits(entry, units, self.blocked.over_limit)
        for held in usable:
            if not (isinstance(again, tuple) and self.blocked.landed(entry, held)):
                held.take()
        self.places.failed = known
        return again if isinstance(again, tuple) else found

    def _promised(self, entry: Entry, verdict: Reason | Stuck) -> Reason | Stuck:
        """Claims of a gang that is promised devices are not given to others with whom it shares them."""
        if self.blocked.last_promised == entry.gang.id:
            for claim in entry.gang.claims:
                if claim.allocation is None:
                    self.given[claim.key] = entry.gang.id
        return verdict

    def _again(self, entries: list[Entry]) -> None:
        """What victims left over, or what queues hold since, may serve gangs that were blocked before."""
        seen = (0, 0)
        for _ in range(ROUNDS_MAX):
            now = (self.blocked.commits, len(self.admissions))
            if now == seen or not self.blocked.running:
                return
            seen = now
            self.blocked.victims.again()
            for entry in sorted(entries, key=lambda entry: entry.rank):
                known = self.waiting.get(entry.id)
                if known is None or not isinstance(known[3], Stuck) or known[3].reserved is not None:
                    continue
                verdict = self.blocked.consider(entry, self.units[entry.id], known[3].outcome, again=True)
                self.waiting[entry.id] = (*known[:3], self._promised(entry, verdict))

    def _admit(self, entry: Entry, placed: list[Placed], charge: Charge) -> None:
        gang, queue = entry.gang, entry.queue
        devices = 0
        for unit in placed:
            for picks in unit.picks:
                for pick in picks:
                    if not pick.ask.admin:
                        devices += 1
                        self.taken_by[pick.device] = (gang.id, queue.name)
        for claim in gang.claims:
            if claim.allocation is None:
                self.given[claim.key] = gang.id
        first, count = self.alike[queue, entry.kin]
        self.alike[queue, entry.kin] = (first, count - 1)
        add(self.allocated, charge)
        queue.charge(charge, devices)
        queue.admitted += 1
        self.blocked.note_admitted(placed)
        self.admissions.append(admission(gang, queue.name, placed, self.snapshot.classes, self.share_ids))

    def _wait(self, gang: GangRequest, queue: Queue | None, why: Reason | Stuck) -> None:
        if queue is not None:
            queue.waiting += 1
        self.waiting[gang.id] = (gang, None if queue is None else queue.name, self.position, why)

    # ---------------------------------------------------------------------------------------------------- after

    def _plan(self) -> Plan:
        held = {device: who for device, who in self.blocked.taken_by.items() if device not in self.taken_by}
        explainer = Explainer(self.board.sites, self.board.placer.ledger, self.owners, self.taken_by, held)

        def explain(gang: GangRequest, stuck: Stuck) -> Reason:
            units = self.units[gang.id]
            return explainer.explain(
                gang, units, stuck.outcome, self.places.ever(gang, units), stuck.barriers, stuck.reserved
            )

        return Plan(
            admissions=tuple(self.admissions),
            waiting=waiting(self.waiting.values(), explain, self.position),
            evictions=(*self.replaced, *self.blocked.evictions),
            reservations=tuple(self.blocked.reservations),
            queues=queue_uses(self.tree),
            flavors=flavor_totals(self.charges.flavors, self.board.totals(), self.allocated),
            problems=tuple(self.tree.problems + self.charges.problems + self.board.totals().problems),
        )


def _lasting(verdict: Reason | Stuck) -> bool:
    """Whether the same holds for the next gang of the same kin: not where this one was promised something."""
    if isinstance(verdict, Stuck):
        return verdict.reserved is None
    return verdict.code is Code.OVER_LIMIT
