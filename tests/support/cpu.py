"""CPU time in tests: a bound is meant for one machine, and holds on a slower or busier one in proportion.

Two things made such tests fail where nothing was wrong. On a machine whose cores others use, too, the same work takes up to several times the CPU
time. And a collection of garbage looks at every object of the process: in a process that runs a third of all tests half a second, whatever
is measured meanwhile. So the time is divided by what a loop takes before or after, and nothing is collected meanwhile.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LOOP_S = 0.01
"""Of the loop below, on the machine that bounds are meant for."""


@dataclass(slots=True)
class Spent:
    """Known once the block has ended.

    Attributes:
        seconds: CPU time of the thread, as of the machine that bounds are meant for; on a faster one what it took there.
    """

    seconds: float = 0.0


@contextmanager
def measured() -> Iterator[Spent]:
    """Measure the block, which must not start collections of garbage itself."""
    spent = Spent()
    collects = gc.isenabled()
    gc.disable()
    try:
        before = _loop_s()
        began = time.thread_time()
        yield spent
        took = time.thread_time() - began
        spent.seconds = took * LOOP_S / max(LOOP_S, before, _loop_s())
    finally:
        if collects:
            gc.enable()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail where the block takes more CPU time than that.

    Raises:
        AssertionError: it did.
    """
    with measured() as spent:
        yield
    assert spent.seconds < seconds, f"{spent.seconds:.2f} s of CPU time, at most {seconds} are allowed"


def slowness() -> float:
    """How many times as long as on the machine that bounds are meant for work takes here now; at least 1."""
    return max(1.0, _loop_s() / LOOP_S)


def _loop_s() -> float:
    began = time.thread_time()
    assert sum(i * i for i in range(200_000))
    return time.thread_time() - began
