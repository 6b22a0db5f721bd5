"""Garbage collection of orphans: records of claims that no longer exist, though kubelet never called unprepare.

A claim can be force-deleted while the driver or kubelet is down; its devices would be refused to every other claim
forever. kubelet's own call is better, so a claim has to be missing (or recreated under its name) at two collections in
a row. An apiserver that does not answer proves nothing about a claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fairlead.driver.prepare.claim_consumers import Fetch
from fairlead.driver.prepare.leftovers import reason
from fairlead.driver.prepare.preparer import PrepareError, Preparer
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.kube import errors
from fairlead.kube.limits import Sleep

log = logging.getLogger(__name__)


class OrphanGc:
    """`collect` collects once, `run` every `interval_s`. `unprepare` undoes a record, or raises PrepareError."""

    def __init__(
        self,
        preparer: Preparer,
        *,
        fetch: Fetch,
        unprepare: Callable[[ClaimRecord], Awaitable[None]],
        interval_s: float = 120.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._preparer = preparer
        self._fetch = fetch
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
            if not await self._is_gone(record):
                continue
            if record.uid not in self._missing:
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

    async def _is_gone(self, record: ClaimRecord) -> bool:
        try:
            claim = await self._fetch(record.namespace, record.name)
        except errors.NotFound:
            return True
        except errors.ApiError as error:
            log.debug("%s: not known whether it still exists: %s", record, error)
            return False
        except Exception as error:  # such as an object nested too deeply to be read: it does exist
            log.warning("%s: cannot be read: %s", record, reason(error))
            return False
        return claim.metadata.uid != record.uid
