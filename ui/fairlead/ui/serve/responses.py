"""A page or JSON as the answer to a request."""

from __future__ import annotations

from aiohttp import web

from fairlead.ui.pages import render
from fairlead.ui.serve.answers import HTML, JSON, answer, wants_json
from fairlead.ui.serve.pages import Shown


def asks_json(request: web.Request) -> bool:
    return wants_json(request.headers.get("Accept", ""), request.query.get("format", ""))


def respond(request: web.Request, shown: Shown, *, json: bool, stream: str = "") -> web.Response:
    """`stream`: what makes a page live."""
    found = answer(
        shown.marked if json else render.page(shown.marked, stream),
        JSON if json else HTML,
        status=shown.status,
        encodings=request.headers.get("Accept-Encoding", ""),
        known=request.headers.get("If-None-Match", ""),
    )
    return web.Response(status=found.status, body=found.body, headers=found.headers)
