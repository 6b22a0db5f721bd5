"""Time and chance, which every part of the rim is given as one value: tests pass in their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from fairlead.kube.limits import Clock, Sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """`clock`: seconds that only grow. `wall`: unix seconds."""

    clock: Clock
    wall: Clock
    sleep: Sleep
    random: Random = field(default_factory=Random)
