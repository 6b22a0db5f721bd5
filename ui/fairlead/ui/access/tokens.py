"""Viewers who log in by a bearer token: at a form, which begins a session, or with each request.

A token is accepted where a TokenReview says so, for this server's audience. What its user may see is asked by SubjectAccessReviews. What a
token says of itself is not verified: it gives hints to its owner, and says when a token that the cluster accepted ends.
The cookie is sent to this host alone, over TLS, to no script, and with no request that another site makes. A link of another site therefore
arrives without it: such a request is answered with a page that loads itself once more.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from fairlead.kube.limits import Clock
from fairlead.ui.access.reviews import Namespaces, ReviewError, Reviews, User, scope_of
from fairlead.ui.access.sessions import Attempts, Sessions
from fairlead.ui.pages import render
from fairlead.ui.serve import pages
from fairlead.ui.serve.answers import Shown, respond
from fairlead.ui.serve.security import ARRIVED, local_path
from fairlead.ui.serve.security import form as sent_form
from fairlead.ui.serve.viewers import Handler, LoginNeededError, Viewer

LOG = logging.getLogger(__name__)
COOKIE: Final = "__Host-fairlead"
REALM: Final = 'Bearer realm="fairlead"'
FORM: Final = "application/x-www-form-urlencoded"
ENDED = "your session has ended"
REVOKED = "the token of your session has expired, or was revoked"
NOT_ACCEPTED = "this token is not accepted"


class TokenViewers:
    """`now`: unix seconds, which tokens are compared with. `audiences`: what a token must be made for, shown to who needs one.
    `count`: logins accepted, refused and limited.
    """

    private = True

    def __init__(
        self,
        reviews: Reviews,
        sessions: Sessions,
        attempts: Attempts,
        namespaces: Namespaces,
        *,
        audiences: tuple[str, ...],
        cluster_tokens: bool,
        now: Clock,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._reviews = reviews
        self._sessions = sessions
        self._attempts = attempts
        self._namespaces = namespaces
        self._audiences = audiences
        self._cluster_tokens = cluster_tokens
        self._now = now
        self._count = count

    async def viewer(self, request: web.Request) -> Viewer:
        try:
            header = request.headers.get("Authorization", "")
            if header:
                user, leaves = await self._bearer(header, request.remote or ""), False
            else:
                user, leaves = await self._session(request.cookies.get(COOKIE, "")), True
            return Viewer(
                name=user.name, scope=await scope_of(user, self._reviews, self._namespaces), leaves=leaves
            )  # fmt: skip
        except ReviewError as error:
            raise LoginNeededError(f"who you are cannot be found out: {error}", status=503) from error

    def refused(self, request: web.Request, error: LoginNeededError, *, json: bool) -> web.Response:
        if error.status == 503:
            return respond(request, pages.away(str(error), json=json), json=json)
        if json:
            response = respond(request, _json(error), json=True)
        elif _linked(request):
            return respond(request, Shown(200, render.arrived(_again(request))), json=False)
        else:
            response = self._form(request, str(error), status=error.status, path=request.path_qs)
        if error.status == 401:
            response.headers["WWW-Authenticate"] = REALM
        return response

    def routes(self) -> Iterable[tuple[str, str, Handler]]:
        return (("GET", "/login", self._show), ("POST", "/login", self._log_in), ("POST", "/logout", self._log_out))

    # ------------------------------------------------------------------------------------------------- who asks

    async def _bearer(self, header: str, address: str) -> User:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            raise LoginNeededError("Authorization: only Bearer is known here")
        return await self._accepted(token.strip(), address)

    async def _session(self, value: str) -> User:
        if not value:
            raise LoginNeededError
        token = self._sessions.token(value)
        if token is None:
            raise LoginNeededError(ENDED)
        user = await self._reviews.user(token)
        if user is None:
            self._sessions.end(value)
            raise LoginNeededError(REVOKED)
        return user

    async def _accepted(self, token: str, address: str) -> User:
        """The user of a token that somebody presents. Raises LoginNeededError, ReviewError."""
        if not token:
            raise LoginNeededError("there is no token")
        if len(token) > TOKEN_MAX or not token.isascii() or not token.isprintable() or " " in token:
            raise LoginNeededError(f"{NOT_ACCEPTED}: it is no token, but something else")
        tried = not self._reviews.accepted_lately(token)
        if tried:
            wait = self._attempts.begin(address)
            if wait:
                self._count("limited")
                raise LoginNeededError(
                    f"too many tokens were tried from {address}; try again in {max(1, round(wait))} s", status=429
                )
        user = await self._reviews.user(token)
        if user is None:
            why = hint(token, self._audiences, cluster_tokens=self._cluster_tokens, now=self._now())
            self._count("refused")
            LOG.warning("a token from %s was not accepted%s", address, f": {why}" if why else "")
            raise LoginNeededError(f"{NOT_ACCEPTED}: {why}" if why else f"{NOT_ACCEPTED}: the cluster does not know it")
        if tried:
            self._attempts.succeeded(address)
        return user

    # ------------------------------------------------------------------------------------------------- the form

    async def _show(self, request: web.Request) -> web.StreamResponse:
        return self._form(request, "", status=200, path=request.query.get("next", ""))

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        if request.content_type != FORM:
            return self._form(request, f"a login is sent as {FORM}", status=415, path="")
        given = await sent_form(request)
        token, path = str(given.get("token", "")).strip(), str(given.get("next", ""))
        try:
            user = await self._accepted(token, request.remote or "")
        except LoginNeededError as error:
            return self._form(request, str(error), status=error.status, path=path)
        except ReviewError as error:
            return respond(request, pages.away(str(error), json=False), json=False)
        old = request.cookies.get(COOKIE, "")
        if old:
            self._sessions.end(old)
        value = self._sessions.begin(user.name, token, ends=ends(token))
        self._count("accepted")
        LOG.info("%s logged in from %s", user.name, request.remote)
        response = web.Response(status=303, headers={"Location": local_path(path), "Cache-Control": "no-store"})
        response.set_cookie(COOKIE, value, path="/", secure=True, httponly=True, samesite="Strict")
        return response

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        self._sessions.end(request.cookies.get(COOKIE, ""))
        response = web.Response(
            status=303,
            headers={"Location": "/login", "Cache-Control": "no-store", "Clear-Site-Data": '"cache"'},
        )
        response.del_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="Strict")
        return response

    def _form(self, request: web.Request, problem: str, *, status: int, path: str) -> web.Response:
        text = render.login(
            problem=problem, path=local_path(path), audiences=self._audiences, cluster_tokens=self._cluster_tokens
        )
        response = respond(request, Shown(status, text), json=False)
        response.headers["Cache-Control"] = "no-store"
        return response


def _json(error: LoginNeededError) -> Shown:
    what = render.Trouble(
        title="Login needed", text=str(error) or "send a bearer token: Authorization: Bearer TOKEN (docs/ui.md)"
    )
    return pages.trouble(what, error.status, json=True)


def _linked(request: web.Request) -> bool:
    """Whether another site's link led here, so that the browser kept the cookie back."""
    headers = request.headers
    return (
        request.method == "GET"
        and headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"}
        and headers.get("Sec-Fetch-Mode") == "navigate"
        and COOKIE not in request.cookies
        and ARRIVED not in request.query
    )


def _again(request: web.Request) -> str:
    """The same address once more, marked so that it is not answered in this way again."""
    path = local_path(request.path_qs)
    return f"{path}{'&' if '?' in path else '?'}{ARRIVED}=1"


TOKEN_MAX = 16_000


def claims(token: str) -> dict[str, Any]:
    """The payload of a JSON Web Token; {} for what is none."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > TOKEN_MAX:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def ends(token: str) -> float | None:
    """Unix seconds; None where it says nothing."""
    found = claims(token).get("exp")
    try:
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
    except OverflowError:
        return None


def hint(token: str, audiences: Sequence[str], *, cluster_tokens: bool, now: float) -> str:
    """Why it may have been refused, in a sentence; "" where it does not say."""
    over = ends(token)
    if over is not None and over <= now:
        try:
            return f"it expired at {datetime.fromtimestamp(over, UTC):%Y-%m-%d %H:%M:%S} UTC"
        except (OverflowError, ValueError, OSError):
            return "it has expired"
    said = claims(token).get("aud")
    own = (
        [said]
        if isinstance(said, str)
        else [each for each in said if isinstance(each, str)]
        if isinstance(said, list)
        else []
    )
    if own and not cluster_tokens and not set(own) & set(audiences):
        return f"it is made for {', '.join(own)[:200]}, and this server accepts tokens for {' or '.join(audiences)}"
    return ""
