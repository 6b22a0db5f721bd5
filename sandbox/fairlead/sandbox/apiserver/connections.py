"""The apiserver's connections: a stopped server has none, not even one whose TLS handshake was under way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler


class ConnectionServer(web.Server):
    """aiohttp's server, which also ends the connections that its `shutdown` misses.

    `shutdown` forgets each connection that is made while it waits for requests in progress, and one whose TLS handshake
    ends later: they would be served for ever.
    """

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._open: dict[RequestHandler, asyncio.Transport] = {}
        self._ended = False

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open[handler] = transport
        if self._ended:
            transport.abort()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._open.pop(handler, None)
        super().connection_lost(handler, exc)

    async def shutdown(self, timeout: float | None = None) -> None:
        """Finish requests in progress, at most `timeout` seconds; then end every connection, and those made later."""
        await super().shutdown(timeout)
        self._ended = True
        await asyncio.sleep(0)  # closing transports write what they have
        for transport in list(self._open.values()):
            transport.abort()
