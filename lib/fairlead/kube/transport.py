"""One connection pool to one apiserver: authentication, limits, retries, and HTTP answers as errors.

Configuration and authentication are the official client's (see `credentials`). Requests go through `exchange`; watches, and
all that goes through a proxy, through aiohttp.
Retries, at most `RETRIES` times: 429, and 503 with a Retry-After, for then the server did nothing. A 401 is tried once more
with a credential that was read again. Everything else is raised as an `errors.ApiError`; no answer is `Unreachable`.
"""

import asyncio
import contextlib
import copy
import logging
import socket
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import Self, TypeVar

import aiohttp
import msgspec

from fairlead.kube import credentials, errors
from fairlead.kube.exchange import Answer, Exchange, ExchangeError, Stale
from fairlead.kube.limits import Backoff, Clock, Sleep, TokenBucket

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRIES = 5
RETRY_AFTER_MAX_S = 60.0
TIMEOUT_S = 60.0
CONNECTIONS = 100
REPEATABLE = frozenset({"GET", "PUT", "DELETE"})
"""Methods whose request may be sent again where it is not known whether it arrived."""
CLOSE_S = 2.0
"""Most that closing waits for sockets; those of TLS close some turns of the loop after their connection."""


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
        self._session: aiohttp.ClientSession | None = None
        self._exchange: Exchange | None = None  # where there is no proxy
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
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
        kubeconfig: Path | str | None = None,
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
        if self._access.tls is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS, socket_factory=self._new_socket)
        else:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS, socket_factory=self._new_socket, ssl=self._access.tls)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": self._user_agent, "Accept": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**20,
        )
        if self._access.proxy is None:
            self._exchange = Exchange(
                self._access.url,
                tls=self._access.tls,
                server_name=self._access.server_name,
                user_agent=self._user_agent,
                limit=CONNECTIONS,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._exchange is not None:
            await self._exchange.close(CLOSE_S)
            self._exchange = None
        if self._session is not None:
            await self._session.close()
            self._session = None
        await self._sockets_closed()

    def _new_socket(self, address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        family, type_, protocol, *_ = address
        made = socket.socket(family=family, type=type_, proto=protocol)
        self._sockets.add(made)
        return made

    async def _sockets_closed(self) -> None:
        """Waits until every socket is closed.

        A session waits for the connections that it holds, and not for those that it gave up: a cancelled watch, a request that
        was cancelled while it connected. A program that ends meanwhile leaves their sockets open.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + CLOSE_S
        pause_s = 0.0
        while any(each.fileno() >= 0 for each in self._sockets) and loop.time() < until:
            await asyncio.sleep(pause_s)
            pause_s = 0.005

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
            except (aiohttp.ClientError, ExchangeError, TimeoutError, OSError) as error:
                raise errors.Unreachable(f"{method} {self.url}{path}: {_reason(error)}") from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, subject: str, silence_max_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of a GET as it arrives, without a limit on its whole duration.

        `subject` begins the message of an Unreachable, which is raised when nothing arrives for `silence_max_s` and when the
        connection breaks.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_S, sock_read=silence_max_s)
        try:
            async with await self._open(path, params, timeout) as response:
                yield response.content.iter_any()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
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
                answer = await self._exchanged(method, path, params, data, sent, timeout_s)
            except Stale:
                if method not in REPEATABLE:
                    raise
                await self._permitted()
                answer = await self._exchanged(method, path, params, data, sent, timeout_s)
            if answer.status < 300:
                return answer.body
            raise errors.from_response(answer.status, answer.body, retry_after=answer.retry_after)

        return await self._authorized(attempt)

    async def _authorized(self, attempt: Callable[[Mapping[str, str]], Awaitable[T]]) -> T:
        """What `attempt` returns, given the header that authenticates it; after a 401 once more, with a credential read anew."""
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

    async def _exchanged(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        data: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Answer:
        if self._exchange is not None:
            return await self._exchange.request(
                method, path, params=params, headers=headers, body=data, timeout_s=timeout_s
            )
        response = await self._requested(method, path, params, data, headers, aiohttp.ClientTimeout(total=timeout_s))
        async with response:
            return Answer(response.status, await response.read(), response.headers.get("Retry-After"))

    async def _open(
        self, path: str, params: Mapping[str, str], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """The response with its body unread, or the ApiError that its status means. A 401 is tried once more."""

        async def attempt(authorization: Mapping[str, str]) -> aiohttp.ClientResponse:
            response = await self._requested("GET", path, params, None, authorization, timeout)
            if response.status < 300:
                return response
            async with response:
                body, retry_after = await response.read(), response.headers.get("Retry-After")
            raise errors.from_response(response.status, body, retry_after=retry_after)

        return await self._authorized(attempt)

    async def _requested(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is closed; use it inside `async with`")
        return await self._session.request(
            method,
            self._access.url + path,
            params=params,
            data=data,
            headers=headers,
            timeout=timeout,
            proxy=self._access.proxy,
            server_hostname=self._access.server_name,
            allow_redirects=False,
        )


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
