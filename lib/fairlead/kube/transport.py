"""One connection pool to one apiserver: authentication, limits, retries, and HTTP answers as errors.

Configuration and authentication are the official client's (see `credentials`); how bytes travel is the `wire`'s.
Retries, at most `RETRIES` times: 429, and 503 with a Retry-After, for then the server did nothing. A 401 is tried once more
with a credential that was read again. Everything else is raised as an `errors.ApiError`; no answer is `Unreachable`.
"""

import asyncio
import contextlib
import copy
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from random import Random
from typing import Self, TypeVar

import msgspec

from fairlead.kube import credentials, errors
from fairlead.kube.credentials import Kubeconfig
from fairlead.kube.exchange import Answer, ExchangeError, Stale
from fairlead.kube.http_wire import HttpWire
from fairlead.kube.limits import Backoff, Clock, Sleep, TokenBucket
from fairlead.kube.wire import Streamed, Wire

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRIES = 5
RETRY_AFTER_MAX_S = 60.0
TIMEOUT_S = 60.0
REPEATABLE = frozenset({"GET", "PUT", "DELETE"})
"""Methods whose request may be sent again where it is not known whether it arrived."""


class Transport:
    """Requests to one apiserver as one user, as bytes. Use it inside `async with`."""

    def __init__(
        self,
        access: credentials.Credentials,
        *,
        user_agent: str = "fairlead",
        qps: float | None = None,
        burst: int = 100,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        self._access = access
        self._random = random or Random()  # noqa: S311 - jitter
        self._sleep = sleep
        self._bucket = None if qps is None else TokenBucket(qps=qps, burst=burst, clock=clock, sleep=sleep)
        self._backoff = Backoff()
        self._user_agent = user_agent
        self._wire: Wire | None = None
        self._guard: Callable[[], None] | None = None
        self._timeout_s = TIMEOUT_S
        self._retries = RETRIES

    def guarded(self, guard: Callable[[], None], *, timeout_s: float, retries: int = 0) -> Self:
        """The same connection, for writes that only a leader may make.

        `guard` is called before every attempt and raises to prevent it; `timeout_s` bounds how long an attempt can
        still be under way after that.
        """
        guarded = copy.copy(self)
        guarded._guard, guarded._timeout_s, guarded._retries = guard, timeout_s, retries  # noqa: SLF001
        return guarded

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls,
        kubeconfig: Kubeconfig = None,
        *,
        context: str | None = None,
        user_agent: str = "fairlead",
        qps: float | None = None,
        burst: int = 100,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        random: Random | None = None,
    ) -> AsyncIterator[Self]:
        """A client from the explicit file, else $KUBECONFIG, else in-cluster, else ~/.kube/config."""
        access = await credentials.load(kubeconfig, context=context, clock=clock)
        async with cls(
            access, user_agent=user_agent, qps=qps, burst=burst, clock=clock, sleep=sleep, random=random
        ) as client:
            yield client

    async def __aenter__(self) -> Self:
        make = self._access.wire
        self._wire = (
            HttpWire(self._access, user_agent=self._user_agent, timeout_s=TIMEOUT_S)
            if make is None
            else make(self._user_agent)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    @property
    def url(self) -> str:
        """The apiserver's, without a path."""
        return self._access.url

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
        retries: int | None = None,
    ) -> bytes:
        """The answer's body. `body` is sent as it is when it is bytes, else encoded as JSON. Raises ApiError."""
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        retries = self._retries if retries is None else retries
        for attempt in range(retries + 1):
            try:
                return await self._answer(method, path, params or {}, data, headers, timeout_s)
            except (errors.TooManyRequests, errors.ServerError) as error:
                undone = isinstance(error, errors.TooManyRequests) or (
                    error.status == 503 and error.retry_after_s is not None
                )
                if not undone or attempt == retries:
                    raise
                delay = error.retry_after_s
                delay = self._backoff.delay(attempt, self._random) if delay is None else delay
                log.debug("%s %s: %s; trying again in %.1f s", method, path, error, delay)
                await self._sleep(min(delay, RETRY_AFTER_MAX_S))
            except (ExchangeError, TimeoutError, OSError) as error:
                late = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) and not str(error) else ""
                raise errors.Unreachable(f"{method} {self.url}{path}: {late or _reason(error)}") from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, subject: str, silence_max_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of a GET as it arrives, without a limit on its whole duration.

        `subject` begins the message of an Unreachable, which is raised when nothing arrives for `silence_max_s` and when the
        connection breaks.
        """
        try:
            async with contextlib.aclosing(await self._open(path, params, silence_max_s)) as streamed:
                yield streamed.chunks()
        except (ExchangeError, TimeoutError, OSError) as error:
            raise errors.Unreachable(f"{subject} at {self.url}: {_reason(error)}") from error

    async def _answer(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        data: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> bytes:
        """The answer's body. Raises the ApiError that its status means; a 401 is tried once more."""

        async def attempt(authorization: Mapping[str, str]) -> bytes:
            sent = {**headers, **authorization}
            try:
                answer = await self._sent(method, path, params, data, sent, timeout_s)
            except Stale:
                if method not in REPEATABLE:
                    raise
                await self._permitted()
                answer = await self._sent(method, path, params, data, sent, timeout_s)
            if answer.status < 300:
                return answer.body
            raise errors.from_response(answer.status, answer.body, retry_after=answer.retry_after)

        return await self._authorized(attempt)

    async def _authorized(self, attempt: Callable[[Mapping[str, str]], Awaitable[T]]) -> T:
        """What `attempt` returns, given the header that authenticates it; after a 401 once more, with a credential read again."""
        authorization = await self._permitted()
        try:
            return await attempt(authorization)
        except errors.Unauthorized:
            if not authorization:
                raise
        return await attempt(await self._permitted(force=True))

    async def _permitted(self, *, force: bool = False) -> dict[str, str]:
        """To be called before every attempt. The header that authenticates it, if any; raises what the guard raises."""
        if self._bucket is not None:
            await self._bucket.take()
        if self._guard is not None:
            self._guard()
        authorization = await self._access.authorization(force=force)
        return {"Authorization": authorization} if authorization else {}

    async def _sent(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        data: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Answer:
        return await self._open_wire.request(
            method, path, params=params, headers=headers, body=data, timeout_s=timeout_s
        )

    async def _open(self, path: str, params: Mapping[str, str], silence_max_s: float) -> Streamed:
        """The answer with its body unread, or the ApiError that its status means. A 401 is tried once more."""

        async def attempt(authorization: Mapping[str, str]) -> Streamed:
            streamed = await self._open_wire.open(
                path, params=params, headers=authorization, silence_max_s=silence_max_s
            )
            if streamed.status < 300:
                return streamed
            async with contextlib.aclosing(streamed):
                raise errors.from_response(streamed.status, await streamed.read(), retry_after=streamed.retry_after)

        return await self._authorized(attempt)

    @property
    def _open_wire(self) -> Wire:
        if self._wire is None:
            raise RuntimeError("the client is closed; use it inside `async with`")
        return self._wire


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
