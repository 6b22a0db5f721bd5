"""The server of the pages: loopback only, answers GET and HEAD, writes nothing anywhere."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from fairlead.kube.resources import Raw
from fairlead.ui.model.cluster import Memory
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.scope import EVERYTHING
from fairlead.ui.model.time_chart import Choice
from fairlead.ui.pages import render
from fairlead.ui.pages.render import Trouble
from fairlead.ui.reading.errors import NotReadError
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.reading.source import Source
from fairlead.ui.serve import pages
from fairlead.ui.serve.answers import HTML, JSON, answer, wants_json
from fairlead.ui.serve.pages import Shown
from fairlead.ui.serve.security import HEADERS, allowed_hosts

LOG = logging.getLogger(__name__)
HOST = "127.0.0.1"
YEAR = "public, max-age=31536000, immutable"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Show = Callable[[Facts, web.Request, bool], Shown]


@contextlib.asynccontextmanager
async def serve(source: Source, *, port: int, ledger: Ledger | None = None) -> AsyncIterator[str]:
    """Serves inside the context, on loopback; yields the address. Port 0 is any free one. Raises OSError where it is taken."""
    hosts: set[str] = set()
    runner = web.AppRunner(application(source, hosts, ledger or Ledger("")), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        bound = runner.addresses[0][1]
        hosts |= allowed_hosts(bound)
        yield f"http://{HOST}:{bound}/"
    finally:
        await runner.cleanup()


def application(source: Source, hosts: set[str], ledger: Ledger) -> web.Application:
    """`hosts`: what the Host header may be."""
    memory = Memory()
    app = web.Application(middlewares=[_guard(hosts)])
    shown: dict[str, Show] = {
        "/": lambda facts, request, json: pages.cluster(facts, request.query, json=json, memory=memory),
        "/queues": lambda facts, request, json: pages.queue_tree(facts, request.query, json=json),
        "/gangs": lambda facts, request, json: pages.gangs(facts, request.query, json=json),
    }
    for path, show in shown.items():
        app.router.add_get(path, _page(source, show))
    app.router.add_get("/gangs/{namespace}/{name}", _gang(source))
    app.router.add_get("/time", _time(source, ledger))
    app.router.add_get("/style.css", _file("style.css", "text/css; charset=utf-8"))
    app.router.add_get("/icon.svg", _file("icon.svg", "image/svg+xml"))
    app.router.add_get("/healthz", _healthz)
    return app


def _page(source: Source, show: Show) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        json = _wants_json(request)
        try:
            facts = await source.facts()
        except NotReadError as error:
            return _response(request, pages.away(str(error), json=json), json=json)
        return _response(request, show(facts, request, json), json=json)

    return handler


def _gang(source: Source) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        json = _wants_json(request)
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            facts = await source.facts()
        except NotReadError as error:
            return _response(request, pages.away(str(error), json=json), json=json)
        known = any(_is(raw, namespace, name) for raw in facts.gangs)  # not of whatever an address holds
        events = await source.events("Gang", namespace, name) if known and not json else ()
        return _response(request, pages.one_gang(facts, namespace, name, json=json, events=events), json=json)

    return handler


def _time(source: Source, ledger: Ledger) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        json = _wants_json(request)
        try:
            choice = Choice.of(request.query)
        except ValueError as error:
            return _response(request, pages.wrong(str(error), "/time", json=json), json=json)
        try:
            facts = await source.facts()
        except NotReadError as error:
            return _response(request, pages.away(str(error), json=json), json=json)
        past = await ledger.past(choice.lasts_s)
        return _response(request, pages.time(facts, past, choice, json=json, scope=EVERYTHING), json=json)

    return handler


def _is(raw: Raw, namespace: str, name: str) -> bool:
    return bool(raw["metadata"]["name"] == name and raw["metadata"].get("namespace") == namespace)


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


def _guard(hosts: set[str]) -> Middleware:
    """Every answer has the headers, errors too; a request that means another host has no answer but that."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.headers.get("Host", "").lower() not in hosts:
            what = Trouble(
                title="This name is not served here",
                text=f"the request is for {request.headers.get('Host', '')!r}; this server answers to loopback's own names only",
                steps=(f"Open one of: {', '.join(sorted(hosts))}",),
            )
            response: web.StreamResponse = _response(request, pages.trouble(what, 421, json=False), json=False)
        else:
            response = await _answered(request, handler)
        response.headers.update(HEADERS)
        return response

    return guard


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    json = _wants_json(request)
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        what = Trouble(
            title="Pages are only read", text=f"{request.method} is not answered here: this server changes nothing"
        )
        response = _response(request, pages.trouble(what, 405, json=json), json=json)
        response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
        return response
    except web.HTTPException as error:
        what = Trouble(
            title="No such page",
            text=f"there is nothing at {request.path}",
            links=(("/", "Cluster"), ("/queues", "Queues"), ("/gangs", "Gangs")),
        )
        return _response(request, pages.trouble(what, error.status, json=json), json=json)
    except Exception:
        LOG.exception("cannot answer %s", request.path)
        what = Trouble(
            title="This page failed",
            text="the reason is in the output of fairlead ui; it is an error of the program",
            steps=("Please report it with that text.",),
        )
        return _response(request, pages.trouble(what, 500, json=json), json=json)


def _wants_json(request: web.Request) -> bool:
    return wants_json(request.headers.get("Accept", ""), request.query.get("format", ""))


def _response(request: web.Request, shown: Shown, *, json: bool) -> web.Response:
    found = answer(
        shown.text,
        JSON if json else HTML,
        status=shown.status,
        encodings=request.headers.get("Accept-Encoding", ""),
        known=request.headers.get("If-None-Match", ""),
    )
    return web.Response(status=found.status, body=found.body, headers=found.headers)
