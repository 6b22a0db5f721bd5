"""From chosen units to the plan's evictions, each with the figures that justify it.

Decides nothing. A message says the cause alone: for which gang and when pods go is said once, by the marks that pods carry
(`evictions.Mark`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.reclaim.policy import branches
from fairlead.engine.types.amounts import amount_text
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import Code, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit
    from fairlead.engine.reclaim.eviction_policy import Preemptor
    from fairlead.engine.reclaim.protection import Protection


def evictions(preemptor: Preemptor, chosen: Sequence[EvictionUnit], protection: Protection) -> list[Eviction]:
    """One per gang, in the order in which they were chosen. The units are gone already, the preemptor is not charged yet."""
    gangs: dict[str, list[EvictionUnit]] = {}
    lost: dict[Queue, Charge] = {}  # by branch of the victims: all that goes for this preemptor
    for unit in chosen:
        gangs.setdefault(unit.gang.id, []).append(unit)
        if unit.queue is not preemptor.queue:
            add(lost.setdefault(branches(preemptor.queue, unit.queue)[1], {}), unit.charge)
    return [_eviction(preemptor, units, lost, protection) for units in gangs.values()]


def _eviction(
    preemptor: Preemptor, units: Sequence[EvictionUnit], lost: Mapping[Queue, Charge], protection: Protection
) -> Eviction:
    first = units[0]
    gang, queue = first.gang, first.queue
    preempted = queue is preemptor.queue
    entitled = not preempted and _guaranteed(preemptor, queue)
    refusable_s = protection.budget_delay_s(gang, queue) if entitled else None
    eviction = Eviction.of(
        gang,
        [member for unit in units for member in unit.members],
        "Preempt" if preempted else "Reclaim",
        _preempted(preemptor, first) if preempted else _reclaimed(preemptor, first, lost),
        queue=queue.name,
        whole=first.whole,
        checkpoint_grace_s=protection.checkpoint_grace_s(gang, queue),
    )
    return replace(eviction, beneficiary=preemptor.gang.id, refusable_s=refusable_s)


def _preempted(preemptor: Preemptor, unit: EvictionUnit) -> Reason:
    queue = unit.queue.name  # "": neither is in one
    both = f"of the same queue {queue}" if queue else "of no queue, as this one"
    policy = f", or preemption: Never in queue {queue}," if queue else ""
    return Reason(
        code=Code.PREEMPTED,
        message=f"{both}, with priority {preemptor.gang.priority} against its {unit.gang.priority}",
        advice=f"{_afterwards(unit)}; a higher priority{policy} would keep it",
    )


def _reclaimed(preemptor: Preemptor, unit: EvictionUnit, lost: Mapping[Queue, Charge]) -> Reason:
    """What both branches were entitled to and held before anything went."""
    branch, victim_branch = branches(preemptor.queue, unit.queue)
    guaranteed = _guaranteed(preemptor, unit.queue)
    figures = []
    for flavor, value in sorted(preemptor.queue.tree.deciding(preemptor.charge).items()):
        victim_held = victim_branch.used.get(flavor, 0) + lost[victim_branch].get(flavor, 0)
        figures.append(
            f"queue {branch.name} holds {amount_text(branch.used.get(flavor, 0))} of {flavor}, "
            f"asks for {amount_text(value)} more and {_entitled(branch, flavor, guaranteed=guaranteed)}; "
            f"queue {victim_branch.name} holds {amount_text(victim_held)} "
            f"and {_entitled(victim_branch, flavor, guaranteed=guaranteed)}"
        )
    return Reason(
        code=Code.RECLAIMED,
        message="; ".join(figures),
        advice=f"{_afterwards(unit)}; more deserved for queue {unit.queue.name}, or a longer min-runtime, would keep it",
    )


def _guaranteed(preemptor: Preemptor, victim: Queue) -> bool:
    """Whether the preemptor's branch is within what it deserves with the gang."""
    branch, _ = branches(preemptor.queue, victim)
    deciding = branch.tree.deciding(preemptor.charge)
    return all(branch.used.get(flavor, 0) + value <= branch.deserved(flavor) for flavor, value in deciding.items())


def _entitled(queue: Queue, flavor: str, *, guaranteed: bool) -> str:
    if guaranteed:
        return f"deserves {amount_text(queue.deserved(flavor))}"
    return f"has a fair share of {amount_text(queue.fair.get(flavor, 0))}"


def _afterwards(unit: EvictionUnit) -> str:
    return "recreated, its pods wait with its age" if unit.whole else "its other pods run on"


def making_room(made: Sequence[Eviction]) -> Reason:
    """Why the gang itself still waits."""
    names = ", ".join(
        f"{eviction.id} (queue {eviction.queue})" if eviction.queue else eviction.id for eviction in made[:3]
    )
    more = f" and {len(made) - 3} more" if len(made) > 3 else ""
    pods = sum(len(eviction.pods) for eviction in made)
    grace_s = max(eviction.checkpoint_grace_s for eviction in made)
    after = f", after {grace_s:g} s to save their work" if grace_s else ""
    return Reason(
        code=Code.MAKING_ROOM,
        message=f"{pods} pod{'s' if pods != 1 else ''} of {names}{more} {'are' if pods != 1 else 'is'} being evicted for it{after}",
        advice="it starts when they are gone; the devices that they release are held for it",
        could_ever_fit=True,
    )
