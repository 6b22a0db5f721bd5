"""The victims of one gang: found, made minimal, and judged again as a whole.

Victims are evicted only if the gang then really has a place on nodes and devices that exist. First unit by unit, each where it is
cheapest; where that fails, everything that may go is evicted on trial, in order, and what was not needed is spared.
Cheap means, in this order (idle gangs that are `suspended` count as surplus of the lowest priority): no queue is left below what it
deserves; no whole gang goes (surplus only); low priority; few gangs; few pods; other queues before the gang's own; few devices; the queue
with most surplus; least work to lose (started or saved last); created last; node name.
A refusal holds for that kind of gang until more comes free.
Invariants: no victim of the found set could be spared; the set is judged again from nothing, so that sparing one never makes
an earlier choice illegal (kueue#14543); without a result the statement is rolled back: ledger, queues and budgets are as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.placement.model import TopologyDomain, UnitPlacement
from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.queues.limits import over_limit
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.candidates import EvictionUnit, Rank
from fairlead.engine.reclaim.cheapest_nodes import CheapestNodes, CostFunction, Queues, Trial
from fairlead.engine.reclaim.evict_and_place import allowed_domains, evict_and_place
from fairlead.engine.reclaim.eviction_policy import Preemptor, VictimPolicy
from fairlead.engine.reclaim.policy import branches, path_to
from fairlead.engine.types.reasons import PreemptionBlock

NONE = float("-inf")  # the priority where nothing of the sort goes


class VictimCost(NamedTuple):
    """The cost of victims on one node."""

    leaves_below_deserved: bool
    highest_priority: float  # of the whole gangs
    gangs: int  # that go whole
    highest_surplus_priority: float
    pods: int
    own_queue: bool  # one of them is of the preemptor's
    devices: int
    surplus: float  # of their queue with the least, negative; 0 as long as costs of the same queues are compared
    unsaved_since: float  # since when work is not saved, at the earliest; negative
    created: float  # of the gang that was created first, negative
    node: str


class VictimCosts(CostFunction[VictimCost]):
    def alike(self, preemptor: Preemptor) -> object:
        return preemptor.kind, len(preemptor.units) == 1

    def cheapest(self, trial: Trial) -> tuple[VictimCost, list[EvictionUnit]] | None:
        preemptor, node = trial.preemptor, trial.node.name
        return trial.cheapest(_ordered(preemptor, trial.candidates), lambda victims: _cost(preemptor, victims, node))

    def of_set(self, preemptor: Preemptor, victims: Sequence[EvictionUnit]) -> tuple[float, ...]:
        """Low priority, few gangs, few pods, the youngest."""
        whole = [unit.rank[1] for unit in victims if unit.rank[0]]
        started = min((unit.works_since for unit in victims), default=0.0)
        created = min((unit.gang.created for unit in victims), default=0.0)
        pods = sum(len(unit.members) for unit in victims)
        return (max(whole, default=NONE), len(whole), pods, -started, -created)

    def queues(self, victims: Sequence[EvictionUnit]) -> Queues:
        return frozenset(victim.queue for victim in victims)

    def at_present(self, preemptor: Preemptor, queues: Queues, cost: VictimCost) -> VictimCost:
        return cost._replace(surplus=-min(_surplus(preemptor, queue, {}) for queue in queues))


def _cost(preemptor: Preemptor, victims: Sequence[EvictionUnit], node: str) -> VictimCost:
    """As things stand with all of them gone."""
    whole = [float(each.rank[1]) for each in victims if each.rank[0]]
    return VictimCost(
        leaves_below_deserved=any(_leaves_below_deserved(preemptor, each) for each in victims),
        highest_priority=max(whole, default=NONE),
        gangs=len(whole),
        highest_surplus_priority=max((float(each.rank[1]) for each in victims if not each.rank[0]), default=NONE),
        pods=sum(len(each.members) for each in victims),
        own_queue=any(each.queue is preemptor.queue for each in victims),
        devices=sum(each.devices for each in victims),
        surplus=0.0,
        unsaved_since=-min((each.works_since for each in victims), default=0.0),
        created=-min((each.gang.created for each in victims), default=0.0),
        node=node,
    )


def _ordered(preemptor: Preemptor, candidates: Sequence[EvictionUnit]) -> Sequence[EvictionUnit]:
    """Alike units of several queues, each time one of the queue that then has most surplus; the own queue's last."""
    if len({each.queue for each in candidates}) <= 1:
        return candidates
    lines: dict[tuple[bool, float, Queue], list[EvictionUnit]] = {}
    for each in reversed(candidates):
        lines.setdefault((*each.rank[:2], each.queue), []).append(each)
    gone: dict[Queue, Charge] = {}  # by branch: of the units ordered so far
    ordered: list[EvictionUnit] = []

    def turn(key: tuple[bool, float, Queue]) -> tuple[bool, float, bool, float, Rank]:
        queue = key[2]
        return (*key[:2], queue is preemptor.queue, -_surplus(preemptor, queue, gone), lines[key][-1].rank)

    while lines:
        key = min(lines, key=turn) if len(lines) > 1 else next(iter(lines))
        each = lines[key].pop()
        ordered.append(each)
        add(gone.setdefault(_branch(preemptor, each.queue), {}), each.charge)
        if not lines[key]:
            del lines[key]
    return ordered


def _branch(preemptor: Preemptor, queue: Queue) -> Queue:
    """The victim queue's branch below the common ancestor."""
    return queue if queue is preemptor.queue else branches(preemptor.queue, queue)[1]


def _surplus(preemptor: Preemptor, queue: Queue, gone: Mapping[Queue, Charge]) -> float:
    """What the victim queue's branch has beyond deserved, for its weight, without what is `gone` of it."""
    branch = _branch(preemptor, queue)
    less = gone.get(branch, {})
    deciding = branch.tree.deciding(preemptor.charge)
    return max((branch.surplus(flavor, -less.get(flavor, 0)) for flavor in deciding), default=0.0)


def _leaves_below_deserved(preemptor: Preemptor, victim: EvictionUnit) -> bool:
    """Whether its queue, or one above it up to its branch, is left with less than it deserves and asks for."""
    if victim.queue is preemptor.queue:
        return False
    return any(
        step.used.get(flavor, 0) < min(step.deserved(flavor), step.demand.get(flavor, 0))
        for step in path_to(_branch(preemptor, victim.queue), victim.queue)
        for flavor in victim.charge
    )


UNITS_MAX = 20_000  # looked at for one gang when nodes alone do not show the way
STEPS_VICTIM = 2_000  # given back for each victim that was found
STEPS_UNIT = 10  # what placing one unit again costs, in eviction units looked at


@dataclass(slots=True)
class VictimChoice:
    """The victims, in order, and where the gang is placed: both in force in the pipelined cluster's statement.

    `preemptor` is as it was judged: with the charge for which they go.
    """

    preemptor: Preemptor
    victims: list[EvictionUnit]
    placed: list[UnitPlacement]


class VictimSearch:
    def __init__(self, policy: VictimPolicy) -> None:
        self.policy = policy
        self.cluster = policy.cluster
        self.statement = policy.statement
        self._costs = VictimCosts(policy)
        self._cheapest = CheapestNodes(self._costs)
        self._refused: dict[object, PreemptionBlock] = {}

    def choose(self, preemptor: Preemptor) -> VictimChoice | PreemptionBlock:
        """A legal, minimal set of victims; or why there is none."""
        key = (preemptor.kind, preemptor.signature, self.cluster.version)
        known = self._refused.get(key) or self._refused.get((preemptor.kind, "none"))
        if known is not None:
            return known
        if not self.policy.any_victim(preemptor):
            self._refused[preemptor.kind, "none"] = PreemptionBlock.PLACE
            return PreemptionBlock.PLACE
        budget = self.cluster.accounts.budget(self.cluster.snapshot.search_steps)
        before = budget.account.used
        choice = self._unit_by_unit(preemptor, budget) or self._of_all(preemptor, budget)
        if choice is not None:  # what is found costs no steps, but for what is far more than that takes
            used = budget.account.used - before
            budget.account.spend(-min(used, STEPS_VICTIM * len(choice.victims)))
        if choice is None:
            block = PreemptionBlock.STEPS if budget.ended or budget.account.exhausted() else PreemptionBlock.PLACE
            if budget.account.exhausted():
                return block
            self._refused[key] = block
        return choice or self._refused[key]

    def forget(self) -> None:
        """There may be more victims than before: what was refused is looked at again."""
        self._refused.clear()
        self.policy.forget()

    # ---------------------------------------------------------------------------------------------- unit by unit

    def _unit_by_unit(self, preemptor: Preemptor, budget: StepBudget) -> VictimChoice | None:
        """Each unit where it costs least; of topology domains the cheapest."""
        mark = self.statement.checkpoint()
        domains = allowed_domains(self.cluster.domains, preemptor.gang)
        domain: TopologyDomain | None = None
        if domains is not None:
            costs: list[tuple[tuple[float, ...], TopologyDomain]] = []
            for each in domains:
                victims = self._greedy(preemptor, each, budget)
                if victims is not None:
                    self.statement.rollback(mark)
                    costs.append((self._costs.of_set(preemptor, victims), each))
            if not costs:
                return None
            domain = min(costs, key=lambda cost: cost[0])[1]
        return self._minimal(preemptor, self._greedy(preemptor, domain, budget), mark, budget)

    def _greedy(
        self, preemptor: Preemptor, among: TopologyDomain | None, budget: StepBudget
    ) -> list[EvictionUnit] | None:
        """Victims evicted so that every unit found a node; None, and none evicted, when one found none."""
        found = evict_and_place(preemptor, among, budget, self._cheapest)
        if found is None:
            return None
        victims, placed = found
        self.statement.deallocate(placed)
        return victims

    # ------------------------------------------------------------------------------------------ all that may go

    def _of_all(self, preemptor: Preemptor, budget: StepBudget) -> VictimChoice | None:
        """Everything that may go is evicted, then what was not needed is spared.

        Each victim leaves its queue less surplus, and a gang larger than what is left of it may not go. So where members come
        first and are not enough, the same is tried with whole gangs only, and with the largest first.
        """
        units = [unit for unit in self.policy.candidates.units if _may_help(preemptor, unit)][:UNITS_MAX]
        orders = [units]
        whole = [unit for unit in units if unit.whole]
        if len(whole) < len(units):
            orders.append(whole)
        if len({unit.devices for unit in whole}) > 1:
            orders.append(sorted(whole, key=lambda unit: (-unit.devices, unit.rank)))
        for order in orders:
            mark = self.statement.checkpoint()
            choice = self._minimal(preemptor, self._evict_all(preemptor, order, budget), mark, budget)
            if choice is not None:
                return choice
        return None

    def _evict_all(self, preemptor: Preemptor, units: Sequence[EvictionUnit], budget: StepBudget) -> list[EvictionUnit]:
        """Those of them that may go."""
        evicted: list[EvictionUnit] = []
        for _ in range(2):  # what is refused at first may be allowed once gangs of the own queue are gone
            before = len(evicted)
            for unit in units:
                if not budget.spend(1):
                    budget.ended = True
                    break
                if self.policy.refusal(preemptor, unit) is None:
                    self.policy.evict(unit)
                    evicted.append(unit)
            if len(evicted) == before:
                break
        return evicted

    # -------------------------------------------------------------------------------------- minimal, and legal

    def _minimal(
        self, preemptor: Preemptor, victims: list[EvictionUnit] | None, mark: int, budget: StepBudget
    ) -> VictimChoice | None:
        """Place the gang, spare what it can do without, and judge what is left; None, and rolled back to `mark`, if that fails."""
        if victims is None:
            return None
        placed = self._place(preemptor)
        if placed is not None:
            victims, placed = self._spare(preemptor, victims, placed, budget)
        if placed is not None and victims and self._legal(preemptor, victims, placed):
            return VictimChoice(preemptor, victims, placed)
        self.statement.rollback(mark)
        return None

    def _place(self, preemptor: Preemptor) -> list[UnitPlacement] | None:
        if over_limit(preemptor.queue, preemptor.charge):
            return None
        steps = self.cluster.snapshot.search_steps
        return self.statement.place(preemptor.gang, preemptor.units, steps, spread=preemptor.spread).placed or None

    def _spare(
        self, preemptor: Preemptor, victims: list[EvictionUnit], placed: list[UnitPlacement], budget: StepBudget
    ) -> tuple[list[EvictionUnit], list[UnitPlacement] | None]:
        """Without the victims that are not needed: those on none of the gang's nodes at once, then one by one, last one first."""
        victims = self._on_its_nodes(preemptor, victims, placed)
        for unit in list(reversed(victims)) if len(victims) > 1 else ():
            if not budget.spend(STEPS_UNIT * len(preemptor.units)):
                budget.ended = True
                break
            self.statement.deallocate(placed)
            mark = self.statement.checkpoint()
            self.policy.spare(unit)
            others = [other for other in victims if other is not unit]
            found = self._place(preemptor)
            if found is not None and self._legal(preemptor, others, found):
                victims, placed = others, found
                continue
            self.statement.rollback(mark)
            again = self._place(preemptor)
            if again is None:
                return victims, None
            placed = again
        return victims, placed

    def _on_its_nodes(
        self, preemptor: Preemptor, victims: list[EvictionUnit], placed: Sequence[UnitPlacement]
    ) -> list[EvictionUnit]:
        """Without the victims that are on none of the gang's nodes, if the rest is legal."""
        nodes = {entry.node.name for entry in placed}
        needed = [unit for unit in victims if any(node in nodes for node in unit.nodes)]
        if len(needed) == len(victims) or self.cluster.cache.node_snapshot.has_network_attached:
            return victims
        mark = self.statement.checkpoint()
        for unit in victims:
            if unit not in needed:
                self.policy.spare(unit)
        if self._legal(preemptor, needed, placed):
            return needed
        self.statement.rollback(mark)
        return victims

    def _legal(self, preemptor: Preemptor, victims: Sequence[EvictionUnit], placed: Sequence[UnitPlacement]) -> bool:
        """Whether, with what the gang really gets, each victim may go when its turn comes, in some order, from nothing."""
        charge = self.cluster.cache.charges.of_placed(placed)
        if over_limit(preemptor.queue, charge):
            return False
        real = replace(preemptor, charge=charge)
        if self.policy.exceeds_fair_share(real, victims) or self.policy.leaves_victim_below_deserved(real, victims):
            return False
        mark = self.statement.checkpoint()
        for unit in victims:
            self.statement.undo(self.policy.counting, unit)
        left = sorted(victims, key=lambda unit: (unit.devices, unit.rank))
        while left:
            going = next((unit for unit in left if self.policy.refusal(real, unit) is None), None)
            if going is None:
                self.statement.rollback(mark)
                return False
            self.statement.do(self.policy.counting, going)
            left.remove(going)
        return True  # and all of them count as gone again


def _may_help(preemptor: Preemptor, unit: EvictionUnit) -> bool:
    """False of a running unit of another queue that holds nothing of a flavor that is asked for: it may not go."""
    return unit.queue is preemptor.queue or not unit.starts or any(flavor in preemptor.charge for flavor in unit.charge)
