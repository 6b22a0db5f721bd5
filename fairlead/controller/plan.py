"""The one decision: which waiting gangs get which devices on which nodes now, and why the others wait.

Exists as the core's only door for the controller's loop: snapshot, decide, commit, report. Does no I/O and reads no clock.
What it remembers between calls (`placement_board`) saves time and changes no answer.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from fairlead.controller.allocator_model import Budget, Verdict
from fairlead.controller.allocator_requests import InvalidClaimError
from fairlead.controller.charges import Charge, add
from fairlead.controller.fairshare_tree import divide_tree
from fairlead.controller.model import DeviceRef, GangRequest, Plan, Snapshot, Waiting
from fairlead.controller.order import Entry, Order
from fairlead.controller.order_tree import Queue, limit_reason
from fairlead.controller.placement_board import Board
from fairlead.controller.placement_model import Outcome, Placed
from fairlead.controller.placement_shapes import Unit
from fairlead.controller.plan_answers import admission, queue_uses
from fairlead.controller.reasons import Code, Reason
from fairlead.controller.reasons_explain import Explainer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairlead.controller.allocator_result import ShareIds
    from fairlead.controller.inventory_device import Device
    from fairlead.controller.model import Admission, Amount, ClaimRequest

_NOTHING: Mapping[str, Amount] = MappingProxyType({})
_SHARES = uuid.UUID("5f0f4f3c-6f0e-4c0b-9a55-1b6f8f3c7a10")


def derived_share_id(claim: str, request: str, device: DeviceRef) -> str:
    """A UUID that is the same for the same claim, request and device, and different for any other."""
    return str(uuid.uuid5(_SHARES, f"{claim}|{request}|{device}"))


def decide(snapshot: Snapshot, now: float, *, share_ids: ShareIds = derived_share_id) -> Plan:
    """Admit what fits, in the order of the queues; explain the rest.

    `now` is unix seconds, used for ages only. Every gang of `snapshot.gangs` is in exactly one of `Plan.admissions` and
    `Plan.waiting`. The tables of the snapshot are left as they were: the rim notes what it wrote (`inventory.set_claim`,
    `nodes.set_pod`) before it decides again, else the same devices are given twice.
    Deciding again on the outcome admits nothing new, but for a gang that waited for a claim which another gang of this plan
    shares with it. Raises nothing for bad user input: that is a Waiting with
    `Code.INVALID`. `share_ids` gives the UUID of a share of a shared device, by claim key, request and device.
    """
    return _Decision(snapshot, share_ids).run()


class _Decision:
    def __init__(self, snapshot: Snapshot, share_ids: ShareIds) -> None:
        self.snapshot = snapshot
        self.share_ids = share_ids
        self.board = Board.of(snapshot)
        self.shapes = self.board.shapes
        self.sites = self.board.sites
        self.placer = self.board.placer
        self.ledger = self.placer.ledger
        self.domains = self.board.domains
        self.charges = self.board.charges
        self.tree = self.board.tree(snapshot.queues)
        self.units: dict[str, list[Unit]] = {}  # by gang id
        self.failed: dict[object, Outcome] = {}
        self.taken_by: dict[Device, tuple[str, str]] = {}
        self.given: dict[str, str] = {}  # key of each claim allocated by this decision: gang
        self.admissions: list[Admission] = []
        self.waiting: list[tuple[GangRequest, str | None, int, Reason | Outcome]] = []
        self.unmet: list[tuple[Queue, Mapping[str, Amount]]] = []  # what each gang that waits costs at least
        self.position = 0

    def run(self) -> Plan:
        totals, devices = self._totals()
        self.tree.begin(totals)
        owners = self._charge_running()
        entries = self._entries()
        self._divide([(entry.queue, entry.charge) for entry in entries])
        order = Order(self.tree, entries, devices)
        while (entry := order.next()) is not None:
            self.position += 1
            verdict = self._consider(entry)
            if verdict is not None:
                self._wait(entry.gang, entry.queue, verdict, entry.charge)
            order.settle(entry)
            if verdict is not None and entry.queue.spec.ordering == "StrictFIFO":
                self._hold_back(entry, order.block(entry.queue))
        self._divide(self.unmet)  # what was given may cost more than it would have cost at least
        return self._plan(owners)

    # --------------------------------------------------------------------------------------------------- before

    def _totals(self) -> tuple[Charge, int]:
        """The cluster in every flavor, partitions of a whole not counted beside it, and its devices."""
        if self.tree.implicit:
            return {}, 0
        return self.board.totals()

    def _divide(self, asked: Iterable[tuple[Queue, Mapping[str, Amount]]]) -> None:
        """Fair shares for what runs and what these ask for at least."""
        for queue in self.tree.queues.values():
            queue.demand = dict(queue.used)
        for queue, charge in asked:
            for step in queue.path():
                add(step.demand, charge)
        divide_tree(self.tree, self.tree.totals, k=self.snapshot.usage_weight)

    def _charge_running(self) -> dict[str, tuple[str, str]]:
        """Charge the queues for what runs; returns each claim's gang and queue."""
        owners: dict[str, tuple[str, str]] = {}
        inventory = self.snapshot.inventory
        for gang in self.snapshot.running:
            queue = self.tree.resolve(gang)
            name = queue.name if isinstance(queue, Queue) else gang.queue or ""
            for uid in gang.claims:
                claim = inventory.claim(uid)
                if claim is None or uid in owners:
                    continue
                owners[uid] = (gang.id, name)
                if isinstance(queue, Queue):
                    devices = sum(not held.admin for held in claim.devices)
                    queue.charge(self.charges.of_held(claim, inventory), devices)
            if isinstance(queue, Queue):
                queue.admitted += 1
        return owners

    def _entries(self) -> list[Entry]:
        entries: list[Entry] = []
        for gang in self.snapshot.gangs:
            queue = self.tree.resolve(gang)
            if isinstance(queue, Reason):
                self._wait(gang, None, queue)
                continue
            present = len(gang.members) + len(gang.placed_nodes)
            if present < gang.size or not gang.members:
                self._wait(gang, queue, _gathering(gang, present))
                continue
            try:
                units = self.units[gang.id] = self.shapes.units(gang)
            except InvalidClaimError as error:
                self._wait(gang, queue, _invalid(error))
                continue
            devices = sum(unit.shape.least for unit in units)
            entries.append(Entry(gang, queue, self.charges.least(units, self.sites), devices))
        return entries

    # --------------------------------------------------------------------------------------------------- one gang

    def _consider(self, entry: Entry) -> Reason | Outcome | None:
        """Admit the gang (None), or say why not."""
        gang, queue = entry.gang, entry.queue
        for claim in gang.claims:
            if claim.key in self.given:
                return _shared(claim, self.given[claim.key])
        broken = queue.over_limit(entry.charge)
        if broken:
            return limit_reason(*broken[0], entry.charge[broken[0][1]])
        try:
            return self._within_limits(entry)
        except InvalidClaimError as error:
            return _invalid(error)

    def _within_limits(self, entry: Entry) -> Reason | Outcome | None:
        """Place and admit; None when that was done. Raises InvalidClaimError.

        Where it would cost more than a limit allows, it is tried without the flavors that are too dear, and then again with
        only the later alternatives of each `firstAvailable`.
        """
        gang, queue = entry.gang, entry.queue
        blocked: Reason | None = None
        deepest = max((len(asks) for unit in self.units[gang.id] for asks in unit.asks), default=1)
        for skip in range(deepest):
            banned: list[str] = []
            while True:
                selectors = tuple(self.charges.selector(flavor) for flavor in sorted(banned))
                units = self.shapes.units(gang, selectors, skip) if banned or skip else self.units[gang.id]
                outcome = self._place(gang, units, spread=queue.spec.strategy == "spread")
                if outcome.verdict is not Verdict.FOUND:
                    break
                charge = self.charges.of_placed(outcome.placed)
                over = queue.over_limit(charge)
                if not over:
                    self._admit(entry, outcome.placed, charge)
                    return None
                self.placer.undo(outcome.placed)
                blocked = blocked or limit_reason(*over[0], charge[over[0][1]])
                banned.extend(flavor for _, flavor in over if flavor not in banned)
            if blocked is None:
                return outcome  # no limit stands in the way: fewer alternatives would not help
        return blocked or outcome

    def _place(self, gang: GangRequest, units: list[Unit], *, spread: bool) -> Outcome:
        """What failed once in this decision fails again: nothing is given back."""
        if self.failed:
            known = self.failed.get(_signature(gang, units, spread=spread))
            if known is not None:
                return _for_gang(known, units)
        budget = Budget(self.snapshot.search_steps)
        outcome = self.domains.place(gang, units, budget, spread=spread)
        if outcome.verdict is not Verdict.FOUND:
            self.failed[_signature(gang, units, spread=spread)] = outcome
        return outcome

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
        queue.charge(charge, devices)
        queue.admitted += 1
        self.admissions.append(admission(gang, queue.name, placed, self.snapshot.classes, self.share_ids))

    def _wait(
        self, gang: GangRequest, queue: Queue | None, why: Reason | Outcome, charge: Mapping[str, Amount] = _NOTHING
    ) -> None:
        if queue is not None:
            queue.waiting += 1
            self.unmet.append((queue, charge))
        self.waiting.append((gang, None if queue is None else queue.name, self.position, why))

    def _hold_back(self, head: Entry, rest: list[Entry]) -> None:
        for entry in rest:
            self.position += 1
            self._wait(
                entry.gang,
                entry.queue,
                Reason(
                    code=Code.BEHIND_HEAD,
                    message=f"queue {entry.queue.name} is strict FIFO and its head {head.gang.id} waits",
                    advice="it is considered when the head has started; BestEffortFIFO would let it pass",
                ),
                entry.charge,
            )

    # ---------------------------------------------------------------------------------------------------- after

    def _plan(self, owners: dict[str, tuple[str, str]]) -> Plan:
        explainer = Explainer(self.sites, self.ledger, owners, self.taken_by)
        waiting = []
        for gang, queue, position, why in self.waiting:
            reason = why if isinstance(why, Reason) else self._explain(explainer, gang, why)
            waiting.append(
                Waiting(
                    namespace=gang.namespace,
                    name=gang.name,
                    uid=gang.uid,
                    queue=queue,
                    position=position,
                    reason=reason,
                )
            )
        waiting.sort(key=lambda entry: (entry.position or self.position + 1, entry.uid))
        numbered = tuple(
            entry if entry.position else replace(entry, position=self.position + place + 1)
            for place, entry in enumerate(waiting)
        )
        return Plan(
            admissions=tuple(self.admissions),
            waiting=numbered,
            queues=queue_uses(self.tree),
            problems=tuple(self.tree.problems + self.charges.problems),
        )

    def _explain(self, explainer: Explainer, gang: GangRequest, outcome: Outcome) -> Reason:
        units = self.units[gang.id]
        return explainer.explain(gang, units, outcome, self._could_ever_fit(gang, units))

    def _could_ever_fit(self, gang: GangRequest, units: list[Unit]) -> bool | None:
        """Place it on the same cluster with nothing running; None when that search did not end."""
        signature = (_signature(gang, units, spread=False), self.snapshot.search_steps)
        known = self.board.ever
        if signature not in known:
            placer, domains = self.board.empty
            placer.begin()
            outcome = domains.place(gang, units, Budget(self.snapshot.search_steps), spread=False)
            placer.undo(outcome.placed)
            known[signature] = None if outcome.verdict is Verdict.BUDGET_ENDED else outcome.verdict is Verdict.FOUND
        return known[signature]


def _signature(gang: GangRequest, units: list[Unit], *, spread: bool) -> object:
    """Equal for gangs that placement cannot tell apart."""
    counts: dict[int, int] = {}
    for unit in units:
        counts[unit.shape.number] = counts.get(unit.shape.number, 0) + 1
    placed = tuple(sorted(gang.placed_nodes)) if gang.topology else ()
    return (tuple(sorted(counts.items())), gang.topology, placed, tuple(sorted(gang.avoid)), spread)


def _for_gang(known: Outcome, units: list[Unit]) -> Outcome:
    """The same failure, told of this gang's own unit."""
    stuck = known.stuck
    mine = next((unit for unit in units if stuck is not None and unit.shape is stuck.shape), None)
    return replace(known, stuck=mine)


def _gathering(gang: GangRequest, present: int) -> Reason:
    return Reason(
        code=Code.GATHERING,
        message=f"{present} of {gang.size} pods of the gang exist",
        advice=f"create the other {max(gang.size - present, 0)}, or lower the gang's size",
    )


def _shared(claim: ClaimRequest, gang: str) -> Reason:
    return Reason(
        code=Code.CLAIM_BEING_ALLOCATED,
        message=f"ResourceClaim {claim} is shared with gang {gang}, for which it is being allocated",
        advice="it is considered again as soon as that is written",
    )


def _invalid(error: InvalidClaimError) -> Reason:
    return Reason(code=Code.INVALID, message=str(error), advice="", could_ever_fit=False)
