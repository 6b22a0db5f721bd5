"""Before the order of the queues is asked: whose turn comes first in any case, and who has to see what is left over.

Exists so that a decision leads to nothing that the next one would take back. Gangs for which others were evicted go first;
then those that their queues' shares allow; those beyond their share last. Decides on none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.reclaim.reclaim import beyond_share, fits_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.queues.order import PendingGang
    from fairlead.engine.queues.tree import Queue


def promised_first(entries: Sequence[PendingGang]) -> list[PendingGang]:
    """Gangs for which others were evicted, and those that could evict them again at once: of higher priority in the same
    queue, and within its share.
    """
    least: dict[Queue, int] = {}
    for entry in entries:
        if entry.gang.preemptor:
            least[entry.queue] = min(entry.gang.priority, least.get(entry.queue, entry.gang.priority))
    first = [
        entry
        for entry in entries
        if entry.gang.preemptor
        or (
            entry.queue in least
            and entry.gang.priority > least[entry.queue]
            and entry.queue.spec.preemption != "Never"
            and beyond_share(entry.queue, entry.charge) is None
        )
    ]
    return sorted(first, key=lambda entry: (-entry.gang.priority, not entry.gang.preemptor, entry.rank))


def split(
    entries: Sequence[PendingGang], keep_place: Callable[[PendingGang], None]
) -> tuple[list[PendingGang], list[PendingGang], list[PendingGang]]:
    """Three turns: whom a share allows as things stand; who could make it so by preempting in the own queue, with those whom
    they could preempt at once; and who has to see what is left over.
    """
    within: list[PendingGang] = []
    contending: list[PendingGang] = []
    beyond: list[PendingGang] = []
    floor: dict[Queue, float] = {}  # what is less important than this waits for a gang that could preempt it
    known: dict[object, tuple[bool, bool]] = {}  # of each kin: beyond its share, and whether preempting could help
    for entry in sorted(entries, key=lambda entry: entry.rank):
        queue = entry.queue
        standing = known.get(entry.kin)
        if standing is None:
            beyond_now = beyond_share(queue, entry.charge) is not None
            standing = known[entry.kin] = (beyond_now, beyond_now and may_contend(entry))
        over, contends = standing
        behind = entry.gang.priority < floor.get(queue, entry.gang.priority)
        if not over and not behind:
            within.append(entry)
            continue
        keep_place(entry)
        if queue.spec.ordering == "StrictFIFO":
            floor[queue] = float("inf")
        elif contends:
            floor.setdefault(queue, entry.gang.priority)
        (contending if contends or not over else beyond).append(entry)
    return within, contending, beyond


def may_contend(entry: PendingGang) -> bool:
    """Whether a gang that is beyond its share would be within, if gangs of its own queue gave way."""
    return entry.queue.spec.preemption != "Never" and fits_share(entry.queue, entry.charge)
