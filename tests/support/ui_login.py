"""A server of pages that viewers log in to: an apiserver that reviews tokens and access from tables, and a browser's requests."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from aiohttp import web

from fairlead.kube import errors
from fairlead.ui.access.proxy import ProxyViewers, Trust
from fairlead.ui.access.reviews import KnownNamespaces, Reviews
from fairlead.ui.access.sessions import Attempts, Sessions
from fairlead.ui.access.tokens import COOKIE, TokenViewers
from fairlead.ui.reading.cluster import Source
from fairlead.ui.serve.app import application
from fairlead.ui.serve.viewers import Viewers
from tests.support import ui

HOST = "gpus.example"
OWN_PAGE = {"Host": HOST, "Sec-Fetch-Site": "same-origin", "Origin": f"https://{HOST}"}
AUDIENCE = "fairlead-ui"
WITH_QUEUES = {("alice", "queues", "")}
PATHS = [  # every page, and those of another tenant's gang and queue
    "/",
    "/map",
    "/map?node=node-001",
    "/queues",
    "/queues/queue-1",
    "/gangs",
    "/gangs?text=run",
    "/gangs/team-0/wait-00000",
    "/gangs/team-1/run-1",
    "/time",
    "/time?by=node",
    "/cost",
    "/what-if",
]


class Reviewer:
    """`tokens`: user and groups by token. `rights`: user or group, plural, and namespace ("" all). Counts what it is asked."""

    def __init__(self) -> None:
        self.tokens: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.audiences: dict[str, tuple[str, ...]] = {}
        self.rights: set[tuple[str, str, str]] = set()
        self.of_any_audience = False  # an authenticator that passes over what it was asked
        self.away = False
        self.forbidden = False
        self.asked: list[dict[str, Any]] = []

    def user(self, token: str, name: str, *groups: str, gangs: tuple[str, ...] = (), nodes: bool = False) -> str:
        self.tokens[token] = (name, groups)
        self.rights |= {(name, "gangs", namespace) for namespace in gangs}
        if nodes:
            self.rights.add((name, "nodes", ""))
        return token

    async def request(self, method: str, path: str, *, body: Any = None) -> bytes:
        self.asked.append(body)
        if self.away:
            raise errors.Unreachable("connection refused")
        if self.forbidden:
            raise errors.Forbidden("forbidden")
        spec = body["spec"]
        if path.endswith("tokenreviews"):
            return json.dumps({"status": self._token(spec)}).encode()
        assert path.endswith("subjectaccessreviews")
        what = spec["resourceAttributes"]
        assert what["verb"] == "list"
        asked = (what["resource"], what.get("namespace", ""))
        allowed = any((each, *asked) in self.rights for each in (spec["user"], *spec["groups"]))
        return json.dumps({"status": {"allowed": allowed}}).encode()

    def _token(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        found = self.tokens.get(spec["token"])
        asked = spec.get("audiences") or ["api"]
        shared = [each for each in asked if each in self.audiences.get(spec["token"], (AUDIENCE,))]
        if found is None or not (shared or self.of_any_audience):
            return {"user": {}, "error": "unknown"}
        return {"authenticated": True, "audiences": shared, "user": {"username": found[0], "groups": list(found[1])}}


class Login:
    """The server, its clock and its reviewer; `get` and `post` are a browser's on `HOST`."""

    def __init__(self, session: aiohttp.ClientSession, address: str, reviewer: Reviewer, times: ui.Times) -> None:
        self.session = session
        self.address = address
        self.reviewer = reviewer
        self.times = times

    async def send(
        self, method: str, path: str, *, data: Any = None, cookie: str = "", **headers: str
    ) -> tuple[int, Any, str]:
        named = {"Host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie:
            named["Cookie"] = f"{COOKIE}={cookie}"
        async with self.session.request(
            method, self.address + path, data=data, headers=named, allow_redirects=False
        ) as answer:
            return answer.status, answer.headers, await answer.text()

    async def get(self, path: str, cookie: str = "", **headers: str) -> tuple[int, Any, str]:
        return await self.send("GET", path, cookie=cookie, **headers)

    async def log_in(self, token: str, path: str = "", **headers: str) -> tuple[int, Any, str]:
        return await self.send("POST", "/login", data={"token": token, "next": path}, **(OWN_PAGE | headers))

    async def cookie(self, token: str) -> str:
        """Of a login that works."""
        status, headers, text = await self.log_in(token)
        assert status == 303, text
        return cookie_of(headers)


def cookie_of(headers: Any) -> str:
    found: str = headers["Set-Cookie"]
    name, _, value = found.partition(";")[0].partition("=")
    assert name == COOKIE
    return value


@contextlib.asynccontextmanager
async def served(
    source: Source, viewers: Viewers, reviewer: Reviewer, times: ui.Times, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Login]:
    runner = web.AppRunner(application(source, None, viewers), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        scheme = "http" if tls is None else "https"
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            yield Login(session, f"{scheme}://127.0.0.1:{runner.addresses[0][1]}", reviewer, times)
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def by_token(
    lists: ui.Lists, *, cluster_tokens: bool = False, tls: ssl.SSLContext | None = None, **sessions: Any
) -> AsyncIterator[Login]:
    reviewer, times = Reviewer(), ui.Times()
    source = ui.source(ui.Apiserver(lists), times)
    reviews = Reviews(reviewer, audiences=(AUDIENCE,), cluster_tokens=cluster_tokens, clock=times)
    viewers = TokenViewers(
        reviews,
        Sessions(clock=times, **sessions),
        Attempts(clock=times),
        KnownNamespaces(source),
        audiences=(AUDIENCE,),
        cluster_tokens=cluster_tokens,
        now=times,
    )
    async with served(source, viewers, reviewer, times, tls) as login:
        yield login


@contextlib.asynccontextmanager
async def by_proxy(lists: ui.Lists, trust: Trust, **prefixes: str) -> AsyncIterator[Login]:
    reviewer, times = Reviewer(), ui.Times()
    source = ui.source(ui.Apiserver(lists), times)
    reviews = Reviews(reviewer, audiences=(AUDIENCE,), clock=times)
    async with served(
        source, ProxyViewers(reviews, KnownNamespaces(source), trust, **prefixes), reviewer, times
    ) as login:
        yield login


def alice(login: Login, *, nodes: bool = True) -> str:
    """The token of a viewer who may list the gangs of team-0, and queues; made known to the apiserver."""
    login.reviewer.rights |= WITH_QUEUES
    return login.reviewer.user("token-of-alice", "alice", "team-zero", gangs=("team-0",), nodes=nodes)


def made(**claims: Any) -> str:
    """A token as an apiserver makes it, of which nobody checks the signature here."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.c2ln"
