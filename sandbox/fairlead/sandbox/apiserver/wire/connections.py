"""The apiserver's connections: a stopped server has none, neither one whose TLS handshake was under way nor one whose client is silent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler

_FAREWELL_S = 0.5


class ConnectionServer(web.Server):
    """aiohttp's server, which also ends the connections that its `shutdown` misses.

    `shutdown` forgets each connection that is made while it waits for requests in progress, and one whose TLS handshake
    ends later: they would be served forever. And it closes connections, it does not abort them: over TLS asyncio then waits 30 s for the
    client's answer, which a client that is stopped never gives.
    """

    _ended = False

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._open: dict[RequestHandler, asyncio.Transport] = {}
        self._none = asyncio.Event()  # set when the last one of an ended server is gone

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open[handler] = transport
        if self._ended:
            transport.abort()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._open.pop(handler, None)
        if self._ended and not self._open:
            self._none.set()
        super().connection_lost(handler, exc)

    async def shutdown(self, timeout: float | None = None) -> None:
        """Finish requests in progress, at most `timeout` seconds, and end every connection; those made from now on at once."""
        self._ended = True
        await super().shutdown(timeout)
        if self._open:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._none.wait(), _FAREWELL_S)
        for transport in list(self._open.values()):
            transport.abort()
