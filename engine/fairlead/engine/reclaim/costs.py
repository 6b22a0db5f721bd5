"""What it costs to make room for one unit of a gang, node by node: heaps of the cheapest nodes.

Victims are chosen where their devices make a place, not by count; and two thousand alike gangs do not each look at every
node. Nothing is evicted: every trial is rolled back. A node is looked at again when it has changed, and before it is offered.
While one decision is made fewer and fewer units may be evicted, so that a cost on a heap is never too high.
Cheap means, in this order (idle gangs that are `suspended` count as surplus of the lowest priority): no queue is left below what it deserves; no whole gang goes (surplus only); low priority; few gangs;
few pods; other queues before the gang's own; few devices; the queue with most surplus; least work to lose (started or saved last); created last; node name.
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fairlead.api import names
from fairlead.engine.placement.groups import by_subgroup
from fairlead.engine.placement.model import NodeScope
from fairlead.engine.placement.shapes import hardest_first
from fairlead.engine.placement.topology import parse, required
from fairlead.engine.queues.charges import add
from fairlead.engine.queues.limits import over_limit
from fairlead.engine.reclaim.policy import branches, path_to

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairlead.engine.allocator.steps import StepBudget
    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.model import TopologyDomain, UnitPlacement
    from fairlead.engine.placement.scored_nodes import ScoredNodes
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.placement.topology import TopologyDomains
    from fairlead.engine.queues.charges import Charge
    from fairlead.engine.queues.statement import Statement
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit, Rank
    from fairlead.engine.reclaim.eviction_policy import EvictionPolicy, Preemptor
    from fairlead.engine.types.gangs import GangRequest

Costs = TypeVar("Costs", bound="EvictionCosts")
Where = TypeVar("Where")
Queues = frozenset["Queue"]  # of the victims on one node
# What counts before the surplus of the victims' queues, and what counts after it.
Cost = tuple[tuple[bool, float, int, float, int, bool, int], tuple[float, float, str]]
if TYPE_CHECKING:
    Found = tuple[list[EvictionUnit], list[UnitPlacement]]
    """What was evicted, and where the gang's units are: both in force."""
DOMAINS_MAX = 32  # topology domains tried for one gang
STEPS_PUT = 10  # of the budget, for asking the allocator; trying one eviction unit is one step


class EvictionCosts:
    """For one kind of preemptor and one shape, over the nodes of `scored`."""

    def __init__(self, policy: EvictionPolicy, scored: ScoredNodes) -> None:
        self.policy = policy
        self.cluster = policy.cluster
        self.statement = policy.statement
        self.scored = scored
        # By queues of the victims: what those have in surplus changes with every choice, the rest of a cost seldom.
        self._heaps: dict[Queues, list[tuple[Cost, int, CandidateNode]]] = {}
        self._stamp: dict[CandidateNode, int] = {}
        self._cursor = -1

    @staticmethod
    def alike(preemptor: Preemptor) -> object:
        """Equal for preemptors whose units of one shape cost the same on each node, as long as no node changes."""
        return preemptor.kind, len(preemptor.units) == 1

    def best(
        self, preemptor: Preemptor, unit: PlacementUnit, budget: StepBudget
    ) -> tuple[CandidateNode, list[EvictionUnit]] | None:
        """The node where the unit finds a place for least, and what has to go; None when there is none."""
        self._catch_up(preemptor, unit, budget)
        while (queues := self._cheapest(preemptor)) is not None:
            cost, _, node = self._heaps[queues][0]
            found = self._cheapest_on(preemptor, unit, node, budget)
            if budget.out:
                budget.ended = True
                return None
            if found is not None and found[0] == cost:
                return node, found[1]
            heapq.heappop(self._heaps[queues])
            self._push(node, found)
        return None

    def _cheapest(self, preemptor: Preemptor) -> Queues | None:
        """Whose heap has the cheapest node on top."""
        best: tuple[tuple[object, ...], Queues] | None = None
        for queues in sorted(self._heaps, key=_names) if len(self._heaps) > 1 else list(self._heaps):
            heap = self._heaps[queues]
            while heap and heap[0][1] != self._stamp[heap[0][2]]:
                heapq.heappop(heap)
            if not heap:
                del self._heaps[queues]
                continue
            first, last = heap[0][0]
            surplus = min((_surplus(preemptor, queue, {}) for queue in queues), default=float("inf"))
            cost = (*first, -surplus, *last)
            if best is None or cost < best[0]:
                best = (cost, queues)
        return None if best is None else best[1]

    def _catch_up(self, preemptor: Preemptor, unit: PlacementUnit, budget: StepBudget) -> None:
        """Look again at the nodes that changed since the last time."""
        log = self.cluster.cache.node_snapshot.log
        self.scored.best()
        changed = None if self._cursor < 0 else log.since(self._cursor)
        for node in self.scored.among if changed is None else dict.fromkeys(changed):
            if budget.out:
                budget.ended = True
                self._cursor = -1  # not all were seen: begin again
                return
            possible = self.scored.eligible(node)
            self._push(node, self._cheapest_on(preemptor, unit, node, budget) if possible else None)
        self._cursor = log.cursor

    def _push(self, node: CandidateNode, found: tuple[Cost, list[EvictionUnit]] | None) -> None:
        stamp = self._stamp[node] = self._stamp.get(node, 0) + 1
        if found is not None:
            heapq.heappush(self._heaps.setdefault(self._queues_of(found[1]), []), (found[0], stamp, node))

    def _queues_of(self, victims: Sequence[EvictionUnit]) -> Queues:
        return frozenset(victim.queue for victim in victims)

    def _cheapest_on(
        self, preemptor: Preemptor, unit: PlacementUnit, node: CandidateNode, budget: StepBudget
    ) -> tuple[Cost, list[EvictionUnit]] | None:
        """The cheapest victims found that make room on this node: in order, one alone, or the largest first."""
        candidates: Sequence[EvictionUnit] = self.policy.candidates.by_node.get(node.name, ())
        if not candidates:
            return None
        candidates = self._ordered(preemptor, candidates)
        best = self._try(preemptor, unit, node, candidates, budget)
        alone = best[1][0].devices_on(node.name) if best is not None and len(best[1]) == 1 else None
        orders: list[Sequence[EvictionUnit]] = [
            (each,)
            for each in candidates
            if (alone is None or each.devices_on(node.name) < alone) and self._enough_alone(unit, node, each)
        ]
        if alone is None and len({each.devices_on(node.name) for each in candidates}) > 1:
            orders.append(sorted(candidates, key=lambda each: (-each.devices_on(node.name), each.rank)))
        for order in orders:
            other = self._try(preemptor, unit, node, order, budget)
            if other is not None and (best is None or other[0] < best[0]):
                best = other
        return best

    def _ordered(self, preemptor: Preemptor, candidates: Sequence[EvictionUnit]) -> Sequence[EvictionUnit]:
        """Of alike units of several queues each time one of the queue that then has most surplus; the own queue's last."""
        if len({each.queue for each in candidates}) == 1:
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

    def _enough_alone(self, unit: PlacementUnit, node: CandidateNode, candidate: EvictionUnit) -> bool:
        """Whether the candidate alone might make room: for n alike devices only if it and what is free are enough."""
        if not unit.shape.plain:
            return True
        request = unit.shape.claims[0].alternatives[0][0]
        free = self.scored.room.free(request, self.cluster.cache.node_snapshot.candidates(node, request))
        return free + candidate.devices_on(node.name) >= request.count

    def _try(
        self,
        preemptor: Preemptor,
        unit: PlacementUnit,
        node: CandidateNode,
        order: Sequence[EvictionUnit],
        budget: StepBudget,
    ) -> tuple[Cost, list[EvictionUnit]] | None:
        """Evict in this order until the unit fits, spare what was not needed; the cost, and all rolled back."""
        mark = self.statement.checkpoint()
        victims: list[EvictionUnit] = []
        fits = False
        for _ in range(2):  # what is refused at first may be allowed once gangs of the own queue are gone
            before = len(victims)
            for each in order:
                if not budget.spend(1):
                    break
                if self.policy.refusal(preemptor, each) is not None:
                    continue
                self.policy.evict(each, only=node.name)
                victims.append(each)
                fits = self._fits(preemptor, unit, node, budget)
                if fits:
                    break
            if fits or len(victims) == before:
                break
        if fits:
            for each in victims[-2::-1]:
                self.policy.spare(each, only=node.name)
                victims.remove(each)
                if not self._fits(preemptor, unit, node, budget):
                    self.policy.evict(each, only=node.name)
                    victims.append(each)
        cost = self._cost(preemptor, node, victims) if fits else None
        self.statement.rollback(mark)
        return None if cost is None else (cost, victims)

    def _fits(self, preemptor: Preemptor, unit: PlacementUnit, node: CandidateNode, budget: StepBudget) -> bool:
        if len(preemptor.units) == 1 and over_limit(preemptor.queue, preemptor.charge):
            return False
        if self.scored.score(node) is None:
            return False
        if unit.shape.plain:
            return True
        budget.spend(STEPS_PUT)
        mark = self.statement.checkpoint()
        placed = self.statement.put(unit, node, budget)
        self.statement.rollback(mark)
        return placed is not None

    def _cost(self, preemptor: Preemptor, node: CandidateNode, victims: Sequence[EvictionUnit]) -> Cost:
        """As things stand with all of them gone; the surplus of their queues comes between the two parts."""
        whole = [float(each.rank[1]) for each in victims if each.rank[0]]
        surplus = [float(each.rank[1]) for each in victims if not each.rank[0]]
        first = (
            any(_leaves_below_deserved(preemptor, each) for each in victims),
            max(whole, default=float("-inf")),
            len(whole),
            max(surplus, default=float("-inf")),
            sum(len(each.members) for each in victims),
            any(each.queue is preemptor.queue for each in victims),
            sum(each.devices for each in victims),
        )
        started = min((each.works_since for each in victims), default=0.0)
        return first, (-started, -min((each.gang.created for each in victims), default=0.0), node.name)


def _branch(preemptor: Preemptor, queue: Queue) -> Queue:
    """The victim queue's branch below the common ancestor."""
    return queue if queue is preemptor.queue else branches(preemptor.queue, queue)[1]


def _surplus(preemptor: Preemptor, queue: Queue, gone: Mapping[Queue, Charge]) -> float:
    """What the victim queue's branch has beyond deserved, for its weight, without what is `gone` of it."""
    branch = _branch(preemptor, queue)
    less = gone.get(branch, {})
    deciding = branch.tree.deciding(preemptor.charge)
    return max((branch.surplus(flavor, -less.get(flavor, 0)) for flavor in deciding), default=0.0)


def _names(queues: Queues) -> list[str]:
    return sorted(queue.name for queue in queues)


def _leaves_below_deserved(preemptor: Preemptor, victim: EvictionUnit) -> bool:
    """Whether its queue, or one above it up to its branch, is left with less than it deserves and asks for."""
    if victim.queue is preemptor.queue:
        return False
    return any(
        step.used.get(flavor, 0) < min(step.deserved(flavor), step.demand.get(flavor, 0))
        for step in path_to(_branch(preemptor, victim.queue), victim.queue)
        for flavor in victim.charge
    )


def allowed_domains(domains: TopologyDomains, gang: GangRequest) -> list[TopologyDomain] | None:
    """The topology domains in which room may be made for the gang; None: anywhere. Raises InvalidClaimError."""
    allowed = domains.allowed(parse(gang.topology), domains.nodes(gang.placed_nodes))
    return None if allowed is None else allowed[:DOMAINS_MAX]


def evict_and_place(
    policy: EvictionPolicy,
    preemptor: Preemptor,
    among: TopologyDomain | None,
    budget: StepBudget,
    known: dict[object, Costs],
    costs: type[Costs],
    cost: Callable[[Sequence[EvictionUnit]], tuple[float, ...]],
) -> Found | None:
    """Each unit of the gang where it fits, else where making room costs least: what was evicted, and all places, both in force.

    None, rolled back, if a unit finds no place. Greedy: what this misses, the searches of its callers find. Victims and
    reservations differ in policy (what may count as gone), in `costs`, and in the `cost` of a set of victims, by which a subgroup's domain
    is chosen; `known` has the costs of earlier calls.
    """
    choices = policy.cluster.domains.models.choices(preemptor.gang, preemptor.units)
    place = partial(_evict_for_units, policy, preemptor, among, budget, known, costs, cost)
    if choices is None:
        return place(preemptor.units)
    return _where_least_goes(policy.statement, [choice.units for choice in choices.of], place, cost)


def _evict_for_units(
    policy: EvictionPolicy,
    preemptor: Preemptor,
    among: TopologyDomain | None,
    budget: StepBudget,
    known: dict[object, Costs],
    costs: type[Costs],
    cost: Callable[[Sequence[EvictionUnit]], tuple[float, ...]],
    wanted: Sequence[PlacementUnit],
) -> Found | None:
    """As `evict_and_place`, for these units of the gang."""
    statement = policy.statement
    mark = statement.checkpoint()
    evicted: list[EvictionUnit] = []
    placed: list[UnitPlacement] = []
    for units, domains in _parts(policy.cluster.domains, preemptor, wanted, among):
        place = partial(_evict_and_place, policy, preemptor, hardest_first(units), budget, known, costs)
        found = place(domains[0]) if len(domains) == 1 else _where_least_goes(statement, domains, place, cost)
        if found is None:
            statement.rollback(mark)
            return None
        evicted += found[0]
        placed += found[1]
    return evicted, placed


def _parts(
    domains: TopologyDomains, preemptor: Preemptor, wanted: Sequence[PlacementUnit], among: TopologyDomain | None
) -> list[tuple[Sequence[PlacementUnit], Sequence[TopologyDomain | None]]]:
    """The units that must be in one domain together, and the domains of which one must be theirs. Subgroups have some of their own."""
    gang = preemptor.gang
    inner = parse(gang.subgroup_topology, names.SUBGROUP_TOPOLOGY)
    if not required(inner):
        return [(wanted, (among,))]
    found: list[tuple[Sequence[PlacementUnit], Sequence[TopologyDomain | None]]] = []
    for group in sorted(by_subgroup(gang, wanted), key=lambda each: (-each.least, each.rank, each.names)):
        allowed = domains.allowed(inner, domains.nodes(group.placed), among) or ()
        found.append((group.units, allowed[:DOMAINS_MAX]))
    return found


def _where_least_goes(
    statement: Statement,
    domains: Sequence[Where],
    place: Callable[[Where], Found | None],
    cost: Callable[[Sequence[EvictionUnit]], tuple[float, ...]],
) -> Found | None:
    """In the first domain, or on the first model, where nothing needs to go, else where it costs least."""
    least: tuple[tuple[float, ...], Where] | None = None
    for domain in domains:
        mark = statement.checkpoint()
        found = place(domain)
        if found is not None and not found[0]:
            return found
        if found is not None:
            statement.rollback(mark)
            if least is None or cost(found[0]) < least[0]:
                least = cost(found[0]), domain
    return None if least is None else place(least[1])


def _evict_and_place(
    policy: EvictionPolicy,
    preemptor: Preemptor,
    units: Sequence[PlacementUnit],
    budget: StepBudget,
    known: dict[object, Costs],
    costs: type[Costs],
    among: TopologyDomain | None,
) -> Found | None:
    """These units, in one domain."""
    statement = policy.statement
    scope = NodeScope.of(preemptor.gang, spread=preemptor.spread, among=among)
    mark = statement.checkpoint()
    evicted: list[EvictionUnit] = []
    placed: list[UnitPlacement] = []
    for unit in units:
        entry = statement.placer.place_unit(unit, budget, scope)
        if entry is not None:
            statement.allocated((entry,))
        else:
            key = (costs.alike(preemptor), unit.shape, scope)
            if key not in known:
                known[key] = costs(policy, statement.placer.scored_nodes(unit.shape, scope))
            cheapest = known[key].best(preemptor, unit, budget)
            if cheapest is not None:
                node, victims = cheapest
                for victim in victims:
                    policy.evict(victim)
                evicted += victims
                entry = statement.put(unit, node, budget)
        if entry is None:
            statement.rollback(mark)
            return None
        placed.append(entry)
    return evicted, placed
