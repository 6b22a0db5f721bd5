"""How fast this machine is now, and a figure as a machine of the reference speed would show it.

The same work takes 1.5 times as long from one day to another. So each run measures a fixed loop before and after, and bars
are judged at REFERENCE_S: with a loop of 0.30 s, 3 ms of CPU count as 2 ms. The value itself is never changed. The loop is
measured in CPU seconds, so that other work on the machine does not make a bar easier.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

REFERENCE_S = 0.20
RUNS = 3
DRIFT = 0.15
"""Both measurements are shown when they differ by more than this share of the smaller one."""
TIMES = frozenset({"s", "ms", "us", "ns"})
RATES = ("/s", "/s/core", "/h")


@dataclass(frozen=True)
class Loop:
    """Seconds of the loop before and after a run."""

    before_s: float
    after_s: float

    @property
    def seconds(self) -> float:
        return (self.before_s + self.after_s) / 2

    @property
    def drifted(self) -> bool:
        low, high = sorted((self.before_s, self.after_s))
        return high > low * (1 + DRIFT)

    def __str__(self) -> str:
        if self.drifted:
            return f"loop {self.before_s:.3f} s before, {self.after_s:.3f} s after"
        return f"loop {self.seconds:.3f} s"


def loop_s() -> float:
    """CPU seconds of the loop: the median of RUNS."""
    return statistics.median(_once() for _ in range(RUNS))


def _once() -> float:
    began = time.process_time()
    sum(i * i for i in range(4_000_000))
    return time.process_time() - began


def judged(figure: dict[str, Any], loop: float) -> float:
    """The value at the reference speed: times shrink on a slow machine, rates grow; counts, bytes and ratios stay.

    `fixed` is a part of a time that no machine shortens, such as a lease's duration; `scaled` False marks a time that is
    none of this machine's, such as a virtual one.
    """
    value, unit = float(figure["value"]), str(figure["unit"])
    if not figure.get("scaled", True):
        return value
    if unit.endswith(RATES):
        return value * loop / REFERENCE_S
    if unit.partition("/")[0] in TIMES:
        fixed = min(float(figure.get("fixed", 0.0)), value)
        return fixed + (value - fixed) * REFERENCE_S / loop
    return value


def calibrated(figure: dict[str, Any], loop: Loop) -> dict[str, Any]:
    """The figure with `loop_s` and `judged`; both measurements of the loop where they differ."""
    more: dict[str, Any] = {"loop_s": round(loop.seconds, 4), "judged": float(f"{judged(figure, loop.seconds):.4g}")}
    if loop.drifted:
        more |= {"loop_before_s": round(loop.before_s, 4), "loop_after_s": round(loop.after_s, 4)}
    return {**figure, **more}
