"""How each write of the gang protocol is made, so that its outcome becomes certain.

A write whose answer is lost may still arrive. So a step ends only when its outcome is known, or when the lease is lost:
then `LeaseLostError` ends it, and the next leader finds the state in the cluster. All writes carry the resourceVersion or
UID that they were decided on; at most `concurrent` are under way at once.
Claims are written in `claim_writes`, pods and evictions in `writer`. Decides nothing about gangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from fairlead.controller.watch.caches import Caches
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.limits import Backoff
from fairlead.kube.timing import Time

log = logging.getLogger(__name__)

T = TypeVar("T")

CONFLICTS_MAX = 10
RETRY_TIMEOUT_S = 30.0  # how long a step is retried against 429, 5xx and lost connections before the gang is undone


class LeaseLostError(Exception):
    """This replica leads no more: nothing may be written."""


class GivenUpError(Exception):
    """A step cannot be done; the message says why. What was written before is to be undone."""


class Writes:
    """`client` is guarded by the lease: a call without it raises LeaseLostError."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        *,
        concurrent: int = 64,
        time: Time,
    ) -> None:
        self._client = client
        self._caches = caches
        self._slots = asyncio.Semaphore(concurrent)
        self._clock, self._wall, self._sleep, self._random = time.clock, time.wall, time.sleep, time.random
        self._backoff = Backoff(base_s=0.1, max_s=5.0)

    async def _retry(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        """Retries transient errors for `RETRY_TIMEOUT_S`; raises the last one, and any other error at once."""
        began = self._clock()
        failures = 0
        while True:
            try:
                async with self._slots:
                    return await attempt()
            except errors.ApiError as error:
                if not error.transient or self._clock() - began >= RETRY_TIMEOUT_S:
                    raise
                delay = error.retry_after_s
                delay = self._backoff.delay(failures, self._random) if delay is None else delay
                failures += 1
                log.debug("%s: %s; next try in %.1f s", what, error, delay)
            await self._sleep(min(delay, RETRY_TIMEOUT_S))

    async def _retry_until_certain(self, attempt: Callable[[], Awaitable[bool]], what: str) -> None:
        """Until `attempt` returns True; False means that the object changed meanwhile. Ends otherwise with the lease only."""
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
                    "%s: not undone yet: %s; next try in %.1f s", what, error, delay,
                )  # fmt: skip
            await self._sleep(delay)


async def outcomes(steps: Iterable[Awaitable[T]]) -> list[T | Exception]:
    """Every step to its end, whatever the others do: a write must not be left half made.

    GivenUpError and ApiError are returned in place of a result; LeaseLostError and others are raised.
    """
    steps = list(steps)
    if len(steps) == 1:  # nearly always: a gang of one, or a pod with one claim
        try:
            return [await steps[0]]
        except (GivenUpError, errors.ApiError) as error:
            return [error]
    results = await asyncio.gather(*steps, return_exceptions=True)
    found: list[T | Exception] = []
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, GivenUpError | errors.ApiError):
            raise result
        found.append(result)
    return found


async def all_done(steps: Iterable[Awaitable[T]]) -> list[T]:
    """Every step to its end; then the first failure is raised."""
    done: list[T] = []
    for result in await outcomes(steps):
        if isinstance(result, Exception):
            raise result
        done.append(result)
    return done
