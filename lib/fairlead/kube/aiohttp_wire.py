"""The parts of the way to an apiserver that aiohttp goes: watches, and all that goes through a proxy. Its import takes a tenth of a second."""

import asyncio
import contextlib
import socket
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping

import aiohttp

from fairlead.kube.credentials import Credentials
from fairlead.kube.exchange import Answer, ExchangeError
from fairlead.kube.wire import CLOSE_S, CONNECTIONS, Streamed


class AiohttpWire:
    """To be made inside a running loop. `timeout_s`: of connecting, for a stream. What aiohttp raises is raised as an ExchangeError."""

    def __init__(self, access: Credentials, *, user_agent: str, timeout_s: float) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        tls = {} if access.tls is None else {"ssl": access.tls}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, socket_factory=self._new_socket, **tls),  # type: ignore[arg-type]
            headers={"User-Agent": user_agent, "Accept": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**20,
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
    ) -> Answer:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        with _as_ours():
            async with await self._requested(method, path, params, body, headers, timeout) as response:
                return Answer(response.status, await response.read(), response.headers.get("Retry-After"))

    async def open(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str], silence_max_s: float
    ) -> Streamed:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s, sock_read=silence_max_s)
        with _as_ours():
            return _HttpStream(await self._requested("GET", path, params, None, headers, timeout))

    async def close(self) -> None:
        await self._session.close()
        await self._sockets_closed()

    async def _requested(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        return await self._session.request(
            method,
            self._access.url + path,
            params=params,
            data=body,
            headers=headers,
            timeout=timeout,
            proxy=self._access.proxy,
            server_hostname=self._access.server_name,
            allow_redirects=False,
        )

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


class _HttpStream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.retry_after = response.headers.get("Retry-After")

    async def chunks(self) -> AsyncIterator[bytes]:
        with _as_ours():
            async for chunk in self._response.content.iter_any():
                yield chunk

    async def read(self) -> bytes:
        with _as_ours():
            return await self._response.read()

    async def aclose(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._response)


@contextlib.contextmanager
def _as_ours() -> Iterator[None]:
    try:
        yield
    except aiohttp.ClientError as error:
        raise ExchangeError(str(error) or type(error).__name__) from error
