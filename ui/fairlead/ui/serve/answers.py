"""Answers: a validator, gzip where the reader takes it, JSON as the command line prints it."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiohttp import web

from fairlead.ui.pages import render

GZIP_LEAST = 1024
HTML = "text/html; charset=utf-8"
JSON = "application/json; charset=utf-8"


class Shown(NamedTuple):
    """`marked`: a page with its fragments marked (`pages.fragments`), or JSON."""

    status: int
    marked: str

    @property
    def text(self) -> str:
        """The page as it is sent to a reader without a stream."""
        return render.page(self.marked)


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def answer(
    text: str, kind: str, *, status: int = 200, encodings: str = "", known: str = "", keep: str = "no-cache"
) -> Answer:
    """`encodings` and `known`: the request's Accept-Encoding and If-None-Match. `keep`: how long it may be kept."""
    body = text.encode("utf-8", "replace")
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:24]}"'
    headers = {
        "Content-Type": kind,
        "Vary": "Accept, Accept-Encoding",
        "Cache-Control": keep if status == 200 else "no-store",
    }
    if status == 200:
        headers["ETag"] = tag
        if tag in {each.strip() for each in known.split(",")}:
            del headers["Content-Type"]
            return Answer(status=304, body=b"", headers=headers)
    if len(body) >= GZIP_LEAST and takes_gzip(encodings):
        body = gzip.compress(body, 6, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Answer(status=status, body=body, headers=headers)


def takes_gzip(encodings: str) -> bool:
    for each in encodings.split(","):
        name, *parameters = (part.strip().lower() for part in each.split(";"))
        if name in {"gzip", "*"} and not any(part in {"q=0", "q=0.0", "q=0.00", "q=0.000"} for part in parameters):
            return True
    return False


def wants_json(accept: str, query: str) -> bool:
    """`?format=json`, or an Accept header that names JSON and not HTML."""
    if query:
        return query == "json"
    return "application/json" in accept and "text/html" not in accept


def as_json(value: Any) -> str:
    """The answer as `-o json` prints it."""
    return json.dumps(value, indent=2) + "\n"


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
