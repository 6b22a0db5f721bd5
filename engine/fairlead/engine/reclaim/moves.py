"""Which running gangs to move so that another fits, and where to: consolidation. Nothing is moved here.

A gang that finds no place though enough is free in sum may get one where movable gangs run, if each of those has another place
that is free *now*: it is held before anything is evicted. So no moved gang waits for another, and each goes on running.
    policy   a movable gang of lower priority; of any priority where the move serves a reservation, or where the gang could be
             evicted outright; whole, not within its min-runtime nor before it has run for as long as it takes to start again
             (so what starts by a decision does not move by the next), as PodDisruptionBudgets and disruption budgets allow
    nodes    those of which nothing is leaving: what comes free there may be for another gang, and that is settled when it is gone;
             for the place of a moved one, too, unless it would be evicted for good otherwise
    cost     the fewest GPU-seconds that stopping them loses (`protection`); on one node the cheapest set that makes room
    verified places of the moved ones on the ledger of now, on which all that runs is still there and the preemptor's place is
             held; that of the preemptor on the pipelined one, without them. Each within its queue's limits and its topology
Gangs with terms about other pods, and those that such terms concern, neither move nor have others moved: the two places would
have to be judged together with the pods between. Nor do shares of devices move.
Invariants: without a plan both ledgers and all counts are as before. Queues use the same after a move, so no share changes.
Ends: each plan places one more gang and stops none, so gangs that only wait cannot make others move forever.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.placement.model import TopologyDomain, UnitPlacement
from fairlead.engine.placement.shapes import Shapes
from fairlead.engine.queues.cache import SchedulerCache
from fairlead.engine.queues.gangs import with_models
from fairlead.engine.queues.limits import View, held, over_limit, used
from fairlead.engine.queues.statement import Statement
from fairlead.engine.reclaim.candidates import EvictionUnit
from fairlead.engine.reclaim.cheapest_nodes import STEPS_PUT, CheapestNodes, CostFunction, Trial
from fairlead.engine.reclaim.evict_and_place import allowed_domains, evict_and_place
from fairlead.engine.reclaim.eviction_policy import EvictionPolicy, Preemptor, VictimPolicy
from fairlead.engine.reclaim.protection import gpu_seconds, movable, settled_at
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import RefusedNode
from fairlead.engine.types.reasons import PreemptionBlock

GANGS_MAX = 8  # on one node, of which all sets are tried, the cheapest for their devices
SETS_MAX = 8  # tried on one node
ATTEMPTS_MAX = 8  # of one preemptor: each leaves out a gang for which there was no other place
DEVICES_MAX = 256  # of a gang that moves: its place is written down device by device


class MovePolicy(EvictionPolicy):
    """Counts what moves in the counts of `victims`, so that one decision never evicts more than budgets allow by both."""

    def __init__(self, victims: VictimPolicy) -> None:
        super().__init__(victims.cluster, victims.candidates)
        self._victims = victims
        self.serves_reservation = False
        self.placeless: set[str] = set()  # ids of gangs for which no other place was found
        self.unsettled: set[NodeInfo] = set()  # pods are leaving them, for whatever reason
        self.evictable: set[str] = set()  # ids of gangs that could be evicted for good; known where nodes are unsettled

    def refusal(self, preemptor: Preemptor, unit: EvictionUnit) -> PreemptionBlock | None:
        if (
            unit.id == preemptor.id
            or unit.id in self.placeless
            or unit.id in self._victims.stopped
            or not may_move(unit)
        ):
            return PreemptionBlock.PLACE
        if unit in self.candidates.protected or settled_at(unit.gang) > self.candidates.now:
            return PreemptionBlock.MIN_RUNTIME
        if not self.serves_reservation and unit.gang.priority >= preemptor.gang.priority:
            return self._victims.refusal(preemptor, unit)
        return self._victims.spent(unit)

    def evictable_for(self, preemptor: Preemptor) -> set[str]:
        units = self.candidates.units
        return {each.id for each in units if may_move(each) and self._victims.refusal(preemptor, each) is None}

    def counting(self, unit: EvictionUnit, times: int) -> None:
        """Its queue goes on using what it uses: only its place is another."""
        self.tallying(unit, times)

    def tallying(self, unit: EvictionUnit, times: int) -> None:
        self._victims.tallying(unit, times)

    def lost(self, unit: EvictionUnit) -> float:
        """GPU-seconds."""
        return gpu_seconds(unit.gang, unit.devices, self.candidates.now)


class MoveCost(NamedTuple):
    """The cost of the gangs that have to move from one node."""

    gpu_seconds: float
    gangs: int
    pods: int
    devices: int
    node: str


class MoveCosts(CostFunction[MoveCost]):
    """The fewest GPU-seconds that have to move before the unit fits on a node. No queue loses anything."""

    policy: MovePolicy

    def alike(self, preemptor: Preemptor) -> object:
        return preemptor.kind, len(preemptor.units) == 1

    def cheapest(self, trial: Trial) -> tuple[MoveCost, list[EvictionUnit]] | None:
        policy, preemptor, node = self.policy, trial.preemptor, trial.node
        if node.info in policy.unsettled:
            return None
        around = trial.candidates
        trial.budget.spend(len(around))
        there = [each for each in around if policy.refusal(preemptor, each) is None]
        if not there:
            return None
        there.sort(key=lambda each: (policy.lost(each) / max(1, each.devices_on(node.name)), each.rank))
        for victims in self._sets(there[:GANGS_MAX], node.name, trial.lacking):
            mark = policy.statement.checkpoint()
            allowed = True
            for each in victims:
                allowed = policy.refusal(preemptor, each) is None  # budgets that allow each may not allow all
                if not allowed:
                    break
                policy.evict(each, only=node.name)
            trial.budget.spend(STEPS_PUT)
            fits = allowed and trial.fits()
            policy.statement.rollback(mark)
            if fits:
                pods, devices = sum(len(each.members) for each in victims), sum(each.devices for each in victims)
                return MoveCost(self.lost(victims), len(victims), pods, devices, node.name), list(victims)
        return None

    def _sets(self, gangs: Sequence[EvictionUnit], node: str, lacking: int) -> list[tuple[EvictionUnit, ...]]:
        """Those that free enough devices, the cheapest first. A set is a bit mask: its sums are those without its lowest bit, and that one's."""
        lost, devices = [self.policy.lost(each) for each in gangs], [each.devices_on(node) for each in gangs]
        costs, freed = [0.0], [0]
        found: list[tuple[float, int, int]] = []
        for chosen in range(1, 1 << len(gangs)):
            without, lowest = chosen & (chosen - 1), (chosen & -chosen).bit_length() - 1
            costs.append(costs[without] + lost[lowest])
            freed.append(freed[without] + devices[lowest])
            if freed[-1] >= lacking:
                found.append((costs[-1], chosen.bit_count(), chosen))
        cheapest = heapq.nsmallest(SETS_MAX, found)
        return [tuple(each for at, each in enumerate(gangs) if chosen >> at & 1) for _, _, chosen in cheapest]

    def lost(self, units: Sequence[EvictionUnit]) -> float:
        """GPU-seconds."""
        return sum(map(self.policy.lost, units))

    def of_set(self, preemptor: Preemptor, victims: Sequence[EvictionUnit]) -> tuple[float, ...]:
        return (self.lost(victims),)


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Gangs that move with their new places, and the place of the gang for which they do: in force in both statements."""

    moved: list[tuple[EvictionUnit, list[UnitPlacement]]]
    placed: list[UnitPlacement]
    gpu_seconds: float


class MoveSearch:
    def __init__(self, policy: MovePolicy, now: Statement) -> None:
        self.policy = policy
        self._costs = MoveCosts(policy)
        self.cluster = policy.cluster
        self.pipelined = policy.statement
        self.now = now
        self._refused: set[object] = set()

    def choose(self, preemptor: Preemptor, *, serves_reservation: bool) -> MovePlan | None:
        """None: nothing moves for it, and both ledgers are as before."""
        key = (preemptor.kind, preemptor.signature, self.cluster.version, serves_reservation)
        if key in self._refused:
            return None
        self.policy.serves_reservation = serves_reservation
        self.policy.unsettled = {node for node, pods in self.pipelined.ledger.releasing_pods.items() if pods}
        plan = self._choose(preemptor)
        self.policy.placeless.clear()
        if plan is None and not self.cluster.accounts.payer.exhausted():
            self._refused.add(key)
        return plan

    def _choose(self, preemptor: Preemptor) -> MovePlan | None:
        if any(unit.shape.facets for unit in preemptor.units) or over_limit(preemptor.queue, preemptor.charge):
            return None
        units = self.policy.candidates.units
        if not self._enough_free(preemptor) or all(self.policy.refusal(preemptor, unit) for unit in units):
            return None
        self.policy.evictable = self.policy.evictable_for(preemptor) if self.policy.unsettled else set()
        budget = self.cluster.accounts.budget(self.cluster.snapshot.search_steps)
        for _ in range(ATTEMPTS_MAX):
            known = len(self.policy.placeless)
            plan = self._attempt(preemptor, budget)
            if plan is not None or len(self.policy.placeless) == known or budget.ended:
                return plan
        return None

    def _enough_free(self, preemptor: Preemptor) -> bool:
        """Whether there are as many free devices as it asks for, wherever they are; True where that is not to be had by counting."""
        shapes = {unit.shape for unit in preemptor.units}
        if len(shapes) != 1 or not (shape := next(iter(shapes))).plain:
            return True
        request, nodes = shape.claims[0].alternatives[0][0], self.cluster.cache.node_snapshot
        fit, left = self.pipelined.placer.device_fit(shape), request.count * len(preemptor.units)
        for node in nodes.all:
            left -= fit.free(request, nodes.candidates(node, request))
            if left <= 0:
                return True
        return False

    def _attempt(self, preemptor: Preemptor, budget: StepBudget) -> MovePlan | None:
        """The cheapest of the topology domains that the gang may use. A gang that found no other place is `placeless` afterwards."""
        allowed = allowed_domains(self.cluster.domains, preemptor.gang)
        domains: Sequence[TopologyDomain | None] = [None] if allowed is None else allowed
        best: tuple[float, TopologyDomain | None] | None = None
        for domain in domains if len(domains) > 1 else ():
            mark = self.pipelined.checkpoint()
            found = self._evict(preemptor, domain, budget)
            self.pipelined.rollback(mark)
            if found is not None and (best is None or self._costs.lost(found[0]) < best[0]):
                best = (self._costs.lost(found[0]), domain)
        if len(domains) == 1:
            best = (0.0, domains[0])
        return None if best is None else self._within(preemptor, best[1], budget)

    def _evict(
        self, preemptor: Preemptor, among: TopologyDomain | None, budget: StepBudget
    ) -> tuple[list[EvictionUnit], list[UnitPlacement]] | None:
        """What has to move, and the place that this makes: both in force. None, and rolled back, where there is none."""
        mark = self.pipelined.checkpoint()
        found = evict_and_place(preemptor, among, budget, CheapestNodes(self._costs))
        if found is not None and found[0]:
            return found
        self.pipelined.rollback(mark)
        return None

    def _within(self, preemptor: Preemptor, among: TopologyDomain | None, budget: StepBudget) -> MovePlan | None:
        later, now = self.pipelined.checkpoint(), self.now.checkpoint()
        found = self._evict(preemptor, among, budget)
        if found is None:
            return None
        units, placed = found
        charge = self.cluster.cache.charges.of_placed(placed)
        settled = not any(entry.node.info in self.policy.unsettled for entry in placed)
        if settled and not over_limit(preemptor.queue, charge):
            kept = self.now.hold(placed)
            unsettled = sorted(
                [node.name for node in self.policy.unsettled]
            )  # the next decision sees what is left there
            moved: list[tuple[EvictionUnit, list[UnitPlacement]]] = []
            for unit in sorted(units, key=lambda unit: (-unit.devices, unit.rank)):
                not_on = () if unit.id in self.policy.evictable else unsettled
                place = new_place(unit, self.now, self.cluster.snapshot, self.cluster.cache, held, not_on)
                if place is None:
                    self.policy.placeless.add(unit.id)
                    break
                self.pipelined.hold(place)
                moved.append((unit, place))
            else:
                self.now.unhold(kept)  # the step that nominates the gang holds it again
                return MovePlan(moved, placed, self._costs.lost(units))
        self.now.rollback(now)
        self.pipelined.rollback(later)
        return None


def may_move(unit: EvictionUnit) -> bool:
    """Whether it is a whole gang that runs, is movable, and has a place that can be written down."""
    gang = unit.gang
    return (
        unit.runs
        and unit.whole
        and movable(gang, unit.queue)
        and gang.relocation is not None
        and len(unit.members) == len(gang.relocation.members)
        and unit.devices <= DEVICES_MAX
    )


def new_place(
    unit: EvictionUnit,
    now: Statement,
    snapshot: Snapshot,
    cache: SchedulerCache,
    view: View = used,
    not_on: Sequence[str] = (),
) -> list[UnitPlacement] | None:
    """A place that is free now, and costs its queue no more than its limits allow; allocated in the statement.

    None, and nothing is allocated, where there is none. `view`: what of the queues counts against their limits. `not_on`: names of
    nodes.
    """
    mark = now.checkpoint()
    placed = _place(unit, now, snapshot.search_steps, cache.shapes, not_on)
    if placed is None:
        return None
    charge = cache.charges.of_placed(placed)
    more = {flavor: value - unit.charge.get(flavor, 0) for flavor, value in charge.items()}
    if over_limit(unit.queue, {flavor: value for flavor, value in more.items() if value > 0}, view):
        now.rollback(mark)
        return None
    return placed


def _place(
    unit: EvictionUnit, now: Statement, steps: int, shapes: Shapes, not_on: Sequence[str]
) -> list[UnitPlacement] | None:
    relocation = unit.gang.relocation
    assert relocation is not None
    try:
        units = shapes.units(relocation)
    except InvalidClaimError:
        return None
    if any(each.shape.facets for each in units):
        return None
    if not_on:
        more = [RefusedNode(node=name, until=0.0) for name in not_on]
        relocation = replace(relocation, refused=(*relocation.refused, *more))
    relocation = with_models(relocation, unit.queue)
    mark = now.checkpoint()
    placed = now.place(relocation, units, steps, spread=unit.queue.spec.strategy == "spread").placed
    picks = [pick for entry in placed for picks in entry.picks for pick in picks]
    if not placed or any(pick.device.shared or pick.request.admin for pick in picks):
        now.rollback(mark)
        return None
    return placed
