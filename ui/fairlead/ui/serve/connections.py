"""Connections of the pages' server that ask for nothing: a request that is never whole, or none at all, must not keep others out.

A request's head must be whole `HEAD_S` after the connection began or after the answer before it, a body `BODY_S` after its head, a handshake
`HANDSHAKE_S` after the connection. Of more than `MOST` connections those end first that carry no request, of the address with most of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from aiohttp import web

from fairlead.kube.limits import Clock
from fairlead.ui.access.attempts import network

HEAD_S = 10.0
BODY_S = 10.0
HANDSHAKE_S = 5.0
MOST = 2_000
LOOK_S = 0.5


class Connections:
    """`sweep` ends what asks for nothing, until it is cancelled."""

    def __init__(self, *, most: int = MOST, head_s: float = HEAD_S, clock: Clock = time.monotonic) -> None:
        self._most, self._head_s, self._clock = most, head_s, clock
        self._busy: Counter[web.RequestHandler] = Counter()
        self._idle: dict[web.RequestHandler, float] = {}  # since when

    @contextlib.contextmanager
    def asking(self, request: web.Request) -> Iterator[None]:
        """While a request is answered."""
        handler = request.protocol
        self._busy[handler] += 1
        self._idle.pop(handler, None)
        try:
            yield
        finally:
            self._busy[handler] -= 1
            if not self._busy[handler]:
                del self._busy[handler]

    async def sweep(self, server: web.Server) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look(server)

    def look(self, server: web.Server) -> None:
        now, every = self._clock(), server.connections
        self._idle = {each: self._idle.get(each, now) for each in every if each not in self._busy}
        late = [each for each, since in self._idle.items() if now - since >= self._head_s]
        excess = len(every) - len(late) - self._most
        for each in (*late, *(self._heaviest(frozenset(late), excess) if excess > 0 else ())):
            del self._idle[each]
            if each.transport is not None:
                each.transport.abort()

    def _heaviest(self, late: frozenset[web.RequestHandler], excess: int) -> list[web.RequestHandler]:
        """So many of those that are idle, the oldest of the address with most, in turn."""
        by_address: dict[str, list[web.RequestHandler]] = {}
        for each in self._idle:
            if each not in late:
                by_address.setdefault(_address(each), []).append(each)
        found: list[web.RequestHandler] = []
        while excess > len(found) and by_address:
            most = max(by_address, key=lambda address: len(by_address[address]))
            found.append(by_address[most].pop(0))
            if not by_address[most]:
                del by_address[most]
        return found


def _address(handler: web.RequestHandler) -> str:
    peer = handler.transport.get_extra_info("peername") if handler.transport is not None else None
    return network(str(peer[0])) if peer else ""


async def form(request: web.Request) -> Mapping[str, Any]:
    """The form that is sent. Raises HTTPRequestTimeout where its end does not come, HTTPRequestEntityTooLarge."""
    try:
        async with asyncio.timeout(BODY_S):
            return await request.post()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
