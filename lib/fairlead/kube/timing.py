"""Time and chance, which every part of a rim is given as one value: tests pass in their own."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import Random

from fairlead.kube.limits import Clock, Sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """`clock`: seconds that only grow. `wall`: unix seconds."""

    clock: Clock = time.monotonic
    wall: Clock = time.time
    sleep: Sleep = asyncio.sleep
    random: Random = field(default_factory=Random)


REAL = Time()
