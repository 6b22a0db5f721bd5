"""What protects a running gang, for how long at most, and what it costs to stop it.

What users ask for (min-runtime, notice, leaving pods, budgets) counts up to the tightest bound of their queue, the queues above it and their
namespace (`api.bounds`). So a queue that is below what it deserves waits no longer than these bounds.
A stop costs the work since the last checkpoint (since its start, for a gang that says nothing of checkpoints) and the time until it runs
again, as earlier runs took, else `RESTART_S`. Example: 4 GPUs, started 2 h ago, saved 10 min ago, restarts in 90 s: 4 x (600 + 90) = 2,760
GPU-seconds.
"""

from __future__ import annotations

from fairlead.api.bounds import NO_BOUNDS, Bounds, tightest
from fairlead.engine.queues.limits import hold_of
from fairlead.engine.queues.tree import Queue
from fairlead.engine.types.gangs import RunningGang, RunningMember

RESTART_S = 300.0  # where no earlier run is known


def saved_at(gang: RunningGang, started: float) -> float:
    """Since when its work is not saved; unix seconds. A time before its start says nothing of this run."""
    return started if gang.checkpointed is None else max(started, gang.checkpointed)


def restart_s(gang: RunningGang) -> float:
    return RESTART_S if gang.restart_s is None else gang.restart_s


def settled_at(gang: RunningGang) -> float:
    """From when on it may move for others: it has run for as long as it takes to start again. Unix seconds."""
    return gang.started + restart_s(gang)


def works_since(gang: RunningGang, started: float) -> float:
    """Larger where less is lost: since when its work is not saved, earlier by what its restart takes, where that is known."""
    return saved_at(gang, started) - (gang.restart_s or 0.0)


def gpu_seconds(gang: RunningGang, devices: int, now: float) -> float:
    """What stopping it now costs."""
    return devices * (max(0.0, now - saved_at(gang, gang.started)) + restart_s(gang))


def movable(gang: RunningGang, queue: Queue) -> bool:
    """As its own annotation says, else its queue, or one above it; at last not. Never while it is on hold."""
    if gang.relocation is None or hold_of(gang, queue) is not None:
        return False  # on hold its new pods would not be admitted, and a move must not stop what a hold lets run
    if gang.movable is not None:
        return gang.movable
    return next((step.spec.movable for step in queue.path() if step.spec.movable is not None), False)


class Protection:
    """What protects the gangs of one queue tree. What queues say is looked up once."""

    def __init__(self) -> None:
        self._bounds: dict[Queue, Bounds] = {}
        self._min_runtime_s: dict[Queue, float] = {}
        self._respects: dict[Queue, bool] = {}

    def bounds(self, gang: RunningGang, queue: Queue) -> Bounds:
        known = self._bounds.get(queue)
        if known is None:
            known = self._bounds[queue] = tightest(step.spec.bounds for step in queue.path())
        return known if gang.bounds is NO_BOUNDS else known.within(gang.bounds)

    def min_runtime_s(self, gang: RunningGang, queue: Queue) -> float:
        """From its start: as its own annotation says, else its queue, or one above it, else 0; at most its bound."""
        known = self._min_runtime_s.get(queue)
        if known is None:
            set_on_path = (step.spec.min_runtime_s for step in queue.path() if step.spec.min_runtime_s is not None)
            known = self._min_runtime_s[queue] = next(set_on_path, 0.0)
        return self.bounds(gang, queue).min_runtime_of(gang.min_runtime_s, known)

    def checkpoint_grace_s(self, gang: RunningGang, queue: Queue) -> float:
        if gang.checkpoint_grace_s is None:
            return 0.0
        return min(gang.checkpoint_grace_s, self.bounds(gang, queue).checkpoint_grace_s)

    def awaited_until(self, gang: RunningGang, queue: Queue, member: RunningMember) -> float | None:
        """Until when others wait for what a deleted pod holds; None: it is not deleted yet, its eviction has its own bounds."""
        if member.leaving_since is None:
            return None
        return member.leaving_since + self.bounds(gang, queue).termination_grace_s

    def budget_delay_s(self, gang: RunningGang, queue: Queue) -> float | None:
        """How long a gang waits at most for PodDisruptionBudgets of this one, if its queue takes what that deserves.

        As long as the longest notice of this gang may be. None: they prevent it.
        """
        return None if self.respects_budgets(queue) else self.bounds(gang, queue).checkpoint_grace_s

    def respects_budgets(self, queue: Queue) -> bool:
        """Whether PodDisruptionBudgets prevent the reclaim of what others deserve, instead of delaying it."""
        known = self._respects.get(queue)
        if known is None:
            set_on_path = (step.spec.respects_budgets for step in queue.path())
            known = self._respects[queue] = next((each for each in set_on_path if each is not None), False)
        return known
