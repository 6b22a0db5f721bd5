"""How the garbage collector is set while a cluster is held in memory.

Exists because the tables of a large cluster are millions of objects that stay: walking them again and again to find nothing
cost a tenth of each decision, and seconds at a time when all generations were walked. Objects without cycles (nearly all)
are freed at once without the collector, as ever.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

# New objects before the young are looked at: more than one decision over thousands of gangs makes.
THRESHOLDS = (200_000, 20, 50)


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """What is here now is not looked at again, and what comes only seldom, until the block ends."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
