"""Live pages: one stream of server-sent events for each viewer, with the fragments of its page that changed.

A page is rendered once for all viewers of the same address and the same rights, at most once a second, and only when the facts are
others. Rendering takes at most half of the time: with many different pages open it is done less often. A viewer that does not read
is cut off; when it comes back it gets what it missed. A stream ends when the viewer's session does, or the rights change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping
from urllib.parse import urlencode

from aiohttp import web
from markupsafe import escape

from fairlead.kube.limits import Clock
from fairlead.ui.access.sessions import heaviest, party
from fairlead.ui.model.scope import Scope
from fairlead.ui.pages import render
from fairlead.ui.serve.answers import Shown, takes_gzip
from fairlead.ui.serve.channel import Channel, Chunk, Stream, event
from fairlead.ui.serve.viewers import LoginNeededError, Viewer, Viewers
from fairlead.ui.serve.views import EVERY_S, Address, Views, live_address

LOG = logging.getLogger(__name__)
SHARE = 0.5  # of the time, at most, in which pages are rendered
SLACK_S = 0.1  # what is due so soon is rendered in this round
HEARTBEAT_S = 15.0
CHECKED_S = 60.0  # how often a viewer's session and rights are looked at
SLOW_S = 20.0  # a viewer that takes nothing for so long is cut off
RETRY_MS = 30_000
VIEWERS_MAX = 500
STREAMS_MAX = 30  # of one viewer who logged in
UNWATCHED_MAX = 64  # pages without a stream that are kept, so that the stream begins where the page ended
_HEARTBEAT = Chunk(b": \n\n")


class Hub:
    """All channels of one server. `run` renders them until it is cancelled."""

    def __init__(self, views: Views, *, viewers_max: int = VIEWERS_MAX, clock: Clock = time.monotonic) -> None:
        self._views = views
        self._clock = clock
        self.viewers_max = viewers_max
        self._channels: OrderedDict[tuple[Address, Scope], Channel] = OrderedDict()
        self._seats: dict[_Seat, None] = {}  # taken longest ago first
        self._opened = asyncio.Event()
        self._closing = False

    @property
    def viewers(self) -> int:
        return len(self._seats)

    async def page(self, address: Address, scope: Scope) -> tuple[Shown, str]:
        """And what opens its stream, "" for a page that has none."""
        channel = self._channel(address, scope)
        shown = await self._refresh(channel, address, scope)
        if shown.status not in {200, 503}:
            return shown, ""
        query = urlencode({"page": str(address), "from": channel.revision})
        return shown, render.stream(f"/live?{query}")

    async def run(self) -> None:
        while True:
            await self._opened.wait()
            began = self._clock()
            for (address, scope), channel in list(self._channels.items()):
                if channel.viewers and self._clock() - channel.made >= address.every_s - SLACK_S:
                    try:
                        await self._refresh(channel, address, scope)
                    except Exception:  # one page that fails must not stop the others
                        LOG.exception("cannot render %s for its viewers", address)
                    await asyncio.sleep(0)
            took = self._clock() - began
            await asyncio.sleep(max(EVERY_S - took, took * (1 - SHARE) / SHARE))

    async def serving(self, app: web.Application) -> AsyncIterator[None]:
        """A context for an application's `cleanup_ctx`, in which pages are kept up to date."""
        task = asyncio.create_task(self.run(), name="live pages")
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def close(self, app: web.Application) -> None:
        """Every stream ends: for an application's `on_shutdown`."""
        self._closing = True
        for channel in self._channels.values():
            channel.news.set()

    async def stream(
        self, request: web.Request, viewers: Viewers, viewer: Viewer, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """The answer to `/live`; ends when the viewer goes, is too slow, or may not see the page any more. Raises HTTPNotFound."""
        address = live_address(request.query.get("page", ""))
        if address is None:
            raise web.HTTPNotFound
        response = web.StreamResponse(headers=headers)
        response.headers["Content-Type"] = "text/event-stream; charset=utf-8"
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Accel-Buffering"] = "no"  # of nginx, which would keep events back
        gzip = takes_gzip(request.headers.get("Accept-Encoding", ""))
        if gzip:
            response.headers["Content-Encoding"] = "gzip"
        out = _Out(request, response, Stream(gzip=gzip))
        await response.prepare(request)
        refused = self._refused(viewer)
        if refused:
            await out.send(_notice(refused))
        else:
            seat = _Seat(viewer.name, out)
            with self._seated(seat):
                await self._follow(seat, address, viewers, viewer)
        await out.end()
        return response

    async def _follow(self, seat: _Seat, address: Address, viewers: Viewers, viewer: Viewer) -> None:
        out, request = seat.out, seat.out.request
        channel = self._channel(address, viewer.scope)
        revision = request.headers.get("Last-Event-ID") or request.query.get("from", "")
        channel.viewers += 1
        try:
            await self._refresh(channel, address, viewer.scope)
            await out.send(_HEARTBEAT)  # so that a proxy passes the head on
            checked = self._clock()
            while not self._closing:
                if seat.lost:
                    await out.send(_notice(_full(self.viewers_max)))
                    return
                news = channel.news
                lacking = channel.since(revision)
                if lacking is not None:
                    revision = channel.revision
                    await out.send(lacking)
                    continue
                if self._clock() - checked >= CHECKED_S:
                    checked = self._clock()
                    try:
                        now = await viewers.viewer(request)
                    except LoginNeededError:
                        await out.send(_notice("you are logged out: load this page again to log in"))
                        return
                    if now.scope != viewer.scope:
                        return  # it opens again, with the rights of now
                try:
                    async with asyncio.timeout(HEARTBEAT_S) as seat.waits:
                        await news.wait()
                except TimeoutError:
                    if not seat.lost:
                        await out.send(_HEARTBEAT)
                finally:
                    seat.waits = None
        except (ConnectionError, TimeoutError):
            out.abort()
        finally:
            channel.viewers -= 1

    async def _refresh(self, channel: Channel, address: Address, scope: Scope) -> Shown:
        async with channel.lock:
            facts = await self._views.facts()
            if channel.shown is None or channel.of is not facts:
                channel.update(await self._views.shown(facts, address, scope, json=False), facts)
                channel.made = self._clock()
            assert channel.shown is not None
            return channel.shown

    def _channel(self, address: Address, scope: Scope) -> Channel:
        channel = self._channels.setdefault((address, scope), Channel())
        self._channels.move_to_end((address, scope))
        unwatched = [key for key, each in self._channels.items() if not each.viewers and each is not channel]
        for key in unwatched[: max(0, len(unwatched) - UNWATCHED_MAX)]:
            del self._channels[key]
        return channel

    def _refused(self, viewer: Viewer) -> str:
        """Why there is no stream for this viewer. Where the server has no room, whoever has most of it loses one first."""
        scope = viewer.scope
        if scope.namespaces is not None and not (scope.namespaces or scope.cluster or scope.queues):
            return f"this page stays as it was loaded: {scope.namespaces_why}"
        if viewer.name and sum(seat.user == viewer.name for seat in self._seats) >= STREAMS_MAX:
            return f"this page stays as it was loaded: you have {STREAMS_MAX} live pages open; close some of them"
        if self.viewers < self.viewers_max:
            return ""
        own = party(viewer.name)
        loses = heaviest((seat.party for seat in self._seats), own)
        if loses == own:
            return _full(self.viewers_max)
        seat = next(each for each in self._seats if each.party == loses)
        del self._seats[seat]
        seat.lose()
        return ""

    @contextlib.contextmanager
    def _seated(self, seat: _Seat) -> Iterator[None]:
        self._seats[seat] = None
        self._opened.set()
        try:
            yield
        finally:
            self._seats.pop(seat, None)
            if not self._seats:
                self._opened.clear()


def _full(most: int) -> str:
    return (
        f"this page stays as it was loaded: {most} live pages are open, which is what this server allows, and of those who have them you "
        "have most; it tries again by itself"
    )


class _Seat:
    """One stream's place among those that the server has."""

    def __init__(self, user: str, out: _Out) -> None:
        self.user = user
        self.party = party(user)
        self.out = out
        self.lost = False
        self.waits: asyncio.Timeout | None = None  # while there is nothing to send

    def lose(self) -> None:
        """It is told so and ends; one that is in the middle of taking something ends at once."""
        self.lost = True
        if self.waits is None:
            self.out.abort()
        else:
            self.waits.reschedule(asyncio.get_running_loop().time())


class _Out:
    """One viewer's stream. A viewer that takes nothing for `SLOW_S` is cut off by a TimeoutError."""

    def __init__(self, request: web.Request, response: web.StreamResponse, stream: Stream) -> None:
        self.request = request
        self._response = response
        self._stream = stream
        self._begun = False

    async def send(self, chunk: Chunk) -> None:
        data = self._stream.add(chunk)
        async with asyncio.timeout(SLOW_S):
            await self._response.write(data if self._begun else self._stream.head + data)
        self._begun = True

    async def end(self) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(SLOW_S):
                if self._stream.end:
                    await self._response.write(self._stream.end)
                await self._response.write_eof()

    def abort(self) -> None:
        if self.request.transport is not None:
            self.request.transport.abort()


def _notice(text: str) -> Chunk:
    notice = f'<div id="notices" role="status"><p class="notice">{escape(render.sentence(text))}</p></div>'
    swap = f'<hx-partial hx-target="#notices" hx-swap="outerMorph">{notice}</hx-partial>'
    return Chunk(event(swap, retry_ms=RETRY_MS))
