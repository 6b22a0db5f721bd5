"""The one decision: which pending gangs get which devices on which nodes now, what is evicted, and why the others wait.

The one entrance: `Engine.decide(snapshot, now)`. Does no I/O and reads no clock. What an engine keeps (`Memory`, the last plan) saves
time and changes no answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from fairlead.engine.allocator.result import ShareIds
from fairlead.engine.explain import messages
from fairlead.engine.explain.count_sums import ClaimOwners
from fairlead.engine.explain.explainer import Explainer
from fairlead.engine.explain.rules import GangRules
from fairlead.engine.inventory.models import made_on_demand
from fairlead.engine.plan.answers import flavor_totals, queue_uses, waiting
from fairlead.engine.plan.gang import WhyPending, failed
from fairlead.engine.plan.node_demand import awaiting
from fairlead.engine.plan.predecessors import waiting_for_itself
from fairlead.engine.plan.scheduling import Retry, Scheduling
from fairlead.engine.plan.session import Memory, Session
from fairlead.engine.plan.turns import TURN_S, by_share, preemptors_first
from fairlead.engine.queues.charges import add
from fairlead.engine.queues.gangs import PendingGang
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.policy import over_contested_share
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import NodeDemand, Plan
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.values import Amount, DeviceRef
from fairlead.kube.containment import contained, described

_beside_tables = attrgetter(*(name for name in Snapshot.__struct_fields__ if name not in {"inventory", "nodes"}))


class LastPlan:
    def __init__(self) -> None:
        self._known: tuple[tuple[Any, ...], tuple[Any, ...], float, Plan] | None = None

    def recall(self, snapshot: Snapshot, now: float, share_ids: object) -> Plan | None:
        """The last plan, if this is the same question."""
        if self._known is None:
            return None
        tables, settings, began, last = self._known
        if now < began or (last.due is not None and now >= last.due) or tables != _tables(snapshot):
            return None
        return last if settings == _settings(snapshot, share_ids) else None

    def remember(self, snapshot: Snapshot, now: float, share_ids: object, plan: Plan) -> None:
        self._known = (_tables(snapshot), _settings(snapshot, share_ids), now, plan)


def _tables(snapshot: Snapshot) -> tuple[Any, ...]:
    """Which tables, and what they were; they only ever grow these numbers."""
    inventory, nodes = snapshot.inventory, snapshot.nodes
    return (inventory, inventory.version, inventory.structure, nodes, nodes.structure, nodes.changes.cursor)


def _settings(snapshot: Snapshot, share_ids: object) -> tuple[Any, ...]:
    return share_ids, _beside_tables(snapshot)


_SHARES = uuid.UUID("5f0f4f3c-6f0e-4c0b-9a55-1b6f8f3c7a10")


def derived_share_id(claim: str, request: str, device: DeviceRef) -> str:
    """A UUID that is the same for the same claim, request and device, and different for any other."""
    return str(uuid.uuid5(_SHARES, f"{claim}|{request}|{device}"))


class Engine:
    """Decides for one cluster, and keeps what outlives a decision. With a fresh one every plan is the same; it costs more time."""

    def __init__(self) -> None:
        self.memory = Memory()
        self._last = LastPlan()

    def decide(self, snapshot: Snapshot, now: float, *, share_ids: ShareIds = derived_share_id) -> Plan:
        """Admit what fits, in the order of the queues; evict where a queue may reclaim or preempt; explain the rest.

        `now` is unix seconds: min-runtime, ends set by activeDeadlineSeconds and the age at which a reservation is due depend on it.
        Every gang of `snapshot.gangs` is in exactly one of `Plan.admissions` and `Plan.waiting`. The tables of the snapshot are left as
        they were: the controller notes what it wrote (`inventory.set_claim`, `nodes.set_pod`) before it decides again, else the same
        devices are given twice. Deciding again on the outcome (evicted pods leaving, their beneficiaries `preemptor`) changes nothing,
        but for a gang that waited for a claim which another gang of this plan shares with it. Raises nothing for bad user
        input: that is a Waiting with `Code.INVALID`. `share_ids` gives the UUID of a share of a shared device, by claim key,
        request and device.
        """
        known = self._last.recall(snapshot, now, share_ids)
        if known is not None:
            return known
        decision = Decision(Session(snapshot, now, self.memory), share_ids)
        plan = decision.run()
        if not decision.scheduling.post_filter.demands.any_new:
            self._last.remember(snapshot, now, share_ids, plan)
        return plan

    def decide_unexplained(self, snapshot: Snapshot, now: float) -> Plan:
        """As `decide`: the same admissions, evictions and `due`, in half the time. All else of the plan is left empty, reasons above all.

        For simulations, which decide thousands of times and read no reasons.
        """
        return Decision(Session(snapshot, now, self.memory), explains=False).run()

    def decide_without_blockers(self, snapshot: Snapshot, now: float) -> Plan:
        """As `decide`, in two thirds of the time: of a gang for which nothing can be evicted it is not looked up why.

        So `Reason.blockers` may be empty, and code and advice are then those of a lack of devices. For a look at a hypothetical
        cluster, which asks what starts and what never can.
        """
        return Decision(Session(snapshot, now, self.memory), finds_blockers=False).run()


def decide(snapshot: Snapshot, now: float) -> Plan:
    return Engine().decide(snapshot, now)


class Decision:
    """Order, place, post-filter, explain. `run` once; what led to the plan can be read afterwards (`prove` does)."""

    def __init__(
        self,
        session: Session,
        share_ids: ShareIds = derived_share_id,
        *,
        explains: bool = True,
        finds_blockers: bool = True,
    ) -> None:
        self.session = session
        self.share_ids = share_ids
        self.scheduling = Scheduling(session, finds_blockers=explains and finds_blockers)
        self._explains = explains

    def run(self) -> Plan:
        session, scheduling = self.session, self.scheduling
        for gang, queue, reason in session.pending.refused:
            scheduling.leave(gang, queue, reason)
        session.divide()
        session.start()
        decided = self._preemptors()
        scheduling.post_filter.moves.leave_nodes()
        # First what every share allows, then what is left over: nothing is admitted that would be reclaimed at once.
        within, contending, beyond = by_share(
            [pending for pending in session.pending.gangs if pending not in decided], scheduling.post_filter.reserve
        )
        contending += scheduling.in_order(within, within_share=True)
        scheduling.in_order(contending, within_share=False)
        scheduling.in_order(beyond, within_share=False)
        Retry(scheduling).run()
        self._settle()
        return self._plan()

    def _preemptors(self) -> set[PendingGang]:
        """Decide on gangs for which others were evicted, and on those that would take their place; returns them."""
        decided: set[PendingGang] = set()
        for pending in preemptors_first(self.session.pending.gangs):
            first = pending.gang.preemptor or pending.gang.replaces
            if first or over_contested_share(pending.queue, pending.charge) is None:
                self.scheduling.decide(pending)
                decided.add(pending)
        return decided

    def _settle(self) -> None:
        """Queues use what they hold now, with what is leaving and without what gangs are nominated for."""
        session = self.session
        self.scheduling.post_filter.nominations.settle()
        session.tree.settle()
        session.pending.admit(session.admitted.gangs.values())
        session.divide()  # what was given may cost more than the least
        session.pending.demand(lambda pending: not session.servable(pending))  # for the status, no more for shares
        self.scheduling.post_filter.demands.note_due()
        if session.turns_of_search.any_passed_over:
            session.note_due(session.now + TURN_S)
        if any(map(made_on_demand, session.admitted.taken_by)) and any(map(self._observes, self.scheduling.left)):
            session.note_due(session.now)  # what admin access waits for may exist now

    def _observes(self, gang_id: str) -> bool:
        pending = self.session.pending.by_id.get(gang_id)
        claims = {claim for unit in pending.units for claim in unit.shape.claims} if pending is not None else ()
        return any(request.admin for claim in claims for alternatives in claim.alternatives for request in alternatives)

    def _plan(self) -> Plan:
        session, post_filter = self.session, self.scheduling.post_filter
        if not self._explains:
            return Plan(
                admissions=session.admitted.admissions(session.snapshot, self.share_ids),
                evictions=(*session.replaced, *post_filter.preemption.evictions),
                due=session.due,
            )
        allocated = dict(session.running.allocated)
        for assumed in session.admitted.gangs.values():
            add(allocated, assumed.charge)
        admitted = [assumed.pending for assumed in session.admitted.gangs.values()]
        charges, totals = session.cache.charges, session.totals
        demand = post_filter.demands.settled(self.scheduling.left)
        left = waiting(
            self.scheduling.left.values(), self._explain(demand), session.pending.by_id, self.scheduling.position
        )
        return Plan(
            admissions=session.admitted.admissions(session.snapshot, self.share_ids),
            waiting=left,
            evictions=(*session.replaced, *post_filter.preemption.evictions),
            reservations=tuple(post_filter.held.reservations),
            queues=queue_uses(
                session.tree,
                self._gpus() if session.tree.budgeted else {},
                left,
                admitted,
                session.running.leaving(),
            ),
            flavors=flavor_totals(charges.all_flavors, totals, allocated),
            demand=demand,
            problems=(
                *session.tree.problems,
                *charges.problems,
                *totals.problems,
                *sorted(post_filter.demands.problems),
            ),
            due=session.due,
            failures=tuple(sorted(session.pending.failures.items())),
            searched=session.turns_of_search.searched({each.gang.uid for each in self.scheduling.left.values()}),
        )

    def _gpus(self) -> dict[Queue, Amount]:
        """By queue the whole GPUs that gangs of it and of those below hold once the plan is carried out."""
        found: dict[Queue, Amount] = {}
        charges, admitted = self.session.cache.charges, self.session.admitted.gangs.values()
        new = ((each.pending.queue, charges.gpus_of_placed(each.placed)) for each in admitted)
        for queue, gpus in (*self.session.running.gpus(), *new):
            for step in queue.path():
                found[step] = found.get(step, 0) + gpus
        return found

    def _explain(self, demand: Iterable[NodeDemand]) -> Callable[[GangRequest, WhyPending], Reason]:
        demands = {each.id: each for each in demand}
        session, held = self.session, self.scheduling.post_filter.held
        taken_by = session.admitted.taken_by
        held_for = {device: gang for device, gang in held.held_for.items() if device not in taken_by}
        owners = ClaimOwners(session.running.owners, session.running.owner_changes)
        rules = GangRules(session.cache.domains, lambda: session.cache.empty)
        counts, snapshot, ledger = session.memory.counts, session.cache.node_snapshot, session.statement.ledger
        explainer = Explainer(counts, snapshot, ledger, owners, taken_by, held_for, rules)
        standing = {id(reservation) for reservation in held.reservations}  # one may have been cancelled since

        def explain(gang: GangRequest, found: WhyPending) -> Reason:
            said: list[Reason] = []

            def fail(error: Exception) -> None:
                session.pending.failures[gang.id] = described(error)
                said.append(failed(error))

            with contained(fail):
                said.append(explained(gang, found))
            return said[0]

        def explained(gang: GangRequest, found: WhyPending) -> Reason:
            pending = session.pending.by_id.get(gang.id)
            if isinstance(found, Reason):
                judged = self._judged(gang, found)
                return (
                    waiting_for_itself(session, pending, judged)
                    if gang.predecessors and pending is not None
                    else judged
                )
            assert pending is not None
            units = pending.units
            ever = session.places.ever(gang, units)
            reserved = found.reserved if id(found.reserved) in standing else None
            if gang.id in demands or session.unknown_devices:
                ever = ever or None  # that it fits not even the empty cluster says nothing of one with more nodes
            misfit = session.kinds.misfit(gang, units) if ever is False else None
            reason = explainer.explain(gang, units, found.outcome, ever, found.blockers, reserved, misfit)
            if gang.id in demands:
                return awaiting(reason, demands[gang.id])
            if (ever is False and misfit is None) or reason.code is Code.NODES_AWAY:
                reason = messages.with_nodes_back(reason, session.kinds.back(units))
            return waiting_for_itself(session, pending, reason) if gang.predecessors else reason

        return explain

    def _judged(self, gang: GangRequest, reason: Reason) -> Reason:
        """Whatever else is said of a gang that can never start, it says so, too."""
        pending = self.session.pending.by_id.get(gang.id)
        if reason.could_ever_fit is not None or pending is None or self.session.ever(pending) is not False:
            return reason
        return replace(reason, could_ever_fit=False)
