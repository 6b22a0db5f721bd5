"""What protects a reader and the server: headers of every answer, which requests are meant for it, connections that ask for nothing.

A page of another site can make a browser send requests to loopback under that site's name (DNS rebinding); it cannot make it send
another Host header. So only requests to loopback's own names are answered. A form of another site must not be sent here under the viewer's
cookie, and no address of this server may lead a viewer elsewhere.

A request that is never whole, or none at all, must not keep others out: its head must be whole `HEAD_S` after the connection began or after
the answer before it, a body `BODY_S` after its head, a handshake `HANDSHAKE_S` after the connection. Of more than `MOST` connections those
end first that carry no request, of the address with most of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from fairlead.kube.limits import Clock
from fairlead.ui.access.sessions import network

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
STRICT: Final = "max-age=31536000"
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


def allowed_hosts(port: int) -> frozenset[str]:
    """What the Host header of a request to loopback at this port may be."""
    return frozenset(f"{name}:{port}" for name in LOOPBACK) | (frozenset(LOOPBACK) if port == 80 else frozenset())


def headers_for(*, private: bool, hosts: Collection[str] | None) -> Mapping[str, str]:
    """The headers of a server that is `private` to those who log in. Its forms need their own origin named, which no-referrer keeps back. Where it
    has names of its own, browsers use nothing but TLS with them from then on; not under names that other servers share, as localhost.
    """
    if not private:
        return HEADERS
    named = {} if hosts is None else {"Strict-Transport-Security": STRICT}
    return {**HEADERS, "Referrer-Policy": "same-origin", **named}


NEXT_MAX = 2000
ARRIVED = "arrived"


def foreign(headers: Mapping[str, str], *, scheme: str = "https") -> str:
    """Why a request that changes something is refused; "" where a page of this server sent it."""
    site = headers.get("Sec-Fetch-Site", "")
    if site and site != "same-origin":
        return f"the form was sent by a page of another site (Sec-Fetch-Site: {site[:40]})"
    origin, host = headers.get("Origin", ""), headers.get("Host", "")
    if not origin and not site:
        return "the request does not say which page it comes from: it has neither an Origin nor a Sec-Fetch-Site header"
    if origin == "null" and site:
        return ""  # a page without a referrer has an origin that is not named; that it is this server's own the browser says
    if origin and origin.lower() != f"{scheme}://{host}".lower():
        return f"the form was sent by a page of {origin[:200]}, and this server is {scheme}://{host[:200]}"
    return ""


def local_path(text: str, default: str = "/") -> str:
    """The path and query that are meant, on this server and no other; `default` for everything else."""
    if not text.startswith("/") or text.startswith("//") or "\\" in text or len(text) > NEXT_MAX:
        return default
    if not text.isascii() or not text.isprintable() or " " in text:
        return default
    try:
        parts = urlsplit(text)
    except ValueError:
        return default
    if parts.scheme or parts.netloc or parts.path in {"/login", "/logout"} or parts.path.startswith("//"):
        return default
    return text


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
