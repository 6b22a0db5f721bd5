"""Uniform draws by name: the draw of one gang in one sample depends on the seed and on nothing else.

So two simulations that differ in a node or a queue draw the same run times, and what differs between them is the change.
Each eight samples have one draw of a gang in each eighth of (0, 1), in an order of its own: a few samples then have neither only short runs
of a gang nor only long ones. Source: Latin hypercube sampling (McKay, Beckman and Conover, Technometrics 1979).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_WHOLE = 1 << 64
STRATA = 8


@dataclass(frozen=True, slots=True)
class Draws:
    """The random draws of one sample. `middle`: every draw is one half, for a simulation of medians. `longest`: runs end by their deadlines alone."""

    seed: int
    sample: int
    middle: bool = False
    longest: bool = False

    def uniform(self, *names: object) -> float:
        """Within (0, 1): the same for the same names."""
        if self.middle:
            return 0.5
        block, number = divmod(self.sample, STRATA)
        stratum = _permuted(number, _hash(self.seed, "block", block, *names))
        return (stratum + (_hash(self.seed, self.sample, *names) + 0.5) / _WHOLE) / STRATA


def _permuted(number: int, random: int) -> int:
    """Where a permutation of the strata, which is drawn by `random`, takes a number."""
    left = list(range(STRATA))
    for size in range(STRATA, STRATA - number, -1):
        random, place = divmod(random, size)
        del left[place]
    return left[random % len(left)]


def _hash(*names: object) -> int:
    """A hash of 64 bits."""
    text = "\0".join(map(str, names))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
