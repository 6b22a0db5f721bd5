"""May this queue take devices back from that one? The law of reclaim, apart from who is chosen.

Exists so that choosing victims, judging the chosen set again after it was minimised, and `explain` ask one place. Knows
queues and amounts; no gangs, devices, priorities of gangs, budgets or clocks. Within one queue there is preemption, not this.
Compared are the two queues just below the level where the paths to reclaimer and victim part, flavor by flavor:
    guarantee   with the ask, the reclaimer's side holds no more than it deserves: it may take from a side above what that
                deserves, even a gang with which the victim falls below: the gang ran on what was lent. This is all that
                ever takes a queue below deserved, and it gives another one its deserved share.
    fairness    with the ask, the reclaimer's side stays within its fair share: it may take from a side above its own, down
                to what that deserves and no further, and only where the reclaimer ends with less surplus per weight than the
                victim had before (else whole devices would move back and forth over a rounding).
Below that level, every queue on the victim's path must be above what it deserves too: who is within it, is left alone.
Keeps: who took by fairness cannot lose it to the same victim by fairness, for it ends within its share.

    may_reclaim(reclaimer, ask, victim, freed) -> ReclaimPolicy      one more victim; those taken before are off `used` already
`reclaimer` and `victim` are leaves of one Tree whose `used` and `fair` are current; `ask` is not charged yet. A set is legal
when it can be taken one by one in some order.
Source: KAI-Scheduler reclaimable.go and strategies.go, Kueue's fair sharing preemption; DESIGN 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.types.amounts import Amount


class Rule(StrEnum):
    """What allowed it, or what stands in the way."""

    GUARANTEE = "gets what it deserves"
    FAIRNESS = "gets its fair share"
    SAME_QUEUE = "is the same queue"
    NOTHING_ASKED = "frees nothing of a flavor that is asked for"
    OVER_SHARE = "would hold more than its fair share"
    WITHIN_SHARE = "holds no more than its fair share"
    WITHIN_DESERVED = "holds no more than it deserves"
    BELOW_DESERVED = "would be left with less than it deserves"
    NO_FAIRER = "holds no more surplus for its weight than the other would"


@dataclass(frozen=True, slots=True)
class ReclaimPolicy:
    """True where it is allowed. `queue` is the one that gets, or the one because of which not."""

    allowed: bool
    rule: Rule
    queue: str
    flavor: str = ""

    def __bool__(self) -> bool:
        return self.allowed

    def __str__(self) -> str:
        return f"queue {self.queue} {self.rule.value}{f' of flavor {self.flavor}' if self.flavor else ''}"


def parting(reclaimer: Queue, victim: Queue) -> tuple[Queue, Queue]:
    """The two queues just below the level where the paths part. The queues differ and both are leaves."""
    above = {queue: below for below, queue in _steps(reclaimer)}
    for below, queue in _steps(victim):
        if queue in above:
            return above[queue], below
    raise AssertionError("all paths end above the roots")


def may_reclaim(
    reclaimer: Queue, ask: Mapping[str, Amount], victim: Queue, freed: Mapping[str, Amount]
) -> ReclaimPolicy:
    if reclaimer is victim:
        return ReclaimPolicy(False, Rule.SAME_QUEUE, victim.name)
    taker, giver = parting(reclaimer, victim)
    claim = _claim(taker, ask)
    return claim if not claim else _give(claim.rule, ask, _over(taker, ask), taker, victim, giver, freed)


def _steps(queue: Queue) -> list[tuple[Queue, Queue | None]]:
    return [(step, step.parent) for step in queue.path()]


def _claim(taker: Queue, ask: Mapping[str, Amount]) -> ReclaimPolicy:
    """What the reclaimer's side is entitled to."""
    rule = Rule.GUARANTEE
    for flavor in sorted(ask):
        after = taker.used.get(flavor, 0) + ask[flavor]
        if after > taker.deserved(flavor):
            rule = Rule.FAIRNESS
            if after > taker.fair.get(flavor, 0):
                return ReclaimPolicy(False, Rule.OVER_SHARE, taker.name, flavor)
    return ReclaimPolicy(True, rule, taker.name)


def _over(taker: Queue, ask: Mapping[str, Amount]) -> dict[str, float]:
    """Flavor: the surplus per weight that the reclaimer's side would hold."""
    return {flavor: taker.surplus(flavor, value) for flavor, value in ask.items()}


def _give(
    rule: Rule,
    ask: Mapping[str, Amount],
    over: Mapping[str, float],
    taker: Queue,
    victim: Queue,
    giver: Queue,
    freed: Mapping[str, Amount],
) -> ReclaimPolicy:
    """Whether the victim's side must give it."""
    wanted = sorted(flavor for flavor, value in freed.items() if value and ask.get(flavor))
    if not wanted:
        return ReclaimPolicy(False, Rule.NOTHING_ASKED, victim.name)
    for queue in victim.path():
        if not any(queue.used.get(flavor, 0) > queue.deserved(flavor) for flavor in wanted):
            return ReclaimPolicy(False, Rule.WITHIN_DESERVED, queue.name, wanted[0])
        if rule is Rule.FAIRNESS:
            for flavor, value in sorted(freed.items()):
                if queue.used.get(flavor, 0) - value < queue.deserved(flavor):
                    return ReclaimPolicy(False, Rule.BELOW_DESERVED, queue.name, flavor)
        if queue is giver:
            break
    if rule is Rule.FAIRNESS:
        above = [flavor for flavor in wanted if giver.used.get(flavor, 0) > giver.fair.get(flavor, 0)]
        if not above:
            return ReclaimPolicy(False, Rule.WITHIN_SHARE, giver.name, wanted[0])
        # Between priority bands the fair shares have settled it: what is left to the lower band is left over.
        if taker.spec.priority == giver.spec.priority and all(
            over[flavor] >= giver.surplus(flavor) for flavor in above
        ):
            return ReclaimPolicy(False, Rule.NO_FAIRER, giver.name, above[0])
    return ReclaimPolicy(True, rule, taker.name)
