"""Use remembered with a half-life: what a queue held, counting less the longer ago.

Keeps no state and reads no clock: the caller stores the number and says how much time passed.
Source: Kueue's admission fair sharing, the usual exponential average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def decayed(past: float, current: float, *, elapsed_s: float, half_life_s: float) -> float:
    """The average after `elapsed_s` of holding `current`. A clock that went back changes nothing; 0 forgets at once."""
    if half_life_s <= 0:
        return current
    if elapsed_s <= 0:
        return past
    kept: float = 0.5 ** (elapsed_s / half_life_s)
    return past * kept + current * (1 - kept)


def weighed(past: Mapping[str, float], given: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """One number for what a queue used, over all flavors: `past`, and what it was `given` since, which counts at once.

    A flavor without weight counts fully; one of weight 0 or less makes any use infinite, never a NaN.
    """
    whole = 0.0
    for flavor in sorted(past.keys() | given.keys()):
        used = past.get(flavor, 0.0) + given.get(flavor, 0.0)
        weight = weights.get(flavor, 1.0)
        if used > 0:
            whole += used / weight if weight > 0 else float("inf")
    return whole
