"""Settings of Python's garbage collector while a cluster is held in memory.

The tables of a large cluster are millions of long-lived objects. Traversing them again and again cost a tenth of each
decision, and seconds at a time for a collection of all generations. So they are frozen, and young objects are collected
seldom. Objects without reference cycles (nearly all) are freed at once without the collector.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

# New objects before the youngest generation is collected: more than one decision over thousands of gangs creates.
THRESHOLDS: Final = (200_000, 20, 50)

_frozen = False


@contextlib.contextmanager
def frozen_heap(thresholds: tuple[int, int, int] = THRESHOLDS, *, collect: bool = True) -> Iterator[None]:
    """Until the block ends, present objects are not traversed, and new ones seldom (`thresholds`: see `gc.set_threshold`).

    `collect`: find the garbage among them first, which takes half a second for a million objects; what is not found then
    stays until the block ends.

    Within another such block nothing changes: Python can only unfreeze all objects, also those that the outer block froze.
    So a program that runs another one in its own process (a sandbox, a test) decides for both.
    """
    global _frozen  # noqa: PLW0603 - a process has one heap
    if _frozen:
        yield
        return
    _frozen = True
    before = gc.get_threshold()
    if collect:
        gc.collect()
    gc.freeze()
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        _frozen = False
