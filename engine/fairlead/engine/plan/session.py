"""What the parts of one decision share: the snapshot with its tables, running gangs in their queues, both statements; and what outlives it.

Opened by `decide` with a snapshot. The pipelined cluster and the eviction candidates are built when first needed: a decision in which every
gang finds a place needs neither. With a fresh `Memory` every decision is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from fairlead.engine.allocator.result import ShareIds
from fairlead.engine.explain.counts import CountCaches
from fairlead.engine.explain.node_kinds import KnownKinds, NodeKinds
from fairlead.engine.inventory.device import Device
from fairlead.engine.placement.model import UnitPlacement
from fairlead.engine.plan.answers import admission
from fairlead.engine.plan.gang import Places
from fairlead.engine.plan.pending import Known, PendingGangs
from fairlead.engine.plan.running import RunningGangs
from fairlead.engine.plan.turns import SearchTurns
from fairlead.engine.queues.cache import SchedulerCache
from fairlead.engine.queues.charges import Charge, chargeable
from fairlead.engine.queues.fair_share import divide_tree
from fairlead.engine.queues.gangs import AssumedGang, PendingGang
from fairlead.engine.queues.limits import NamespaceQuotas, beyond_limits
from fairlead.engine.queues.statement import Statement
from fairlead.engine.queues.tree import Queue, Tree
from fairlead.engine.reclaim.candidates import VictimCandidates
from fairlead.engine.reclaim.evictions import BrokenDevices, BudgetsLeft, IdleGangs, held_reason, whole_evictions
from fairlead.engine.reclaim.releasing import PipelinedCluster, awaited_until
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import RunningGang
from fairlead.engine.types.plan import Admission, Eviction, EvictionKind
from fairlead.engine.types.reasons import Reason
from fairlead.engine.types.settings import Autoscaling
from fairlead.kube import timestamps


class Memory:
    """One per engine: of the tables for which it was asked last."""

    def __init__(self) -> None:
        self._cache: SchedulerCache | None = None
        self._running: RunningGangs | None = None
        self.counts = CountCaches()
        self.kinds = KnownKinds()
        self.pending_kinds: dict[str, Known] = {}  # by gang UID

    def cache(self, snapshot: Snapshot) -> SchedulerCache:
        """That of the snapshot's tables, brought up to date."""
        if self._cache is None or not self._cache.serves(snapshot):
            self._cache = SchedulerCache(snapshot.inventory, snapshot.nodes, snapshot.classes)
            self.counts, self.kinds, self.pending_kinds = CountCaches(), KnownKinds(), {}
        self._cache.begin(snapshot.flavors, snapshot.workload)
        return self._cache

    def running(self, snapshot: Snapshot, cache: SchedulerCache, tree: Tree) -> RunningGangs:
        """Those of the snapshot, yet to be charged to the queues of the tree."""
        if self._running is None or not self._running.is_of(tree, cache.charges):
            self._running = RunningGangs(snapshot.inventory, tree, cache.charges)
        self._running.look(snapshot.running)
        return self._running


class Session:
    """The state of one decision; `now` is unix seconds."""

    def __init__(self, snapshot: Snapshot, now: float, memory: Memory) -> None:
        self.snapshot = snapshot
        self.now = now
        self.cache = memory.cache(snapshot)
        self.memory = memory
        self.tree = self.cache.tree(snapshot.queues)
        self.totals = self.cache.totals()
        self.running = memory.running(snapshot, self.cache, self.tree)
        self.tree.begin({} if self.tree.implicit else self.cache.usable(self.running.allocated), now)
        self.running.charge()
        self.turns_of_search = SearchTurns(snapshot, self.totals.devices)
        accounts = self.turns_of_search.accounts
        self.statement = Statement(self.cache.placer, self.cache.domains, snapshot.inventory, snapshot.nodes, accounts)
        self.places = Places(
            self.cache, snapshot, self.statement, self.turns_of_search.ever, self.turns_of_search.ever_steps
        )
        self.quotas = NamespaceQuotas(snapshot.namespace_quotas)
        self.admitted = AdmittedGangs(self.statement, self.quotas)
        self.pending = PendingGangs(
            snapshot, self.cache, self.tree, self.totals.devices, self.turns_of_search, memory.pending_kinds
        )
        self.broken = BrokenDevices(snapshot.inventory, now)
        tainted = snapshot.running if snapshot.inventory.rules or self.cache.evicting_taints else ()
        self.replaced = [self.running.with_queue(each) for each in self.broken.evictions(tainted)]
        self.idle = IdleGangs(now)
        budgets = BudgetsLeft(snapshot.budgets)
        if self.tree.any_hold or any(gang.hold is not None for gang in snapshot.running):
            self.replaced += self._whole("Hold", held_reason, budgets)
        if self.tree.any_idle:
            self.replaced += self._whole("Idle", self.idle.reason, budgets)
        self.leaving = self._going()
        self.turns: dict[str, int] = {}  # gang id: its place in the order in which gangs were considered first
        self._due: list[float] = [] if not self.tree.budgeted else self._budget_changes()
        self._pipelined: PipelinedCluster | None = None

    def _whole(
        self, kind: EvictionKind, why: Callable[[RunningGang, Queue], Reason | None], budgets: BudgetsLeft
    ) -> Iterator[Eviction]:
        return whole_evictions(kind, why, self.running.gangs, budgets, self._going(), self.running.protection)

    def _going(self) -> set[str]:
        """UIDs of pods that are evicted for no other gang."""
        return {pod.uid for eviction in self.replaced for pod in eviction.pods}

    def _budget_changes(self) -> list[float]:
        budgets = (spec.budget for spec in self.snapshot.queues if spec.budget is not None)
        return [at for budget in budgets if (at := budget.changes_at(self.now)) is not None]

    def start(self) -> None:
        """Before any gang is considered: what is leaving counts as gone for shares and order."""
        leaving = self.running.with_leaving(self.leaving)
        if leaving:
            self._due += self.pipelined.leave(leaving, self.leaving, self.now)
        if self.being_released:
            self._due += self.pipelined.release(self.being_released, self.now)

    @cached_property
    def being_released(self) -> list[Device]:
        """Devices that their nodes are releasing."""
        return self.snapshot.inventory.releasing()

    def leaving_on(self, nodes: Sequence[str]) -> list[str]:
        """Since when pods there that hold devices are being deleted, and from when they are not awaited any more."""
        among, found = set(nodes), list[str]()
        for gang, queue in self.running.with_leaving(set()):
            for member in gang.members:
                until = self.running.protection.awaited_until(gang, queue, member) if member.leaving else None
                if until is not None and member.leaving_since is not None and member.node in among and member.claims:
                    since, counted = timestamps.seconds(member.leaving_since), timestamps.seconds(until)
                    pod = f"pod {member.pod.namespace}/{member.pod.name}"
                    free = "counted as free since" if until <= self.now else "counted as free from"
                    found.append(f"{pod} of queue {queue.name} is leaving since {since}, {free} {counted}")
        return found

    def released_by_nodes(self, placed: Sequence[UnitPlacement]) -> list[str]:
        """The devices of this place that their nodes are releasing: since when, and from when they are not awaited any more."""
        found = list[str]()
        for device in sorted({pick.device for pick in chargeable(placed)}, key=lambda each: each.ref):
            if device.releasing and device.kind.releasing_since is not None:
                since = timestamps.seconds(device.kind.releasing_since)
                until = timestamps.seconds(awaited_until(device, self.now))
                found.append(
                    f"device {device.pool.name}/{device.name} is being released since {since}, awaited until {until}"
                )
        return found

    def evicted_at(self, nodes: Sequence[str], placed: Sequence[UnitPlacement]) -> float | None:
        """For when the last eviction of those pods is set that hold devices of this place on these nodes; None: for no time."""
        among = set(nodes)
        uids = {uid for pick in chargeable(placed) if pick.device.use is not None for uid in pick.device.use.claims}
        leaving = [member for gang, _ in self.running.with_leaving(set()) for member in gang.members if member.leaving]
        holding = [member for member in leaving if uids.intersection(member.claims)]
        times = [each.evicted_at for each in holding or leaving if each.node in among]
        return max((at for at in times if at is not None), default=None)

    @cached_property
    def scaling(self) -> dict[str, Autoscaling]:
        """By flavor, of those for which nodes can be asked for."""
        flavors = self.cache.charges.flavors
        return {flavor.name: flavor.autoscaling for flavor in flavors if flavor.autoscaling is not None}

    @cached_property
    def from_zero(self) -> list[str]:
        """Flavors of which there is no device, and for which nodes are asked for by device class."""
        taken = self.totals.taken
        return [name for name, scaling in self.scaling.items() if scaling.device_classes and not taken.get(name)]

    @cached_property
    def kinds(self) -> NodeKinds:
        cache = self.cache
        known = self.memory.kinds
        return NodeKinds(known, cache.node_snapshot, cache.charges, self.scaling, self.from_zero, self.places.ever)

    @property
    def pipelined(self) -> PipelinedCluster:
        if self._pipelined is None:
            self._pipelined = PipelinedCluster(
                self.cache, self.snapshot, self.running.protection, self.statement.accounts
            )
            for assumed in self.admitted.gangs.values():
                self._pipelined.assume(assumed)
        return self._pipelined

    @property
    def releasing(self) -> PipelinedCluster | None:
        """The pipelined cluster, if anything comes free in it that is in use now."""
        return self._pipelined if self._pipelined is not None and self._pipelined.version else None

    @cached_property
    def candidates(self) -> VictimCandidates:
        candidates = VictimCandidates(
            self.snapshot.inventory, self.cache.charges, self.now, suspended=self.idle.suspended
        )
        for gang, queue in self.running.gangs:
            candidates.add_running(gang, queue, self.leaving)
        candidates.sort()
        self._due += [until for until in candidates.protected.values() if until > self.now]
        return candidates

    def note_protection(self) -> None:
        """That min-runtime ends may change the answer, though the candidates were not needed for it."""
        if self.running.any_surplus or self.leaving:
            _ = self.candidates  # notes it
        elif (end := self.running.next_end(self.now)) is not None:
            self._due.append(end)

    def divide(self) -> None:
        """Fair shares, of what queues use and what their pending gangs ask for at least."""
        for queue in self.tree.queues.values():
            queue.demand = dict(queue.used)
        self.pending.demand(self.servable)
        divide_tree(self.tree, self.tree.totals, k=self.snapshot.usage_weight)

    def ever(self, pending: PendingGang) -> bool | None:
        """Whether it could start with nothing running, by devices, limits and ResourceQuotas; None where that is not known."""
        if beyond_limits(pending.queue, pending.charge) or self.quotas.beyond(pending.gang):
            return False
        found = self.places.ever(pending.gang, pending.units)
        if found is not False:
            return found
        if self.unknown_devices:
            return None
        misfit = self.kinds.misfit(pending.gang, pending.units)
        grows = misfit is None and self._grows
        return None if grows or (misfit is None and self.kinds.back(pending.units)) else False

    @cached_property
    def unknown_devices(self) -> bool:
        """Whether nodes are releasing devices that are not published meanwhile: that a gang fits nowhere says nothing then."""
        return any(device.name in device.pool.withheld for device in self.being_released)

    @cached_property
    def _grows(self) -> bool:
        """Whether nodes may be asked for: that a gang fits not even the empty cluster says nothing of one with more nodes."""
        return any(flavor.autoscaling is not None for flavor in self.snapshot.flavors)

    def servable(self, pending: PendingGang) -> bool:
        """Whether it counts as demand: what this cluster could never run, or a quota or budget forbids, would only make shares idle."""
        if self.stopped(pending) is not None:
            return False
        if pending.gang.quota_charge and self.quotas.shortage(pending.gang) is not None:
            return False
        return not pending.charge or self.places.ever(pending.gang, pending.units) is not False

    def stopped(self, pending: PendingGang) -> Queue | None:
        """The queue whose exhausted budget keeps the gang from starting. A member that replaces another does not make more run."""
        return pending.queue.stopped_by if self.tree.budgeted and not pending.gang.replaces else None

    def admit(self, pending: PendingGang, placed: list[UnitPlacement], charge: Charge) -> None:
        assumed = self.admitted.admit(pending, placed, charge)
        if self._pipelined is not None:
            self._pipelined.assume(assumed)
        self.commit()

    def commit(self) -> None:
        """What is decided so far stays."""
        self.statement.commit()
        if self._pipelined is not None:
            self._pipelined.statement.commit()

    def note_due(self, time: float) -> None:
        """At this time the answer may change though nothing else does."""
        self._due.append(time)

    @property
    def due(self) -> float | None:
        broken = () if self.broken.due is None else (self.broken.due,)
        return min((*self._due, *self.idle.due, *broken), default=None)


class AdmittedGangs:
    """The gangs that a decision has admitted so far; a gang may be withdrawn again, before the plan is made.

    `statement` is that of the ledger of now; what queues and namespaces use and the claims that are given are kept in step with it.
    """

    def __init__(self, statement: Statement, quotas: NamespaceQuotas) -> None:
        self._statement = statement
        self._quotas = quotas
        self.gangs: dict[str, AssumedGang] = {}  # by gang id, in order of decision
        self.claims: dict[str, str] = {}  # key of each claim that is given to an admitted or nominated gang: its id
        self.taken_by: dict[Device, tuple[str, str]] = {}  # gang, queue
        self.count = 0  # of all that were ever admitted, those withdrawn since included

    def admit(self, pending: PendingGang, placed: Sequence[UnitPlacement], charge: Charge) -> AssumedGang:
        """The gang starts there; `placed` is allocated already."""
        gang, queue = pending.gang, pending.queue
        assumed = self.gangs[gang.id] = AssumedGang(pending, placed, charge)
        self.taken_by.update((pick.device, (gang.id, queue.name)) for pick in chargeable(placed))
        self.give_claims(pending)
        self._statement.do(queue.charge, charge, assumed.devices)
        self.count += 1
        return assumed

    def withdraw(self, gang_id: str) -> None:
        """As if the gang had not been admitted or nominated. The trial eviction that withdraws it took it off its queue's use."""
        self.claims = {key: gang for key, gang in self.claims.items() if gang != gang_id}
        self._quotas.withdraw(gang_id)
        assumed = self.gangs.pop(gang_id, None)
        if assumed is not None:
            self._statement.deallocate(assumed.placed)
            self.taken_by = {device: taker for device, taker in self.taken_by.items() if taker[0] != gang_id}

    def give_claims(self, pending: PendingGang) -> None:
        """No other gang of this decision is given the claims that it shares with this one, nor its part of a quota."""
        self._quotas.charge(pending.gang)
        for claim in pending.gang.claims:
            if claim.allocation is None:
                self.claims[claim.key] = pending.gang.id

    def admissions(self, snapshot: Snapshot, share_ids: ShareIds) -> tuple[Admission, ...]:
        return tuple(
            admission(each.pending.gang, each.pending.queue.name, each.placed, snapshot.classes, share_ids)
            for each in self.gangs.values()
        )
