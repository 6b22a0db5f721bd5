"""What evictions for a gang cost. Cheap means, in this order (idle gangs that are `suspended` count as surplus of the lowest priority):

no queue is left below what it deserves; no whole gang goes (surplus only); low priority; few gangs; few pods; other queues before
the gang's own; few devices; the queue with most surplus; least work to lose (started or saved last); created last; node name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead.engine.queues.charges import add
from fairlead.engine.reclaim.cheapest_nodes import CostFunction
from fairlead.engine.reclaim.policy import branches, path_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead.engine.queues.charges import Charge
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit, Rank
    from fairlead.engine.reclaim.cheapest_nodes import Queues
    from fairlead.engine.reclaim.eviction_policy import Preemptor
    from fairlead.engine.reclaim.trial import Trial

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

    def of_set(self, victims: Sequence[EvictionUnit]) -> tuple[float, ...]:
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
    """Of alike units of several queues each time one of the queue that then has most surplus; the own queue's last."""
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
