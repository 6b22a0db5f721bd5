"""How each write of the gang protocol is made, so that its outcome becomes certain.

Exists because a write whose answer is lost may still arrive: a step either knows what is so at the end, or goes on asking
until it does, or the lease is lost (then `LeaseLostError` ends it and the next leader finds the state in the cluster).
What is written: to claims in `claim_writes`, to pods in `pod_writes`. All writes carry the resourceVersion that they were
decided on, and are bounded in number. Decides nothing about gangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from fairlead.controller.watch.caches import Caches
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.limits import Backoff, Clock, Sleep

log = logging.getLogger(__name__)

T = TypeVar("T")

CONFLICTS_MAX = 10
PATIENCE_S = 30.0  # how long a step is tried against 429, 500 and silence before the gang is undone


class LeaseLostError(Exception):
    """We lead no more: nothing may be written."""


class GivenUpError(Exception):
    """A step cannot be done; the message says why. What was written before is to be undone."""


class Steps:
    """`client` is guarded by the lease. At most `concurrent` writes are under way at once."""

    def __init__(
        self,
        client: Client,
        state: Caches,
        *,
        concurrent: int = 64,
        clock: Clock,
        wall: Clock,
        sleep: Sleep = asyncio.sleep,
        random: Random,
    ) -> None:
        self._wall = wall
        self._client = client
        self._state = state
        self._slots = asyncio.Semaphore(concurrent)
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._backoff = Backoff(base_s=0.1, max_s=5.0)

    async def _persist(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        """Tries again after 429, 5xx and silence, for `PATIENCE_S`; other errors are the caller's."""
        began = self._clock()
        failures = 0
        while True:
            try:
                async with self._slots:
                    return await attempt()
            except errors.ApiError as error:
                if not error.transient or self._clock() - began >= PATIENCE_S:
                    raise
                delay = error.retry_after_s
                delay = self._backoff.delay(failures, self._random) if delay is None else delay
                failures += 1
                log.debug("%s: %s; next try in %.1f s", what, error, delay)
            await self._sleep(min(delay, PATIENCE_S))

    async def _insist(self, attempt: Callable[[], Awaitable[bool]], what: str) -> None:
        """Tries until it is certain (true), without end while we lead; false means: it changed, look again."""
        failures = 0
        while True:
            delay = self._backoff.delay(failures, self._random)
            failures += 1
            try:
                async with self._slots:
                    if await attempt():
                        return
            except errors.ApiError as error:
                log.log(
                    logging.INFO if error.transient else logging.ERROR,
                    "%s: not taken back yet: %s; next try in %.1f s", what, error, delay,
                )  # fmt: skip
            await self._sleep(delay)
