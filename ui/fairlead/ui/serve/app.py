"""The server of the pages: answers GET and HEAD, and what a login needs; writes nothing anywhere.

`serve` is for loopback, where it reads with the rights of the user who started it; `fairlead.ui.app` serves others, who log in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import replace

from aiohttp import web
from aiohttp.typedefs import Middleware

from fairlead.api import names
from fairlead.kube import probes
from fairlead.kube.logs import BRIEF
from fairlead.ui.model.scope import ScopedFacts
from fairlead.ui.pages import render
from fairlead.ui.pages.render import SHOWN_TO, THEMES, ShownTo, Trouble
from fairlead.ui.reading.cluster import NotReadError, Source
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.serve import pages
from fairlead.ui.serve.answers import answer, asks_json, respond
from fairlead.ui.serve.live import Hub
from fairlead.ui.serve.security import (
    HANDSHAKE_S,
    HEAD_S,
    Connections,
    allowed_hosts,
    foreign,
    headers_for,
    local_path,
)
from fairlead.ui.serve.security import form as sent_form
from fairlead.ui.serve.viewers import Everyone, Handler, LoginNeededError, Viewer, Viewers
from fairlead.ui.serve.views import Address, Look, PagesOfLedger, Seen, Views
from fairlead.ui.serve.what_if import Computing, WhatIf

LOG = logging.getLogger(__name__)
HOST = "127.0.0.1"
YEAR_S = 31_536_000
YEAR = f"public, max-age={YEAR_S}, immutable"
THEME_COOKIE = "fairlead-theme"
BODY_MAX = 64 * 1024
PROBES = ("/healthz", "/readyz")  # kubelet asks for them by the pod's address
Observe = Callable[[str, int, float], None]
"""Is called after each answer, with the route, the status and the seconds that it took."""
CONNECTIONS: web.AppKey[Connections] = web.AppKey("connections", Connections)
VIEWER: web.RequestKey[Viewer] = web.RequestKey("viewer", Viewer)


@contextlib.asynccontextmanager
async def serve(
    source: Source,
    *,
    port: int,
    ledger: Ledger | None = None,
    computing: Computing | None = None,
    drivers: tuple[str, ...] = (names.DRIVER,),
    shared_drivers: tuple[str, ...] = (),
) -> AsyncIterator[str]:
    """Serves inside the context, on loopback; yields the address. Port 0 is any free one. Raises OSError where it is taken."""
    hosts: set[str] = set()
    app = application(source, hosts, ledger=ledger, computing=computing, drivers=drivers, shared_drivers=shared_drivers)
    async with listening(app, HOST, port) as bound:
        hosts |= allowed_hosts(bound)
        yield f"http://{HOST}:{bound}/"


@contextlib.asynccontextmanager
async def listening(
    app: web.Application, host: str, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serves inside the context; yields the port. Raises OSError where it is taken."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=HEAD_S)
    await runner.setup()
    assert runner.server is not None
    logging.getLogger("aiohttp.server").addFilter(BRIEF)
    sweeping = asyncio.create_task(app[CONNECTIONS].sweep(runner.server))
    handshake_s = None if context is None else HANDSHAKE_S
    try:
        listener = await asyncio.get_running_loop().create_server(
            runner.server, host, port, ssl=context, ssl_handshake_timeout=handshake_s, backlog=128
        )
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
    finally:
        sweeping.cancel()
        await runner.cleanup()


def application(
    source: Source,
    hosts: Collection[str] | None,
    viewers: Viewers | None = None,
    *,
    ready: Callable[[], str | None] = lambda: None,
    observe: Observe | None = None,
    ledger: Ledger | None = None,
    computing: Computing | None = None,
    drivers: tuple[str, ...] = (names.DRIVER,),
    shared_drivers: tuple[str, ...] = (),
) -> web.Application:
    """`hosts`: what the Host header may be; None: anything. `ready`: why it cannot answer yet, None when it can."""
    viewers = viewers or Everyone()
    scoped = ScopedFacts()
    connections = Connections()
    app = web.Application(middlewares=[_guard(hosts, viewers, observe, connections)], client_max_size=BODY_MAX)
    app[CONNECTIONS] = connections
    ledger = ledger or Ledger("")
    views = Views(source, scoped, ledger)
    hub = Hub(views)
    app.cleanup_ctx.append(hub.serving)
    app.on_shutdown.append(hub.close)
    for path in ("/", "/map", "/queues", "/queues/{name}", "/gangs", "/gangs/{namespace}/{name}", "/time"):
        app.router.add_get(path, _page(views, hub, viewers))
    app.router.add_get("/search", _search(views, viewers))
    app.router.add_get(
        "/live", _stream(hub, viewers, headers_for(private=viewers.private, hosts=hosts)), allow_head=False
    )
    for method, path, handler in viewers.routes():
        app.router.add_route(method, path, handler)
    look = _look(source, viewers, scoped)
    for path, handler in PagesOfLedger(ledger, look).routes():
        app.router.add_get(path, handler)
    what_if = WhatIf(computing, (drivers, shared_drivers), look)
    app.router.add_get("/what-if", what_if.ask)
    app.router.add_post("/what-if", what_if.answer)
    app.router.add_get("/style.css", _file("style.css", "text/css; charset=utf-8"))
    for name in render.SCRIPTS:
        app.router.add_get(f"/vendor/{name}", _file(f"vendor/{name}", "text/javascript; charset=utf-8"))
    app.router.add_get("/page.js", _file("page.js", "text/javascript; charset=utf-8"))
    app.router.add_post("/theme", _theme(secure=viewers.private))
    app.router.add_get("/icon.svg", _file("icon.svg", "image/svg+xml"))
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", probes.answer(ready))
    return app


async def _viewer(request: web.Request, viewers: Viewers) -> Viewer:
    """Who asks; the head of the page names that viewer. Raises LoginNeededError."""
    found = request[VIEWER] = await viewers.viewer(request)
    SHOWN_TO.set(replace(SHOWN_TO.get(), name=found.name, leaves=found.leaves))
    return found


def _page(views: Views, hub: Hub, viewers: Viewers) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        json = asks_json(request)
        viewer = await _viewer(request, viewers)
        address = Address.of(request.path, request.query.items())
        if json:
            return respond(request, await views.shown(await views.facts(), address, viewer.scope, json=True), json=True)
        shown, stream = await hub.page(address, viewer.scope)
        return respond(request, shown, json=False, stream=stream)

    return handler


def _search(views: Views, viewers: Viewers) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        json = asks_json(request)
        viewer = await _viewer(request, viewers)
        found = views.search(await views.facts(), request.query.get("q", ""), viewer.scope, json=json)
        if isinstance(found, str):
            return web.Response(status=303, headers={"Location": found, "Cache-Control": "no-store"})
        return respond(request, found, json=json)

    return handler


def _stream(hub: Hub, viewers: Viewers, headers: Mapping[str, str]) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            viewer = await _viewer(request, viewers)
        except NotReadError as error:
            return respond(request, pages.away(str(error), json=True), json=True)
        return await hub.stream(request, viewers, viewer, headers)

    return handler


def _look(source: Source, viewers: Viewers, scoped: ScopedFacts) -> Look:
    async def look(request: web.Request) -> Seen:
        viewer = await _viewer(request, viewers)
        everything = await source.facts()
        return Seen(viewer.scope, scoped.of(everything, viewer.scope), everything)

    return look


def _theme(*, secure: bool) -> Handler:
    """Takes the choice of a theme, which the browser keeps, and leads back to the page."""

    async def handler(request: web.Request) -> web.StreamResponse:
        chosen = str((await sent_form(request)).get("theme", ""))
        if chosen not in {"auto", *THEMES}:
            text = f"theme: {chosen[:40]!r}: there is auto, {', '.join(THEMES)}"
            return respond(request, pages.wrong(text, "/", json=False), json=False)
        response = web.Response(status=303, headers={"Location": local_path(request.query.get("next", ""))})
        if chosen == "auto":
            response.del_cookie(THEME_COOKIE, path="/", secure=secure, httponly=True, samesite="Lax")
        else:
            response.set_cookie(
                THEME_COOKIE, chosen, path="/", max_age=YEAR_S, secure=secure, httponly=True, samesite="Lax"
            )
        return response

    return handler


def _file(name: str, kind: str) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        found = answer(
            render.file(name),
            kind,
            encodings=request.headers.get("Accept-Encoding", ""),
            known=request.headers.get("If-None-Match", ""),
            keep=YEAR if request.query.get("v") else "no-cache",
        )
        return web.Response(status=found.status, body=found.body, headers=found.headers)

    return handler


async def _healthz(request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok\n")


def _guard(
    hosts: Collection[str] | None, viewers: Viewers, observe: Observe | None, connections: Connections
) -> Middleware:
    """Every answer has the headers, errors too; a request that means another host has no answer but that."""
    headers = headers_for(private=viewers.private, hosts=hosts)

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        with connections.asking(request):
            return await guarded(request, handler)

    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        chosen = next((each for each in THEMES if each == request.cookies.get(THEME_COOKIE)), None)
        SHOWN_TO.set(ShownTo(theme=chosen, path=request.path_qs))
        if hosts is not None and request.path not in PROBES and request.headers.get("Host", "").lower() not in hosts:
            what = Trouble(
                title="This name is not served here",
                text=f"the request is for {request.headers.get('Host', '')!r}; this server answers to names of its own only",
                steps=(f"Open one of: {', '.join(sorted(hosts))}",),
            )
            response: web.StreamResponse = respond(request, pages.trouble(what, 421, json=False), json=False)
        else:
            response = await _answered(request, handler, viewers)
        if not response.prepared:
            response.headers.update(headers)
            if VIEWER in request and viewers.private and response.status in {200, 304}:
                response.headers["Cache-Control"] = "private, no-cache"
                response.headers["Vary"] = "Accept, Accept-Encoding, Cookie, Authorization"
        if observe is not None and not response.prepared:  # a stream lasts as long as its reader
            observe(_route(request), response.status, time.perf_counter() - began)
        return response

    return guard


def _route(request: web.Request) -> str:
    """The address as it was declared: of a closed set."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "none"


async def _answered(request: web.Request, handler: Handler, viewers: Viewers) -> web.StreamResponse:
    json = asks_json(request)
    if (
        request.method == "POST"
        and request.match_info.http_exception is None
        and (why := foreign(request.headers, scheme="https" if viewers.private else "http"))
    ):
        what = Trouble(title="This request is refused", text=why, steps=("Open the page itself, and send its form.",))
        return _trouble(request, what, 403)
    try:
        return await handler(request)
    except LoginNeededError as error:
        return viewers.refused(request, error, json=json or "Authorization" in request.headers)
    except NotReadError as error:
        return respond(request, pages.away(str(error), json=json), json=json)
    except web.HTTPMethodNotAllowed as error:
        what = Trouble(
            title="Pages are only read", text=f"{request.method} is not answered here: this server changes nothing"
        )
        response = _trouble(request, what, 405)
        response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
        return response
    except web.HTTPException as error:
        what = Trouble(
            title="No such page",
            text=f"there is nothing at {request.path}",
            links=(("/", "Overview"), ("/queues", "Queues"), ("/gangs", "Gangs")),
        )
        return _trouble(request, what, error.status)
    except Exception:
        LOG.exception("cannot answer %s", request.path)
        what = Trouble(
            title="This page failed",
            text="the reason is in the output of fairlead ui; it is an error of the program",
            steps=("Please report it with that text.",),
        )
        return _trouble(request, what, 500)


def _trouble(request: web.Request, what: Trouble, status: int) -> web.Response:
    json = asks_json(request)
    return respond(request, pages.trouble(what, status, json=json), json=json)
