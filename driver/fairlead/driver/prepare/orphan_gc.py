"""Garbage collection of orphans (orphans.py) that kubelet never unprepares.

A claim can be force-deleted while the driver or kubelet is down; its devices would be refused to every other claim
forever. kubelet's own call is better, and it comes only when the containers have ended, which may take a pod's whole grace
period: so a record has to be an orphan at two collections in a row, and no process may have its GPUs open. An apiserver
that does not answer proves nothing about a claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fairlead.driver.prepare.leftovers import reason
from fairlead.driver.prepare.preparer import PrepareError, Preparer
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.kube.limits import Sleep

log = logging.getLogger(__name__)


class OrphanGc:
    """`collect` collects once, `run` every `interval_s`. `is_orphan` asks the apiserver; `in_use` says what uses a record's GPUs,
    or nothing; `unprepare` undoes a record, or raises PrepareError.
    """

    def __init__(
        self,
        preparer: Preparer,
        *,
        is_orphan: Callable[[ClaimRecord], Awaitable[bool]],
        in_use: Callable[[ClaimRecord], Awaitable[str]],
        unprepare: Callable[[ClaimRecord], Awaitable[None]],
        interval_s: float = 120.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._preparer = preparer
        self._is_orphan = is_orphan
        self._in_use = in_use
        self._unprepare = unprepare
        self._interval_s = interval_s
        self._sleep = sleep
        self._missing: frozenset[str] = frozenset()

    async def run(self) -> None:
        while True:
            await self._sleep(self._interval_s)
            try:
                await self.collect()
            except Exception:
                log.exception("orphans could not be collected; tried again in %g s", self._interval_s)

    async def collect(self) -> list[str]:
        """UIDs of the claims that were unprepared."""
        missing: set[str] = set()
        collected: list[str] = []
        for record in self._preparer.records():
            if not await self._is_orphan(record):
                continue
            if record.uid not in self._missing:
                missing.add(record.uid)
                continue
            if users := await self._in_use(record):
                log.warning("%s no longer exists, and is not unprepared: %s", record, users)
                missing.add(record.uid)
                continue
            try:
                await self._unprepare(record)
            except Exception as error:  # of this claim: the next is collected all the same
                why = str(error) if isinstance(error, PrepareError) else reason(error)
                log.error("%s no longer exists, but cannot be unprepared: %s", record, why)
                missing.add(record.uid)
            else:
                log.warning("%s no longer exists; it was unprepared without a call of kubelet", record)
                collected.append(record.uid)
        self._missing = frozenset(missing)
        return collected
