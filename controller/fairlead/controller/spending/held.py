"""GPU-hours that a queue held between two moments of this term, from what each decision left it. Exact, in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction

from fairlead.engine.types.values import Amount
from fairlead.kube.timestamps import HOUR_US

POINTS_MAX = 4096


class HeldGpus:
    """GPU-hours of one queue. Points of a line: GPU-hours held since the first `note`, which rises evenly from one point to the next."""

    def __init__(self) -> None:
        self.gpus: Amount = 0  # from the last point on
        self._latest = 0  # unix microseconds, of all notes
        self._times: list[int] = []  # unix microseconds
        self._sums: list[Fraction] = []

    def note(self, gpus: Amount, now_us: int) -> bool:
        """It holds this from now on; whether that is new. A clock that goes back changes nothing but that."""
        at = self._latest = max(now_us, self._latest) if self._times else now_us
        if self._times and gpus == self.gpus:
            return False
        self._sums.append(self._until(at))
        self._times.append(at)
        self.gpus = gpus
        if len(self._times) > POINTS_MAX:  # the sum at each point that is left stays exact
            del self._times[1:-1:2], self._sums[1:-1:2]
        return True

    def between(self, start_us: int, end_us: int) -> Fraction:
        """GPU-hours; nothing before the first note, of which others know."""
        return max(self._until(end_us) - self._until(start_us), Fraction(0))

    def _until(self, at_us: int) -> Fraction:
        place = bisect_right(self._times, at_us)
        if place == 0:
            return Fraction(0)
        start, begun = self._times[place - 1], self._sums[place - 1]
        if place == len(self._times):
            return begun + Fraction(self.gpus) * (at_us - start) / HOUR_US
        return begun + (self._sums[place] - begun) * Fraction(at_us - start, self._times[place] - start)
