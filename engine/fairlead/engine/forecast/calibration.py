"""How far forecasts were off, and what that says of the next ones.

Of each start of a gang for which there was a forecast: its wait, and what p50 and p90 had said of it, uncorrected. The waits that
were actually seen, as parts of those forecast, say by what p50 and p90 must be multiplied so that half and nine tenths of the starts
come before: of those forecasts that were most like it, as short and long waits are off by different parts. So also what a simulation
cannot know is in it: what is submitted later, and overheads of the cluster. p50 is corrected only by as much as is certain: the median
of 40 ratios is itself off by a fifth, and would make a forecast worse that is right on average. Pure.
Source: split conformal prediction (Vovk et al., "Algorithmic learning in a random world", 2005).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import ceil, exp, floor, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

KEPT_MAX = 400
TRUSTED = 20  # starts from which on the correction counts fully
NEAR_MIN = 40  # outcomes that a correction looks at
NEAR_PART = 4  # or so small a part of them all
SURE = NormalDist().inv_cdf(0.975)  # of the interval that the median of ratios is in, in standard deviations
SHORTEST_S = 10.0  # waits below count as this: what is off by seconds is not off by a factor
FACTOR_MAX = 8.0
AIM = 0.92  # of the starts before p90: days differ, and to come late is worse than to be early


class Outcome(NamedTuple):
    """One start: seconds from the forecast to the start, and to the uncorrected p50 and p90."""

    wait_s: float
    p50_s: float
    p90_s: float


class Calibration:
    """Corrects the waits that a simulation finds, by the latest outcomes whose forecast waits were most like them."""

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        latest = list(outcomes)[-KEPT_MAX:]
        self._outcomes = sorted(latest, key=lambda each: each.p50_s)
        self._at = [_log(each.p50_s) for each in self._outcomes]
        self._known: dict[int, tuple[float, float]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calibration) and self._outcomes == other._outcomes

    def __hash__(self) -> int:
        return hash(tuple(self._outcomes))

    def corrected(self, raw: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
        """p50 and p90 of a wait, in seconds; never p90 before p50. A wait of zero is certain."""
        p50, p90 = raw
        if not self._outcomes or p50 is None or p50 <= 0:
            return raw
        by50, by90 = self._factors(_log(p50))
        p50 *= by50
        return p50, None if p90 is None else max(p50, p90 * by90)

    def _factors(self, at: float) -> tuple[float, float]:
        """By which to multiply waits like `at`, in the logarithm."""
        count = len(self._at)
        near = min(count, max(NEAR_MIN, count // NEAR_PART))
        first = self._nearest(at, near)
        known = self._known.get(first)
        if known is None:
            chosen = self._outcomes[first : first + near]
            trust = min(1.0, near / TRUSTED)
            p50 = _surely([_ratio(each.wait_s, each.p50_s) for each in chosen])
            p90 = _upper([_ratio(each.wait_s, each.p90_s) for each in chosen], AIM)
            known = self._known[first] = (exp(p50), exp(trust * p90))
        return known

    def _nearest(self, at: float, near: int) -> int:
        """From which on so many outcomes are the nearest ones."""
        first = min(max(0, bisect_left(self._at, at) - near), len(self._at) - near)
        while first + near < len(self._at) and self._at[first + near] - at < at - self._at[first]:
            first += 1
        return first


NOT_CALIBRATED = Calibration()


def _log(seconds: float) -> float:
    return log(max(seconds, SHORTEST_S))


def _ratio(actual_s: float, said_s: float) -> float:
    """The ratio of two times, as a difference of logarithms."""
    ratio = max(actual_s, SHORTEST_S) / max(said_s, SHORTEST_S)
    return log(min(max(ratio, 1 / FACTOR_MAX), FACTOR_MAX))


def _upper(values: list[float], part: float) -> float:
    """The value that a further one is below with this probability."""
    ordered = sorted(values)
    return ordered[min(ceil(part * (len(ordered) + 1)), len(ordered)) - 1]


def _surely(values: list[float]) -> float:
    """How far the median is from zero at least; zero where it may be on either side.

    Between which two of the values in order the median is with 95 % follows from their number alone (David and Nagaraja,
    "Order statistics", 2003).
    """
    ordered, count = sorted(values), len(values)
    low = floor(count / 2 - SURE * sqrt(count) / 2)
    if low < 0:
        return 0.0
    return max(0.0, ordered[low]) + min(0.0, ordered[count - 1 - low])
