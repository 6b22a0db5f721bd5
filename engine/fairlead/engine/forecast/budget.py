"""How much CPU a simulated future may take. No clock is read here: `spent_s` is the caller's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class CpuBudget:
    """`total_s`, in the measure of `spent_s`: seconds of CPU since the call."""

    total_s: float = inf
    spent_s: Callable[[], float] = lambda: 0.0

    def over(self, end_s: float) -> bool:
        """Whether more than so much is spent."""
        return self.spent_s() > end_s


NO_BUDGET = CpuBudget()  # without bounds
