"""The turns of a decision, before the queues are asked for their order: what goes first in any case, and what goes last.

So nothing is admitted that the next decision would take back. Gangs for which others were evicted go first; then those within
their queues' shares; then those over them. Decides on none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.reclaim.shares import fits_share, over_contested_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairlead.engine.queues.gangs import PendingGang
    from fairlead.engine.queues.tree import Queue


def preemptors_first(pending: Sequence[PendingGang]) -> list[PendingGang]:
    """Members that replace others of a gang that runs; then gangs for which others were evicted, in order, and those that
    could evict them again at once: of higher priority in the same queue, and within its share.
    """
    least: dict[Queue, int] = {}  # priority of a preemptor of the queue
    for each in pending:
        if each.gang.preemptor:
            least[each.queue] = min(each.gang.priority, least.get(each.queue, each.gang.priority))
    first = [
        each
        for each in pending
        if each.gang.preemptor
        or each.gang.replaces
        or (
            each.queue in least
            and each.gang.priority > least[each.queue]
            and each.queue.spec.preemption != "Never"
            and over_contested_share(each.queue, each.charge) is None
        )
    ]
    return sorted(
        first, key=lambda each: (not each.gang.replaces, -each.gang.priority, not each.gang.preemptor, each.rank)
    )


def by_share(
    pending: Sequence[PendingGang], reserve: Callable[[PendingGang], None]
) -> tuple[list[PendingGang], list[PendingGang], list[PendingGang]]:
    """Three turns: gangs within their queues' shares; those that could get there by preempting in their own queue, with the
    gangs that they could preempt at once; and those that get what is left over. For those of the last two `reserve` is called.
    """
    within: list[PendingGang] = []
    contending: list[PendingGang] = []
    beyond: list[PendingGang] = []
    least: dict[
        tuple[Queue, str], int
    ] = {}  # lower priorities of queue and flavor than this could be preempted at once
    strict: set[Queue] = set()  # where all wait behind one that does
    known: dict[
        object, tuple[bool, bool]
    ] = {}  # of each equivalence class: over a share, and whether preempting may help
    for each in sorted(pending, key=lambda each: each.rank):
        queue = each.queue
        verdict = known.get(each.equivalence)
        if verdict is None:
            over_now = over_contested_share(queue, each.charge) is not None
            verdict = known[each.equivalence] = (over_now, over_now and may_preempt_into_share(each))
        over, contends = verdict
        behind = queue in strict or would_be_victim(each, least)
        if not over and not behind:
            within.append(each)
            continue
        reserve(each)
        if queue.spec.ordering == "StrictFIFO":
            strict.add(queue)
        elif contends:
            note_contender(each, least)
        (contending if contends or not over else beyond).append(each)
    return within, contending, beyond


def note_contender(pending: PendingGang, least: dict[tuple[Queue, str], int]) -> None:
    """Gangs of its queue with lower priority that may get devices of the same flavors wait for it."""
    for flavor in pending.cost.flavors:
        least.setdefault((pending.queue, flavor), pending.gang.priority)


def would_be_victim(pending: PendingGang, least: Mapping[tuple[Queue, str], int]) -> bool:
    """Whether a contender of its queue could preempt it at once. What gets devices of other flavors alone is of no use to it."""
    priority = pending.gang.priority
    return any(priority < least.get((pending.queue, flavor), priority) for flavor in pending.cost.flavors)


def may_preempt_into_share(pending: PendingGang) -> bool:
    """Whether a gang that is over its queue's share would be within, if gangs of its own queue were preempted."""
    return pending.queue.spec.preemption != "Never" and fits_share(pending.queue, pending.charge)
