"""What PodDisruptionBudgets still allow in one decision, to evictions of whole gangs that no other gang waits for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead.engine.types.gangs import RunningGang
    from fairlead.engine.types.settings import DisruptionBudget


class BudgetsLeft:
    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._left = {(budget.namespace, budget.name): budget.allowed for budget in budgets}

    def take(self, gang: RunningGang) -> bool:
        """Whether all its pods may go now; then they are counted. Else it is decided again when a budget changes."""
        guards = Counter((gang.namespace, name) for member in gang.members for name in member.guarded_by)
        if any(count > self._left.get(guard, 0) for guard, count in guards.items()):
            return False
        for guard, count in guards.items():
            self._left[guard] -= count
        return True
