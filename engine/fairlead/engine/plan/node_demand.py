"""Which waiting gangs nodes are asked for: those that their queues may run now, and that lack devices and nothing else.

A gang is demand whole or not at all, in the order in which gangs are decided on, and as far as
    quota    its queue and those above may hold it beside what they hold and what is demand before it; its namespace's
             ResourceQuotas likewise (`_Admissible`)
    lack     free devices are what is missing: not a node's other resources, not a device held for a gang before it
    nodes    further nodes with devices of the flavor would take its pods: of a kind that exists, or as the flavor's templates
             say (`explain.node_kinds`). A gang that several flavors could serve is demand of the first of these by name
    max      running gangs and demand stay within the flavor's `max`
Nodes are asked for during the flavor's patience, and then not for as long again. Nothing is evicted or moved for the gang until
`wait_s` after they were first asked for. A flavor of which the cluster has no device counts requests of its device classes.
Members beyond a running gang's size are no demand.

Example, Flavor h100 with max 16, 8 in use, gangs a (8) and b (4) of a queue with limit 16, nothing free: a is demand. b is not: 8 + 8
+ 4 is more than both the limit and the max.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from fairlead.engine.explain.count_sums import ClaimOwners
from fairlead.engine.explain.explainer import Explainer
from fairlead.engine.placement.model import PlacementResult
from fairlead.engine.plan.gang import LeftPending, Unschedulable
from fairlead.engine.plan.held import HeldDevices
from fairlead.engine.plan.session import Session
from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.queues.gangs import PendingGang
from fairlead.engine.queues.limits import NamespaceQuotas, held, over_limit
from fairlead.engine.queues.tree import Queue
from fairlead.engine.types.plan import NodeDemand
from fairlead.engine.types.reasons import Code, PreemptionBlock, PreemptionBlocker, Reason
from fairlead.engine.types.settings import Autoscaling, Problem
from fairlead.engine.types.values import Amount, amount_text
from fairlead.kube import timestamps

_LACKS_DEVICES = {Code.NO_DEVICES, Code.NEVER_FITS, Code.NODES_AWAY}


class NodeDemands:
    """The nodes that gangs of one decision ask for."""

    def __init__(self, session: Session, held_devices: HeldDevices) -> None:
        self.problems: set[Problem] = set()
        self._session = session
        self._held = held_devices
        self._scaling = session.scaling
        self._found: dict[str, tuple[PendingGang, Charge, NodeDemand]] = {}  # by gang id, in order of decision
        self._lacking: dict[object, Code] = {}  # by equivalence class: why the gang waits
        self._serving: dict[object, list[tuple[str, Charge]]] = {}  # by equivalence class
        self._admissible = _Admissible(session, self._scaling, NamespaceQuotas(session.snapshot.namespace_quotas))

    @property
    def possible(self) -> bool:
        """Whether nodes can be asked for at all."""
        return bool(self._scaling)

    @property
    def any_new(self) -> bool:
        """Whether nodes are asked for from this very moment on: then the plan depends on when the decision is made."""
        return any(pending.gang.nodes_asked_since is None for pending, _, _ in self._found.values())

    def consider(self, pending: PendingGang, outcome: PlacementResult) -> NodeDemand | None:
        """The gang found no place; its demand for nodes, or None."""
        if not self._scaling:
            return None
        known = self._found.get(pending.id)
        if known is not None:
            return known[2]
        surplus = len(pending.gang.placed_nodes) >= pending.gang.size
        if surplus or not self._lacks_devices(pending, outcome):
            return None
        found: tuple[PendingGang, Charge, NodeDemand] | None = None
        for flavor, charge in self._served(pending):
            if not self._admissible.over_quota(pending, charge):
                demand = self._demand(pending, charge, flavor)
                if found is None or demand.state != "AtMax":
                    found = (pending, charge, demand)
                if demand.state != "AtMax":
                    break
        if found is None:
            return None
        self._found[pending.id] = found
        if found[2].state == "Asked":
            self._admissible.take(pending, found[1])
        return found[2]

    def blocker(self, demand: NodeDemand | None) -> PreemptionBlocker | None:
        """Why nothing is evicted for the gang now."""
        if demand is None or demand.evicts_from is None or demand.evicts_from <= self._session.now:
            return None
        return PreemptionBlocker(block=PreemptionBlock.NODES, queue=demand.queue, until=demand.evicts_from)

    def settled(self, left: Mapping[str, LeftPending]) -> tuple[NodeDemand, ...]:
        """Once all is decided: of the gangs that still wait for devices, what quotas and max still allow. Notes when that changes."""
        found: list[NodeDemand] = []
        admissible = _Admissible(self._session, self._scaling, self._session.quotas.copy())
        for pending, charge, demand in self._found.values():
            why = left.get(pending.id)
            if why is None or not isinstance(why.why, Unschedulable) or admissible.over_quota(pending, charge):
                continue
            over = admissible.over_max(charge) if demand.state == "Asked" else None
            if demand.state == "Asked" and over is None:
                admissible.take(pending, charge)
            found.append(demand if over is None else _at_max(demand, over))
        return tuple(found)

    def note_due(self) -> None:
        """Note when evictions are possible, and when patience ends or nodes are asked for again."""
        for _, _, demand in self._found.values():
            for at in (demand.evicts_from, demand.until):
                if at is not None and at > self._session.now:
                    self._session.note_due(at)

    def _demand(self, pending: PendingGang, charge: Charge, flavor: str) -> NodeDemand:
        scaling, since, now = self._scaling[flavor], pending.gang.nodes_asked_since, self._session.now
        self._note_overlap(pending, charge, flavor)
        demand = NodeDemand(
            namespace=pending.gang.namespace,
            name=pending.gang.name,
            uid=pending.gang.uid,
            queue=pending.queue.name,
            mode=scaling.mode,
            flavor=flavor,
            amounts=tuple(sorted(charge.items())),
            state="Asked",
            since=since,
        )
        turn = 0 if since is None else int(max(0.0, now - since) // scaling.patience_s)
        began = now if since is None else since
        until = began + (turn + 1) * scaling.patience_s
        if turn % 2:
            text = (
                f"no nodes came within {scaling.patience_s:.0f} s; they are asked for again at {timestamps.seconds(until)}; see that an "
                f"autoscaler runs that serves mode {scaling.mode} of Flavor {flavor}, that its node group may grow, and its log"
            )
            return replace(demand, state="Rests", until=until, message=text)
        over = self._admissible.over_max(charge)
        if over is not None:
            return _at_max(demand, over)
        return replace(demand, since=began, until=until, evicts_from=began + scaling.wait_s if scaling.wait_s else None)

    def _note_overlap(self, pending: PendingGang, charge: Charge, flavor: str) -> None:
        mode = self._scaling[flavor].mode
        other = next(
            (name for name in sorted(charge) if name in self._scaling and self._scaling[name].mode != mode), None
        )
        if other is None:
            return
        self.problems.add(
            Problem(
                kind="Flavor",
                name=other,
                reason="AutoscalingOverlaps",
                message=f"spec.autoscaling.mode: {self._scaling[other].mode}, but gangs such as {pending.id} are charged to Flavor {flavor}, "
                f"too, whose mode is {mode}: nodes are asked for as Flavor {flavor} says; set the same mode in both, or Off in one",
            )
        )

    def _served(self, pending: PendingGang) -> list[tuple[str, Charge]]:
        """Flavors of which further nodes would serve it, each with what it then costs at least."""
        known = self._serving.get(pending.equivalence)
        if known is None or pending.shares_claims:
            known = self._serving[pending.equivalence] = [
                (flavor, charge) for flavor, charge in self._options(pending) if self._would_do(pending, flavor)
            ]
        return known

    def _options(self, pending: PendingGang) -> Iterator[tuple[str, Charge]]:
        """Whatever it gets, then by the kinds of devices that it may get, then of flavors of which there is no device yet."""
        known: set[str] = set()
        for charge in (
            pending.charge,
            *pending.cost.choices,
            *map(partial(self._charge_from_zero, pending), self._session.from_zero),
        ):
            for name in sorted(charge):
                if name in self._scaling and name not in known:
                    known.add(name)
                    yield name, charge

    def _charge_from_zero(self, pending: PendingGang, flavor: str) -> Charge:
        """What it costs at least with each device of the flavor's classes counted as one of it. Of `All` devices it is not known how many."""
        session, charge = self._session, Charge()
        counts = session.kinds.counts_from_zero
        for unit in pending.units:
            for claim in unit.shape.claims:
                for alternatives in claim.alternatives:
                    first = alternatives[0]
                    if counts(flavor, first) and not first.admin and not first.all:
                        add(charge, {flavor: first.count})
                    else:
                        add(charge, session.cache.charges.least_of(alternatives, session.cache.node_snapshot))
        add(charge, session.cache.charges.least_of_pods(pending.units, session.cache.node_snapshot))
        return charge

    def _would_do(self, pending: PendingGang, flavor: str) -> bool:
        session, gang, units = self._session, pending.gang, pending.units
        if not session.kinds.serves(flavor, units):
            return False
        zero = flavor in session.from_zero
        return zero or session.places.ever(gang, units) is not False or session.kinds.misfit(gang, units) is None

    def _lacks_devices(self, pending: PendingGang, outcome: PlacementResult) -> bool:
        """Whether free devices are what is missing. Where nothing is known of the nodes with them yet, that some refuse it says nothing."""
        known = self._lacking.get(pending.equivalence)
        if known is None or pending.shares_claims:
            known = self._lacking[pending.equivalence] = self._code(pending, outcome)
        return known in _LACKS_DEVICES or (known is Code.NO_NODE and bool(self._session.from_zero))

    def _code(self, pending: PendingGang, outcome: PlacementResult) -> Code:
        session, gang, units = self._session, pending.gang, pending.units
        ever = session.places.ever(gang, units)
        explainer = Explainer(
            session.memory.counts,
            session.cache.node_snapshot,
            session.statement.ledger,
            ClaimOwners(session.running.owners, session.running.owner_changes),
            session.admitted.taken_by,
            self._held.held_for,
        )
        return explainer.code(gang, units, outcome, ever, session.kinds.misfit(gang, units) if ever is False else None)


class _Admissible:
    """What queues, namespaces and flavors could hold besides the demand so far."""

    def __init__(self, session: Session, scaling: Mapping[str, Autoscaling], quotas: NamespaceQuotas) -> None:
        """`quotas`: to be charged with the demand, besides those of the session."""
        self._session = session
        self._scaling = scaling
        self._quotas = quotas
        self._asked: Charge = {}
        self._by_queue: defaultdict[Queue, Charge] = defaultdict(dict)  # the queues below included

    def over_quota(self, pending: PendingGang, charge: Charge) -> bool:
        """Whether its queue, or a ResourceQuota of its namespace, forbids it beside what they hold and the demand so far."""
        session = self._session
        if session.stopped(pending) is not None or over_limit(pending.queue, charge, self._held):
            return True
        return any(quotas.shortage(pending.gang) is not None for quotas in (session.quotas, self._quotas))

    def over_max(self, charge: Charge) -> tuple[str, Amount, Amount] | None:
        """The flavor whose `max` it would exceed, with what running gangs hold of it, and what is demand already."""
        bounded = [name for name in sorted(charge) if name in self._scaling and self._scaling[name].max is not None]
        if not bounded:
            return None
        allocated = dict(self._session.running.allocated)
        for each in self._session.admitted.gangs.values():
            add(allocated, each.charge)
        for name in bounded:
            most, has, asked = self._scaling[name].max, allocated.get(name, 0), self._asked.get(name, 0)
            if most is not None and has + asked + charge[name] > most:
                return name, has, asked
        return None

    def take(self, pending: PendingGang, charge: Charge) -> None:
        add(self._asked, charge)
        for step in pending.queue.path():
            add(self._by_queue[step], charge)
        self._quotas.charge(pending.gang)

    def _held(self, queue: Queue, flavor: str) -> Amount:
        return held(queue, flavor) + self._by_queue[queue].get(flavor, 0)


def _at_max(demand: NodeDemand, over: tuple[str, Amount, Amount]) -> NodeDemand:
    flavor, has, asked = over
    text = (
        f"nodes are not asked for: {amount_text(has)} of flavor {flavor} are in use and {amount_text(asked)} are asked for, and with this "
        f"gang that is more than spec.autoscaling.max of Flavor {flavor}; wait, or raise it"
    )
    return replace(demand, state="AtMax", until=None, evicts_from=None, message=text)


def awaiting(reason: Reason, demand: NodeDemand) -> Reason:
    """The reason of a gang that lacks devices, with what becomes of its demand for nodes.

    That it fits not even the empty cluster says nothing of the cluster with more nodes.
    """
    if reason.could_ever_fit is False:
        reason = replace(reason, could_ever_fit=None)
    if demand.state != "Asked":
        return replace(reason, advice="; ".join(text for text in (demand.message, reason.advice) if text))
    assert demand.since is not None
    assert demand.until is not None
    advice = (
        f"nodes are asked for since {timestamps.seconds(demand.since)}, by mode {demand.mode} of Flavor {demand.flavor}, until "
        f"{timestamps.seconds(demand.until)}"
    )
    if demand.evicts_from is not None:
        advice += f"; nothing is evicted for it before {timestamps.seconds(demand.evicts_from)}"
    return replace(reason, code=Code.AWAITING_NODES, advice=advice)
