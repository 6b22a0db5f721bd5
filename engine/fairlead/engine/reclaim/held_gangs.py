"""Evictions of gangs that run while they, their queue, or one above, are on hold with `evict`.

Whole gangs, with their checkpoint-grace, and only where their PodDisruptionBudgets allow all of it. Neither shares nor
min-runtime protect them: whoever may write the hold could delete the pods as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.queues.holds import evicting_hold
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import Code, Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.budgets_left import BudgetsLeft
    from fairlead.engine.reclaim.protection import Protection
    from fairlead.engine.types.gangs import RunningGang


def held_evictions(
    running: Iterable[tuple[RunningGang, Queue]],
    budgets: BudgetsLeft,
    leaving: Collection[str],
    protection: Protection,
) -> Iterator[Eviction]:
    """One for each gang that goes. `leaving`: UIDs of pods that go for another reason."""
    for gang, queue in running:
        found = evicting_hold(gang, queue)
        if found is None or not gang.members:
            continue
        if any(each.leaving or each.pod.uid in leaving for each in gang.members) or not budgets.take(gang):
            continue
        advice = f"recreated, its pods wait with its age until `{found.resume(gang)}`"
        reason = Reason(code=Code.ON_HOLD, message=str(found), advice=advice)
        grace_s = protection.checkpoint_grace_s(gang, queue)
        yield Eviction.of(gang, gang.members, "Hold", reason, queue=queue.name, checkpoint_grace_s=grace_s)
