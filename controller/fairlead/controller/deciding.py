"""A decision in a thread of its own, so that lease renewals, watches and probes go on however long it takes.

What it reads does not change meanwhile: a snapshot's values are frozen, and its tables are at rest.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from fairlead.controller.watch.tables import Tables
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan

Decide = Callable[[Snapshot, float], Plan]


async def decide_beside(tables: Tables, decide: Decide, snapshot: Snapshot, now: float) -> Plan:
    """Cancelled, it waits for the thread's end: the tables are not to change before."""
    with tables.at_rest():
        deciding = asyncio.ensure_future(asyncio.to_thread(decide, snapshot, now))
        try:
            return await asyncio.shield(deciding)
        finally:
            while not deciding.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({deciding})
