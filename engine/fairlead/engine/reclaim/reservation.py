"""Places reserved for gangs that have waited too long, and which gangs may use them meanwhile.

Without them small gangs would push a large one back forever. A reserved place is devices and room on named nodes: those for
which the fewest gangs have to end that promise no end, then those that end soonest, then the fewest devices; where the gang's queue would
hold more than its share even then, those whose gangs give that back. Each decision works it out again. It stays where it is while the same
gangs run, and moves only to where there is less to wait for: nothing starts on it (but what ends in time), so each end of a gang there
brings the reserved gang nearer. So a feasible gang is passed over at most until those have ended that ran on its nodes when its
reservation began.
Bounds: one per queue and flavor, a few in all (`plan.held`), and only for a gang that its queue's limits and fair share allow; beyond
that nothing idles. Backfill: a gang that ends (activeDeadlineSeconds) before `ready_by` may start on the place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple

from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.placement.model import TopologyDomain, UnitPlacement
from fairlead.engine.queues.limits import over_limit
from fairlead.engine.queues.statement import Statement
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.candidates import EvictionUnit, VictimCandidates
from fairlead.engine.reclaim.cheapest_nodes import CheapestNodes, CostFunction, Trial
from fairlead.engine.reclaim.evict_and_place import allowed_domains, evict_and_place
from fairlead.engine.reclaim.eviction_policy import EvictionPolicy, Preemptor
from fairlead.engine.reclaim.policy import beyond_share
from fairlead.engine.reclaim.releasing import PipelinedCluster
from fairlead.engine.types.reasons import PreemptionBlock
from fairlead.engine.types.values import Amount


class Hold:
    """Devices and room that are held on one ledger, and may be lent meanwhile."""

    def __init__(self, statement: Statement, placed: Sequence[UnitPlacement]) -> None:
        self._statement = statement
        self._placed = placed
        self._held = statement.hold(placed)

    @property
    def held(self) -> list[UnitPlacement]:
        return self._held

    def take(self) -> None:
        """Hold them again; what another gang has taken meanwhile is not held."""
        self._held = self._statement.hold(self._placed)

    def lend(self) -> None:
        """Let a gang use them, until `take`."""
        self._statement.unhold(self._held)
        self._held = []


@dataclass(frozen=True, slots=True, eq=False)
class ReservedPlace:
    """`now` keeps it from gangs that start now, `later` from nominated gangs and preemptors. `ready_by`: unix seconds, or not known."""

    preemptor: Preemptor
    placed: list[UnitPlacement]
    ready_by: float | None
    now: Hold
    later: Hold


class WaitPolicy(EvictionPolicy):
    """Every running gang may end, as a whole: to waiting what `VictimPolicy` is to evicting."""

    def __init__(self, cluster: PipelinedCluster, candidates: VictimCandidates) -> None:
        super().__init__(cluster, candidates)
        self._ended: dict[str, int] = defaultdict(int)  # by gang id

    def refusal(self, preemptor: Preemptor, unit: EvictionUnit) -> PreemptionBlock | None:
        return None if unit.whole and not self._ended.get(unit.id) else PreemptionBlock.PLACE

    def within_share(self, preemptor: Preemptor) -> bool:
        return not _beyond_share(preemptor)

    def tallying(self, unit: EvictionUnit, times: int) -> None:
        self._ended[unit.id] += times


class WaitCost(NamedTuple):
    """The cost of the gangs that have to end on one node."""

    useless: int  # gangs whose end gives nothing back of what the preemptor's share is short of
    endless: int  # gangs without a known end
    until: float  # the last known end; unix seconds
    devices: int  # on the node
    node: str


class WaitCosts(CostFunction[WaitCost]):
    """What has to end on each node before the unit fits there. A gang that ends by itself costs its queue nothing."""

    def alike(self, preemptor: Preemptor) -> object:
        """What their queue holds decides for gangs of one unit; it changes though no node does."""
        return preemptor if len(preemptor.units) == 1 else (preemptor.queue, self.short_of(preemptor))

    def short_of(self, preemptor: Preemptor) -> tuple[Queue, str] | None:
        """What is to be given back, before anything else counts: of a queue's share, of a flavor."""
        return None

    def cheapest(self, trial: Trial) -> tuple[WaitCost, list[EvictionUnit]] | None:
        """The cheapest gangs, those of the own queue first: their end also frees what the queue's share is short of."""
        preemptor, on_node, node = trial.preemptor, trial.candidates, trial.node.name
        short = self.short_of(preemptor)
        if len(preemptor.units) == 1 and any(
            _given_back(on_node, step, flavor) < more for step, flavor, more in _beyond_share(preemptor)
        ):
            return None
        own_first = sorted(
            on_node, key=lambda each: (_useless(short, (each,)), each.queue is not preemptor.queue, each.rank)
        )
        return trial.cheapest(
            own_first,
            lambda ending: WaitCost(_useless(short, ending), *_ends(ending), _devices_on(node, ending), node),
        )

    def of_set(self, preemptor: Preemptor, victims: Sequence[EvictionUnit]) -> tuple[float, ...]:
        return (_useless(self.short_of(preemptor), victims), *_cost(victims))


class ShareCosts(WaitCosts):
    """For a gang of several units that the cheapest place does not bring within its share: when all have ended that its units wait for.

    Each unit looks first for gangs that give back what the share is short of, until it is short of nothing: two units of two GPUs each, of
    which the queue has a share of two left, wait for one gang of their own queue, and for any other.
    """

    def short_of(self, preemptor: Preemptor) -> tuple[Queue, str] | None:
        """Of the first queue on the way up that is short of anything."""
        short = _beyond_share(preemptor)
        return short[0][:2] if short else None


class Reserver:
    def __init__(self, cluster: PipelinedCluster, candidates: VictimCandidates) -> None:
        self.cluster = cluster
        self.policy = WaitPolicy(cluster, candidates)
        self._tries = (CheapestNodes(WaitCosts(self.policy)), CheapestNodes(ShareCosts(self.policy)))
        self._costs_of = -1  # version of the candidates

    def reserve(self, preemptor: Preemptor, now: Statement) -> ReservedPlace | None:
        """A place for the gang, held in both ledgers; None when it gets none."""
        if not self._may_be_allowed(preemptor):
            return None
        if self._costs_of != self.policy.candidates.version:
            for each in self._tries:
                each.clear()
            self._costs_of = self.policy.candidates.version
        budget = self.cluster.accounts.budget(self.cluster.snapshot.search_steps)
        allowed = allowed_domains(self.cluster.domains, preemptor.gang)
        domains: Sequence[TopologyDomain | None] = [None] if allowed is None else allowed
        waits = [wait for domain in domains if (wait := self._wait(preemptor, domain, budget)) is not None]
        if not waits:
            return None
        _, placed, ready_by = min(waits, key=lambda wait: wait[0])
        return ReservedPlace(preemptor, placed, ready_by, Hold(now, placed), Hold(self.cluster.statement, placed))

    def _may_be_allowed(self, preemptor: Preemptor) -> bool:
        """False where no place brings the gang within its share: one has as many nodes as the gang has units, at most."""
        for step, flavor, more in _beyond_share(preemptor):
            by_node: dict[str, Amount] = defaultdict(int)
            for queue, units in self.policy.candidates.by_queue.items():
                for each in units if step in queue.path() else ():
                    for node in each.nodes:
                        by_node[node] += each.charge.get(flavor, 0)
            if sum(nlargest(len(preemptor.units), by_node.values())) < more:
                return False
        return True

    def _wait(
        self, preemptor: Preemptor, among: TopologyDomain | None, budget: StepBudget
    ) -> tuple[tuple[int, float, int], list[UnitPlacement], float | None] | None:
        """What the gang has to wait for, as a cost, where, and until when."""
        for cheapest in self._tries if len(preemptor.units) > 1 else self._tries[:1]:
            mark = self.cluster.statement.checkpoint()
            found = evict_and_place(preemptor, among, budget, cheapest)
            allowed = found is not None and _allowed(preemptor)
            self.cluster.statement.rollback(mark)
            if found is None:
                return None
            if allowed:
                ending, placed = found
                endless, until = _ends(ending)
                return _cost(ending), placed, until if ending and not endless else None
        return None


def _cost(ending: Sequence[EvictionUnit]) -> tuple[int, float, int]:
    """Gangs without a known end, the last known end, devices."""
    return (*_ends(ending), sum(unit.devices for unit in ending))


def _ends(ending: Sequence[EvictionUnit]) -> tuple[int, float]:
    """Gangs without a known end, and the last known end."""
    known = [unit.gang.ends_by for unit in ending if unit.gang.ends_by is not None]
    return len(ending) - len(known), max(known, default=0.0)


def _devices_on(node: str, units: Iterable[EvictionUnit]) -> int:
    return sum(each.devices_on(node) for each in units)


def _beyond_share(preemptor: Preemptor) -> list[tuple[Queue, str, Amount]]:
    """How much of what has to be given back where before the gang is within its fair share; nothing where there are no queues."""
    return beyond_share(preemptor.queue, preemptor.charge) if preemptor.queue.name else []


def _useless(short: tuple[Queue, str] | None, ending: Iterable[EvictionUnit]) -> int:
    """How many of these give nothing back of it."""
    return 0 if short is None else sum(not _given_back((each,), *short) for each in ending)


def _given_back(units: Iterable[EvictionUnit], step: Queue, flavor: str) -> Amount:
    """At most, of this queue and those below it, when all of these have ended."""
    return sum(each.charge.get(flavor, 0) for each in units if step in each.queue.path())


def _allowed(preemptor: Preemptor) -> bool:
    """Within limits, and within the fair share of its queues, once those have ended that it waits for."""
    return not over_limit(preemptor.queue, preemptor.charge) and not _beyond_share(preemptor)
