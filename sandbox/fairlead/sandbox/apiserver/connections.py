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

    _ended = False

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if self._ended:
            transport.abort()

    async def shutdown(self, timeout: float | None = None) -> None:
        """Finish requests in progress, at most `timeout` seconds, and end every connection; those made from now on at once."""
        self._ended = True
        await super().shutdown(timeout)
