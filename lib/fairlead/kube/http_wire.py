"""Requests to an apiserver over HTTP. Writes and reads go through `exchange`; watches, and all that goes through a proxy, through aiohttp."""

import asyncio
import contextlib
import socket
import weakref
from collections.abc import AsyncIterator, Mapping

import aiohttp

from fairlead.kube.credentials import Credentials
from fairlead.kube.exchange import Answer, Exchange
from fairlead.kube.wire import Streamed

CONNECTIONS = 100
CLOSE_S = 2.0
"""Most that closing waits for sockets; those of TLS close some turns of the loop after their connection."""


class HttpWire:
    """To be made inside a running loop. `timeout_s`: of connecting, for a stream."""

    def __init__(self, access: Credentials, *, user_agent: str, timeout_s: float) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        if access.tls is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS, socket_factory=self._new_socket)
        else:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS, socket_factory=self._new_socket, ssl=access.tls)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": user_agent, "Accept": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**20,
        )
        self._exchange: Exchange | None = None
        if access.proxy is None:
            self._exchange = Exchange(
                access.url, tls=access.tls, server_name=access.server_name, user_agent=user_agent, limit=CONNECTIONS
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
        if self._exchange is not None:
            return await self._exchange.request(
                method, path, params=params, headers=headers, body=body, timeout_s=timeout_s
            )
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with await self._requested(method, path, params, body, headers, timeout) as response:
            return Answer(response.status, await response.read(), response.headers.get("Retry-After"))

    async def open(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str], silence_max_s: float
    ) -> Streamed:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s, sock_read=silence_max_s)
        return _HttpStream(await self._requested("GET", path, params, None, headers, timeout))

    async def close(self) -> None:
        if self._exchange is not None:
            await self._exchange.close(CLOSE_S)
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

    def chunks(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()

    async def read(self) -> bytes:
        return await self._response.read()

    async def aclose(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._response)
