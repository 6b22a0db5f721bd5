"""May this unit be evicted for that gang? Reclaim between queues, preemption within one, and what protects running gangs.

Choosing victims, making the set minimal, judging it again and explaining a refusal all ask here. Between queues
`policy.may_reclaim` decides; within a queue strictly lower priority gives way, unless the queue says `preemption: Never`.
On top: min-runtime, PodDisruptionBudgets (in whole pods, as the eviction API counts), each queue's disruption budget (a
whole gang counts one). PodDisruptionBudgets are users' own: they choose among victims, but where a queue takes what it
deserves they only delay (`Preemptor.overrides_s`), unless the victims' queue says otherwise. A policy also counts what a trial set of victims uses up, so that its next answer takes that into
account: `evict` and `spare` are changes of the pipelined cluster's statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from fairlead.engine.placement.shapes import PlacementUnit
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.candidates import EvictionUnit, VictimCandidates
from fairlead.engine.reclaim.policy import (
    Rule,
    borrows,
    branches,
    fits_share,
    may_be_guaranteed,
    may_reclaim,
    over_contested_share,
    path_to,
    wanted_of,
)
from fairlead.engine.reclaim.releasing import PipelinedCluster
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import PreemptionBlock
from fairlead.engine.types.settings import DisruptionBudget
from fairlead.engine.types.values import Amount

Key = TypeVar("Key")
_BLOCKS = {
    Rule.OVER_SHARE: PreemptionBlock.SHARE,
    Rule.NO_FAIRER: PreemptionBlock.SHARE,
    Rule.WITHIN_SHARE: PreemptionBlock.WITHIN_SHARE,
    Rule.WITHIN_DESERVED: PreemptionBlock.DESERVED,
    Rule.BELOW_DESERVED: PreemptionBlock.DESERVED,
    Rule.NOTHING_ASKED: PreemptionBlock.OTHER_FLAVOR,
}
_OF_THE_KIND = (
    frozenset(  # what forbids one unit in this way forbids all of its queue that hold something of the same flavors
        {PreemptionBlock.SHARE, PreemptionBlock.WITHIN_SHARE, PreemptionBlock.OTHER_FLAVOR, PreemptionBlock.POLICY}
    )
)


@dataclass(frozen=True, slots=True, eq=False)
class Preemptor:
    """The gang, and `charge`, the least that it costs its queue."""

    gang: GangRequest
    queue: Queue
    units: Sequence[PlacementUnit]
    charge: Mapping[str, Amount]
    spread: bool
    signature: object  # equal for gangs that placement treats alike
    id: str  # the gang's
    turn: int = 0  # the gang's place in this decision's order, where that counts
    overrides_s: float | None = (
        None  # it has waited longer than PodDisruptionBudgets that delay so much at most may delay
    )

    @property
    def kind(self) -> object:
        """Equal for gangs that may evict the same."""
        charge = tuple(sorted(self.charge.items()))
        return (self.queue.name, self.gang.priority, charge, self.turn, self.overrides_s)


class EvictionPolicy:
    """Which units may count as gone, and the trial evictions themselves. Base of victims and of ends that are waited for."""

    def __init__(self, cluster: PipelinedCluster, candidates: VictimCandidates) -> None:
        self.cluster = cluster
        self.statement = cluster.statement
        self.candidates = candidates

    def refusal(self, preemptor: Preemptor, unit: EvictionUnit) -> PreemptionBlock | None:
        """What forbids to evict the unit as well, as things stand; None when nothing does."""
        raise NotImplementedError

    def within_share(self, preemptor: Preemptor) -> bool:
        """Whether a gang of one unit is, as things stand, where that is asked beside `refusal`."""
        return True

    def evict(self, unit: EvictionUnit, *, only: str | None = None) -> None:
        """The unit counts as gone; `only`: its devices on this node alone."""
        self.statement.do(self._evicting, unit, only)

    def spare(self, unit: EvictionUnit, *, only: str | None = None) -> None:
        self.statement.undo(self._evicting, unit, only)

    def _evicting(self, unit: EvictionUnit, only: str | None, times: int) -> None:
        self.cluster.releasing(unit, only, times)
        self.counting(unit, times)

    def counting(self, unit: EvictionUnit, times: int) -> None:
        """The change of everything but the ledger: what its queue uses, what budgets have left."""
        if unit.runs:
            unit.queue.release(unit.charge, unit.devices, times)
        else:
            unit.queue.charge(unit.charge, unit.devices, -times)
        self.tallying(unit, times)

    def tallying(self, unit: EvictionUnit, times: int) -> None:
        """The change of the policy's own counts."""
        raise NotImplementedError


class VictimPolicy(EvictionPolicy):
    def __init__(
        self, cluster: PipelinedCluster, candidates: VictimCandidates, budgets: Sequence[DisruptionBudget]
    ) -> None:
        super().__init__(cluster, candidates)
        # Counts, never zero, of what this decision evicts or tries to:
        self._evicted: dict[EvictionUnit, int] = {}
        self.stopped: dict[str, int] = {}  # ids of gangs that go whole
        self._surplus: dict[str, int] = {}  # gang id: members of its surplus that go
        self._disruptions: dict[Queue, int] = {}
        self._allowed = {(budget.namespace, budget.name): budget.allowed for budget in budgets}  # what is left
        # By kind of preemptor: a unit that may be evicted, and those not looked at yet; see `any_victim`.
        self._found: dict[object, tuple[EvictionUnit, Iterator[EvictionUnit]]] = {}

    def refusal(self, preemptor: Preemptor, unit: EvictionUnit) -> PreemptionBlock | None:
        gang = unit.gang
        if unit.id == preemptor.id or unit in self._evicted or unit.id in self.stopped:
            return PreemptionBlock.PLACE
        if _goes_first(preemptor, unit):
            return None
        if unit in self.candidates.protected:
            return PreemptionBlock.MIN_RUNTIME if unit.members else PreemptionBlock.UNKNOWN
        if unit.queue is preemptor.queue:
            if preemptor.queue.spec.preemption == "Never":
                return PreemptionBlock.POLICY
            if gang.priority >= preemptor.gang.priority:
                return PreemptionBlock.PRIORITY
            if borrows(preemptor.queue, preemptor.charge):
                return PreemptionBlock.SHARE
        else:
            verdict = may_reclaim(preemptor.queue, preemptor.charge, unit.queue, unit.charge)
            if not verdict:
                return _BLOCKS[verdict.rule]
            if preemptor.overrides_s is not None and verdict.rule is Rule.GUARANTEE:
                return self.spent(unit, overridden=self._overridden(preemptor, unit))
        return self.spent(unit)

    def _overridden(self, preemptor: Preemptor, unit: EvictionUnit) -> bool:
        """Whether PodDisruptionBudgets protect the unit no more: the gang has waited for as long as they may delay it."""
        delay_s = self.candidates.protection.budget_delay_s(unit.gang, unit.queue)
        return delay_s is not None and preemptor.overrides_s is not None and delay_s <= preemptor.overrides_s

    def spent(self, unit: EvictionUnit, *, overridden: bool = False) -> PreemptionBlock | None:
        """Whether a budget has too little left for the unit. `overridden`: PodDisruptionBudgets do not count."""
        if not unit.starts:
            return None
        surplus = self._surplus.get(unit.id, 0)
        if unit.whole:
            if surplus:
                return PreemptionBlock.PLACE  # its surplus goes already; the rest would be another eviction
            for queue in unit.queue.path():
                left = queue.spec.evictions_left
                if left is not None and self._disruptions.get(queue, 0) >= left:
                    return PreemptionBlock.DISRUPTIONS
        elif surplus >= self.candidates.staying[unit.id] - unit.gang.size:
            return PreemptionBlock.PLACE
        return PreemptionBlock.BUDGET if not overridden and self._guarded(unit) else None

    def budget_delays_s(self, preemptor: Preemptor) -> list[float]:
        """For how long PodDisruptionBudgets delay what the preemptor's queue deserves of others, at most: each once, sorted."""
        if not self._delaying or not may_be_guaranteed(preemptor.queue, preemptor.charge):
            return []
        found: set[float] = set()
        for (queue, delay_s, _), unit in self._delaying.items():
            if delay_s not in found and queue is not preemptor.queue:
                verdict = may_reclaim(preemptor.queue, preemptor.charge, queue, unit.charge)
                if verdict and verdict.rule is Rule.GUARANTEE:
                    found.add(delay_s)
        return sorted(found)

    @cached_property
    def _delaying(self) -> dict[tuple[Queue, float, frozenset[str]], EvictionUnit]:
        """One of the alike units that PodDisruptionBudgets protect: by queue, for how long, and flavors."""
        found: dict[tuple[Queue, float, frozenset[str]], EvictionUnit] = {}
        for unit in self.candidates.units if self._allowed else ():
            if any(member.guarded_by for member in unit.members):
                delay_s = self.candidates.protection.budget_delay_s(unit.gang, unit.queue)
                if delay_s is not None:
                    found.setdefault((unit.queue, delay_s, frozenset(unit.charge)), unit)
        return found

    def _guarded(self, unit: EvictionUnit) -> bool:
        """Whether a PodDisruptionBudget forbids it. The eviction API refuses a pod that several of them select."""
        wanted: dict[str, int] = {}
        for member in unit.members:
            if len(member.guarded_by) > 1:
                return True
            for name in member.guarded_by:
                wanted[name] = wanted.get(name, 0) + 1
        return any(self._allowed.get((unit.gang.namespace, name), 0) < count for name, count in wanted.items())

    def tallying(self, unit: EvictionUnit, times: int) -> None:
        _count(self._evicted, unit, times)
        if unit.whole:
            _count(self.stopped, unit.id, times)
            for queue in unit.queue.path() if unit.starts else ():
                _count(self._disruptions, queue, times)
        else:
            _count(self._surplus, unit.id, times)
        for member in unit.members:
            for name in member.guarded_by:
                _count(self._allowed, (unit.gang.namespace, name), -times)

    def confirm(self, unit: EvictionUnit) -> None:
        """The unit is evicted for good; see `VictimCandidates.shrink`."""
        if not unit.whole:
            _count(self._surplus, unit.id, -1)
            self._found.clear()  # the whole gang may be of another kind then
        self.candidates.shrink(unit)

    def any_victim(self, preemptor: Preemptor) -> bool:
        """Whether at least one unit may be evicted for this kind of gang. Within a decision there are only ever fewer."""
        found, left = self._found.get(preemptor.kind) or (None, self._possible(preemptor))
        if found is None or self.refusal(preemptor, found) is not None:
            found = next((unit for unit in left if self.refusal(preemptor, unit) is None), None)
            if found is not None:
                self._found[preemptor.kind] = (found, left)
        return found is not None

    def forget(self) -> None:
        """There may be more victims than before: look at all of them again."""
        self._found.clear()

    def _possible(self, preemptor: Preemptor) -> Iterator[EvictionUnit]:
        """The units to look at; of a kind all of which is refused only the first."""
        for units in list(self.candidates.unprotected.values()):
            for unit in units:
                if self.refusal(preemptor, unit) in _OF_THE_KIND:
                    break
                yield unit

    def leaves_victim_below_deserved(self, preemptor: Preemptor, units: Sequence[EvictionUnit]) -> bool:
        """Whether one of the units, all of them gone, could have stayed within what its queue deserves.

        A large gang may straddle what its queue deserves and be taken; a small one beside it may not be.
        """
        for unit in units:
            if unit.queue is preemptor.queue or _goes_first(preemptor, unit):
                continue
            wanted = wanted_of(preemptor.queue, preemptor.charge, unit.charge)
            for step in path_to(branches(preemptor.queue, unit.queue)[1], unit.queue):
                if all(step.used.get(flavor, 0) + value <= step.deserved(flavor) for flavor, value in wanted.items()):
                    return True
        return False

    def exceeds_fair_share(self, preemptor: Preemptor, units: Sequence[EvictionUnit]) -> bool:
        """Whether a queue that evicts gangs of its own, now gone, would still hold more than a contested share.

        What is idle may be borrowed, but nothing is evicted for what is borrowed: it would be reclaimed again.
        """
        own = any(unit.queue is preemptor.queue for unit in units)
        return own and over_contested_share(preemptor.queue, preemptor.charge) is not None


def could_take(
    queue: Queue, priority: int, charge: Mapping[str, Amount], victim: Queue, freed: Mapping[str, Amount], least: int
) -> bool:
    """Whether a gang of this queue, priority and charge might evict from `victim`, now or once others beside it have gone.

    `freed` is what could be evicted there, `least` the lowest priority of that.
    """
    if queue is victim:
        return queue.spec.preemption != "Never" and least < priority
    verdict = may_reclaim(queue, charge, victim, freed)
    if verdict or _BLOCKS[verdict.rule] not in _OF_THE_KIND:
        return True
    return _BLOCKS[verdict.rule] is PreemptionBlock.SHARE and fits_share(queue, charge)


def _goes_first(preemptor: Preemptor, unit: EvictionUnit) -> bool:
    """Whether the unit is only nominated for what comes free, after the gang's turn, and the gang is within its share."""
    return (
        not unit.starts
        and preemptor.turn < unit.turn
        and over_contested_share(preemptor.queue, preemptor.charge) is None
    )


def _count(counts: dict[Key, int], key: Key, by: int) -> None:
    """Keys whose count is zero are removed: `in` asks for a count at less than half the time of `get`."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
