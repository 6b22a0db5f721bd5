"""What keeps a running gang's devices from others, and for how long at most: min-runtime, notice, leaving pods, budgets.

What users ask for counts up to the tightest bound of their queue, the queues above it and their namespace (`api.bounds`). So a
queue that is below what it deserves waits no longer than these bounds. Amounts and choices are elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.api.bounds import NO_BOUNDS, Bounds, tightest

if TYPE_CHECKING:
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.types.gangs import RunningGang, RunningMember


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
