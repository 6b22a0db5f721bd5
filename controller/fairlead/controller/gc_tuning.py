"""Settings of Python's garbage collector while a cluster is held in memory.

The tables of a large cluster are millions of long-lived objects. Traversing them again and again cost a tenth of each
decision, and seconds at a time for a collection of all generations. So they are frozen, and young objects are collected
seldom. Objects without reference cycles (nearly all) are freed at once without the collector.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

# New objects before the youngest generation is collected: more than one decision over thousands of gangs creates.
THRESHOLDS = (200_000, 20, 50)


@contextlib.contextmanager
def frozen_heap() -> Iterator[None]:
    """Until the block ends, present objects are not traversed, and new ones seldom."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
