"""Gives back the devices of claims that are gone from the cluster, though nobody called unprepare.

Exists because a claim can be force-deleted while the driver or kubelet is down, and its devices would then be refused to
everyone for ever. Kubelet's own call is much the better one, so this waits: a claim has to be missing (or another one of
the same name) at two looks in a row. An apiserver that does not answer says nothing about any claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fairlead.driver.kubelet.service import Fetch
from fairlead.driver.prepare.preparer import PrepareError, Preparer
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.kube import errors
from fairlead.kube.limits import Sleep

log = logging.getLogger(__name__)


class Sweeper:
    """`sweep` looks once; `run` looks every `interval_s`. `give_back` undoes a record, or raises PrepareError."""

    def __init__(
        self,
        preparer: Preparer,
        *,
        fetch: Fetch,
        give_back: Callable[[ClaimRecord], Awaitable[None]],
        interval_s: float = 120.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._preparer = preparer
        self._fetch = fetch
        self._interval_s = interval_s
        self._sleep = sleep
        self._give_back = give_back
        self._missing: frozenset[str] = frozenset()

    async def run(self) -> None:
        while True:
            await self._sleep(self._interval_s)
            await self.sweep()

    async def sweep(self) -> list[str]:
        """UIDs of the claims whose devices were given back."""
        missing: set[str] = set()
        swept: list[str] = []
        for record in self._preparer.records():
            if not await self._gone(record):
                continue
            if record.uid not in self._missing:
                missing.add(record.uid)
                continue
            try:
                await self._give_back(record)
            except PrepareError as error:
                log.error("%s is gone from the cluster, but cannot be undone: %s", record, error)
                missing.add(record.uid)
            else:
                log.warning("%s is gone from the cluster; its devices were given back without kubelet's call", record)
                swept.append(record.uid)
        self._missing = frozenset(missing)
        return swept

    async def _gone(self, record: ClaimRecord) -> bool:
        try:
            claim = await self._fetch(record.namespace, record.name)
        except errors.NotFound:
            return True
        except errors.ApiError as error:
            log.debug("%s: not known whether it still exists: %s", record, error)
            return False
        return claim.metadata.uid != record.uid
