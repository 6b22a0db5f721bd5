"""Use remembered with a half-life: what a queue had, counting less the longer ago.

Exists so that "who used more" is one formula wherever it is read. Keeps no state and reads no clock: the caller stores the
number and says how much time passed.
Source: Kueue's admission fair sharing, the usual exponential average.
"""

from __future__ import annotations


def decayed(past: float, current: float, *, elapsed_s: float, half_life_s: float) -> float:
    """The average after `elapsed_s` of holding `current`. A clock that went back changes nothing; 0 forgets at once."""
    if half_life_s <= 0:
        return current
    if elapsed_s <= 0:
        return past
    kept: float = 0.5 ** (elapsed_s / half_life_s)
    return past * kept + current * (1 - kept)
