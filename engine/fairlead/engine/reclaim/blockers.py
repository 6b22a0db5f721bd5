"""Why nothing is evicted for a gang: per queue what forbids to evict its gangs, in figures, for `explain`.

Asked once for each kind of gang that found no victims. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.candidates import EvictionUnit
from fairlead.engine.reclaim.eviction_policy import Preemptor, VictimPolicy
from fairlead.engine.reclaim.policy import may_be_guaranteed, over_contested_share
from fairlead.engine.types.reasons import PreemptionBlock, PreemptionBlocker
from fairlead.engine.types.values import amount_text

QUEUES_MAX = 32  # whose gangs are counted, the largest holders first
_ORDER = {block: place for place, block in enumerate(PreemptionBlock)}
_ABOUT_SHARES = frozenset({PreemptionBlock.SHARE, PreemptionBlock.WITHIN_SHARE, PreemptionBlock.DESERVED})
_ABOUT_THE_PREEMPTOR = frozenset({PreemptionBlock.SHARE, PreemptionBlock.POLICY})


def blockers(policy: VictimPolicy, preemptor: Preemptor) -> tuple[PreemptionBlocker, ...]:
    """What keeps each queue's gangs from being evicted for this one; the queue's own share first."""
    found: dict[tuple[PreemptionBlock, str], list[EvictionUnit]] = {}
    by_queue = policy.candidates.by_queue
    for queue in sorted(by_queue, key=lambda queue: (-queue.devices, queue.name))[:QUEUES_MAX]:
        for unit in by_queue[queue]:
            if not unit.whole or not unit.devices or unit.id in policy.stopped:
                continue
            block = policy.refusal(preemptor, unit) or PreemptionBlock.PLACE
            found.setdefault((block, _about(preemptor, block, queue).name), []).append(unit)
    over = share_blocker(preemptor)
    protected = policy.candidates.protected
    return over + tuple(
        PreemptionBlocker(
            block=block,
            queue=name,
            gangs=len(units),
            devices=sum(unit.devices for unit in units),
            example=units[0].gang.id,
            until=min(protected[unit] for unit in units) if block is PreemptionBlock.MIN_RUNTIME else None,
            delays_until=_budgets_end(policy, preemptor, units) if block is PreemptionBlock.BUDGET else None,
            detail=_figures(preemptor, _about(preemptor, block, units[0].queue))
            if block in _ABOUT_SHARES
            else _cut(policy, units)
            if block is PreemptionBlock.MIN_RUNTIME
            else "",
        )
        for (block, name), units in sorted(found.items(), key=lambda item: (_ORDER[item[0][0]], item[0][1]))
        if not over or block is not PreemptionBlock.SHARE
    )


def _budgets_end(policy: VictimPolicy, preemptor: Preemptor, units: Sequence[EvictionUnit]) -> float | None:
    """Until when PodDisruptionBudgets delay what the preemptor's queue deserves; None: they prevent it."""
    if not may_be_guaranteed(preemptor.queue, preemptor.charge):
        return None
    delays = (policy.candidates.protection.budget_delay_s(unit.gang, unit.queue) for unit in units)
    return min((preemptor.gang.created + each for each in delays if each is not None), default=None)


def _cut(policy: VictimPolicy, units: Sequence[EvictionUnit]) -> str:
    """That gangs ask for a longer min-runtime than counts, and what bounds it."""
    for unit in units:
        asked_s = unit.gang.min_runtime_s
        if asked_s is None or asked_s <= policy.candidates.protection.min_runtime_s(unit.gang, unit.queue):
            continue
        bound = policy.candidates.protection.bounds(unit.gang, unit.queue).min_runtime
        return f"gang {unit.gang.id} asks for more than counts: {'the default' if bound is None else bound.source} bounds it"
    return ""


def _about(preemptor: Preemptor, block: PreemptionBlock, victim: Queue) -> Queue:
    """The queue because of which the victim is not evicted."""
    return preemptor.queue if block in _ABOUT_THE_PREEMPTOR else victim


def share_blocker(preemptor: Preemptor) -> tuple[PreemptionBlocker, ...]:
    """The blocker is the first queue on the way up that would hold more than a contested share; () where none would."""
    step = over_contested_share(preemptor.queue, preemptor.charge)
    if step is None:
        return ()
    return (PreemptionBlocker(block=PreemptionBlock.SHARE, queue=step.name, detail=_figures(preemptor, step)),)


def _figures(preemptor: Preemptor, queue: Queue) -> str:
    """What a queue holds against its share, in the flavors that the gang asks for."""
    return "; ".join(
        f"{amount_text(queue.used.get(flavor, 0))} of {flavor} held, fair share "
        f"{amount_text(queue.fair.get(flavor, 0))}, deserved {amount_text(queue.deserved(flavor))}"
        for flavor in sorted(queue.tree.deciding(preemptor.charge))
    )


class LeastPriorities:
    """The lowest priority that runs in each queue, and how many gangs do: refuses the common case without any units."""

    def __init__(self, running: Iterable[tuple[Queue, int, int]]) -> None:
        self._least = {queue: (least, count) for queue, least, count in running}

    def blockers(self, preemptor: Preemptor) -> tuple[PreemptionBlocker, ...] | None:
        """Where only the gang's own queue runs gangs, or no flavor is asked for: why none of those may be evicted.

        None where victims have to be looked for.
        """
        queue = preemptor.queue
        if preemptor.charge and any(other is not queue for other in self._least):
            return None
        least, count = self._least.get(queue, (preemptor.gang.priority, 0))
        never = queue.spec.preemption == "Never"
        lower = least < preemptor.gang.priority
        if lower and not never:
            return None
        over = share_blocker(preemptor)
        if not count:
            return over
        block = PreemptionBlock.POLICY if lower else PreemptionBlock.PRIORITY
        return (*over, PreemptionBlocker(block=block, queue=queue.name, gangs=count, devices=queue.devices))
