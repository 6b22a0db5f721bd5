"""Requests to an apiserver over HTTP. Writes and reads go through `exchange`; watches, and all that goes through a proxy, through `aiohttp_wire`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fairlead.kube.credentials import Credentials
from fairlead.kube.exchange import Answer, Exchange
from fairlead.kube.wire import CLOSE_S, CONNECTIONS, Streamed

if TYPE_CHECKING:
    from fairlead.kube.aiohttp_wire import AiohttpWire


class HttpWire:
    """To be made inside a running loop. `timeout_s`: of connecting, for a stream."""

    def __init__(self, access: Credentials, *, user_agent: str, timeout_s: float) -> None:
        self._access, self._user_agent, self._timeout_s = access, user_agent, timeout_s
        self._aiohttp: AiohttpWire | None = None
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
        way = self._exchange or self._by_aiohttp
        return await way.request(method, path, params=params, headers=headers, body=body, timeout_s=timeout_s)

    async def open(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str], silence_max_s: float
    ) -> Streamed:
        return await self._by_aiohttp.open(path, params=params, headers=headers, silence_max_s=silence_max_s)

    async def close(self) -> None:
        if self._exchange is not None:
            await self._exchange.close(CLOSE_S)
        if self._aiohttp is not None:
            await self._aiohttp.close()

    @property
    def _by_aiohttp(self) -> AiohttpWire:
        if self._aiohttp is None:
            from fairlead.kube.aiohttp_wire import AiohttpWire

            self._aiohttp = AiohttpWire(self._access, user_agent=self._user_agent, timeout_s=self._timeout_s)
        return self._aiohttp
