"""How long gangs run: the Kaplan-Meier estimate of the share that still runs after a time, and draws from it.

Runs that have not ended count as long as they have lasted (censored): leaving them out would forget the long ones. The risk set
is counted with one run more, so n runs leave 1/(n + 1) beyond the longest; between two ends the curve is a line in the logarithm of time; what
lies beyond all that was seen lasts in proportion to what it has lasted, and the less is known of runs the wider it is spread: one run
says little of the next.
Example: runs of 1, 2 and 4 h: a quarter each ends within 1 h, between 1 h and 2 h, between 2 h and 4 h, and later.
Source: Kaplan and Meier, "Nonparametric estimation from incomplete observations", JASA 1958.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import exp, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORTEST_S = 1.0
BEYOND = 0.7  # spread, in the logarithm of time, of what lies beyond the longest of many runs seen
UNSURE = 1.0  # added to that, divided by the number of runs that ended: of runs that are unlike by a factor of three nine tenths come before p90
BEFORE = 0.5  # the shortest run seen, times this: none is taken to end sooner


class SurvivalCurve:
    """`runs`: seconds, and whether the run ended then."""

    def __init__(self, runs: Iterable[tuple[float, bool]]) -> None:
        ordered = sorted((max(SHORTEST_S, seconds), not ended) for seconds, ended in runs)
        self._at: list[float] = []  # logarithm of seconds, rising
        self._left: list[float] = []  # share that still runs then, falling
        self.ended = sum(not censored for _, censored in ordered)
        self._beyond = BEYOND + UNSURE / max(1, self.ended)
        left, at_risk = 1.0, len(ordered) + 1
        for seconds, censored in ordered:
            if not censored:
                if not self._at:
                    self._at.append(log(max(SHORTEST_S, seconds * BEFORE)))
                    self._left.append(1.0)
                left *= (at_risk - 1) / at_risk
                at = log(seconds)
                if at <= self._at[-1]:
                    at = self._at[-1] + 1e-6  # ties
                self._at.append(at)
                self._left.append(left)
            at_risk -= 1

    def left(self, seconds: float) -> float:
        """Share of runs that last longer."""
        at = log(max(SHORTEST_S, seconds))
        if not self._at or at <= self._at[0]:
            return 1.0
        if at >= self._at[-1]:
            return self._left[-1] * exp(-(at - self._at[-1]) / self._beyond)
        place = bisect_right(self._at, at)
        part = (at - self._at[place - 1]) / (self._at[place] - self._at[place - 1])
        return self._left[place - 1] + part * (self._left[place] - self._left[place - 1])

    def draw(self, elapsed_s: float, uniform: float) -> float:
        """How long a run lasts in all that has lasted `elapsed_s`; `uniform` within (0, 1), the smaller the longer."""
        wanted = self.left(elapsed_s) * uniform
        if not self._at:
            return max(elapsed_s, SHORTEST_S)
        if wanted <= self._left[-1]:
            beyond = -log(wanted / self._left[-1]) * self._beyond
            return max(elapsed_s, exp(min(self._at[-1] + beyond, 60.0)))
        place = bisect_left(self._left, -wanted, key=lambda left: -left)
        high, low = self._left[place - 1], self._left[place]
        part = (high - wanted) / (high - low)
        return max(elapsed_s, exp(self._at[place - 1] + part * (self._at[place] - self._at[place - 1])))
