"""Gangs whose devices are idle, all of them or one as their queue has it: what their queue says follows, from when on, and the evictions where that is its word.

A gang that is idle was told first (`IdleSpan.noticed`, the condition on its Gang object) and has the grace of its queue; without that
nothing follows. Neither min-runtime nor what its queue deserves protects it; PodDisruptionBudgets do, in whole pods. A gang is not
idle where samples are old (`known_until`), and what is known of its devices is decided by the controller, not here.
Example, for 1h, grace 10m: idle since 12:00, told at 13:00, evicted at 13:10; told late, at 15:00: evicted at 15:10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube import timestamps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.budgets_left import BudgetsLeft
    from fairlead.engine.reclaim.protection import Protection
    from fairlead.engine.types.gangs import RunningGang
    from fairlead.engine.types.settings import IdlePolicy


class IdleGangs:
    """The idle gangs of one queue tree, at `now` (unix seconds). `due`: when time alone may change the answers."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._policies: dict[Queue, IdlePolicy | None] = {}
        self.due: list[float] = []

    def policy(self, queue: Queue) -> IdlePolicy | None:
        """Its own, else that of the first queue above that has one."""
        if queue not in self._policies:
            found = (step.spec.idle for step in queue.path() if step.spec.idle is not None)
            self._policies[queue] = next(found, None)
        return self._policies[queue]

    def suspended(self, gang: RunningGang, queue: Queue) -> bool:
        """Whether it is the first to go, whatever its min-runtime."""
        return gang.idle is not None and self._follows(gang, queue, "suspendBorrowing")

    def evictions(
        self,
        running: Iterable[tuple[RunningGang, Queue]],
        budgets: BudgetsLeft,
        leaving: Collection[str],
        protection: Protection,
    ) -> Iterator[Eviction]:
        """One for each gang that goes. `leaving`: UIDs of pods that go for another reason."""
        for gang, queue in running:
            if gang.idle is None or not self._follows(gang, queue, "evict"):
                continue
            if not gang.members or any(each.leaving or each.pod.uid in leaving for each in gang.members):
                continue
            if budgets.take(gang):
                policy = self.policy(queue)
                yield _eviction(gang, queue, protection, any_device=policy is not None and policy.devices == "Any")

    def _follows(self, gang: RunningGang, queue: Queue, then: str) -> bool:
        """Whether that is what follows for the gang, and its time has come."""
        policy, idle = self.policy(queue), gang.idle
        if (
            policy is None
            or policy.then != then
            or idle is None
            or idle.noticed is None
            or self._now >= idle.known_until
        ):
            return False
        at = max(idle.since + policy.for_s, idle.noticed + policy.grace_s)
        if at > self._now:
            self.due.append(at)
        return at <= self._now


def _eviction(gang: RunningGang, queue: Queue, protection: Protection, *, any_device: bool) -> Eviction:
    assert gang.idle is not None, "only idle gangs go"
    assert gang.idle.noticed is not None, "only those that were told"
    since, told = timestamps.seconds(gang.idle.since), timestamps.seconds(gang.idle.noticed)
    reason = Reason(
        code=Code.IDLE,
        message=f"{'one of its devices is' if any_device else 'all its devices are'} idle since {since}; it was notified at {told}",
        advice="recreated, its pods wait behind those that wait already; the annotation fairlead.dev/keep-idle would keep it",
    )
    grace_s = protection.checkpoint_grace_s(gang, queue)
    return Eviction.of(gang, gang.members, "Idle", reason, queue=queue.name, checkpoint_grace_s=grace_s)
