"""A page or JSON as the answer to a request."""

from __future__ import annotations

from aiohttp import web

from fairlead.ui.serve.answers import HTML, JSON, answer, wants_json
from fairlead.ui.serve.pages import Shown


def asks_json(request: web.Request) -> bool:
    return wants_json(request.headers.get("Accept", ""), request.query.get("format", ""))


def respond(request: web.Request, shown: Shown, *, json: bool) -> web.Response:
    found = answer(
        shown.text,
        JSON if json else HTML,
        status=shown.status,
        encodings=request.headers.get("Accept-Encoding", ""),
        known=request.headers.get("If-None-Match", ""),
    )
    return web.Response(status=found.status, body=found.body, headers=found.headers)
