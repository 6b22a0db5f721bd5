"""Viewers whom a proxy has logged in, as an OIDC proxy does: it names them in X-Forwarded-User and X-Forwarded-Groups.

Whoever can send those headers can be anybody. So they are believed only from a connection with a client certificate of the given authority
and one of the given names, or beside a secret that only the proxy knows; never for the cluster's own users and groups (`system:…`).
What such a user may see is asked by SubjectAccessReviews for that name and those groups; no user is impersonated.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from fairlead.ui.access.reviews import AUTHENTICATED, Namespaces, ReviewError, Reviews, User, scope_of
from fairlead.ui.pages.render import Trouble
from fairlead.ui.serve import pages
from fairlead.ui.serve.answers import respond
from fairlead.ui.serve.viewers import Handler, LoginNeededError, Viewer

USER: Final = "X-Forwarded-User"
GROUPS: Final = "X-Forwarded-Groups"
SECRET: Final = "X-Fairlead-Proxy-Secret"  # noqa: S105 - a header's name
SECRET_LEAST = 32
NAME_MAX = 1024
GROUPS_MAX = 1000
RESERVED: Final = "system:"


class ProxySecretError(ValueError):
    """The file of the secret cannot be used; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What makes a request the proxy's: `names` of its client certificate, whose authority TLS has checked, or `secret`, a file."""

    names: frozenset[str] = frozenset()
    secret: Path | None = None

    def check(self) -> None:
        """Raises ProxySecretError where the file cannot be used, ValueError where there is neither."""
        if not self.names and self.secret is None:
            raise ValueError(
                "--login proxy: say by what the proxy is known: --proxy-name with --client-ca, or --proxy-secret-file"
            )
        if self.secret is not None:
            _read(self.secret)

    def refusal(self, headers: Mapping[str, str], certificate: Mapping[str, Any] | None) -> str:
        """Why the request is not the proxy's; "" where it is. `certificate`: the peer's, as `ssl` gives it, checked by then."""
        presented = names_of(certificate or {})
        if self.names & presented:
            return ""
        if self.secret is not None:
            given = headers.get(SECRET, "")
            try:
                if given and _equal(given, _read(self.secret)):
                    return ""
            except ProxySecretError as error:
                return str(error)
            if given:
                return f"the header {SECRET} holds another secret than this server's"
        if presented:
            return f"the client certificate is of {', '.join(sorted(presented))[:200]}, which this server does not know as its proxy"
        wanted = [*(["a client certificate"] if self.names else []), *([f"the header {SECRET}"] if self.secret else [])]
        return f"the request did not come through the proxy: it lacks {' and '.join(wanted)}"


class ProxyViewers:
    """`user_prefix` and `group_prefix` stand before what the proxy says, as the apiserver's --oidc-username-prefix does."""

    private = True

    def __init__(
        self, reviews: Reviews, namespaces: Namespaces, trust: Trust, *, user_prefix: str = "", group_prefix: str = ""
    ) -> None:
        self._reviews = reviews
        self._namespaces = namespaces
        self._trust = trust
        self._user_prefix = user_prefix
        self._group_prefix = group_prefix

    async def viewer(self, request: web.Request) -> Viewer:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        refusal = self._trust.refusal(request.headers, certificate)
        if refusal:
            raise LoginNeededError(refusal)
        user = self._user(request.headers.getall(USER, []), request.headers.getall(GROUPS, []))
        try:
            return Viewer(name=user.name, scope=await scope_of(user, self._reviews, self._namespaces))
        except ReviewError as error:
            raise LoginNeededError(f"what you may see cannot be found out: {error}", status=503) from error

    def refused(self, request: web.Request, error: LoginNeededError, *, json: bool) -> web.Response:
        if error.status == 503:
            return respond(request, pages.away(str(error), json=json), json=json)
        what = Trouble(
            title="You are not logged in",
            text=str(error),
            steps=("Open the address at which your proxy serves these pages; it asks you to log in.",),
        )
        return respond(request, pages.trouble(what, error.status, json=json), json=json)

    def routes(self) -> Iterable[tuple[str, str, Handler]]:
        return ()

    def _user(self, users: list[str], groups: list[str]) -> User:
        """Raises LoginNeededError."""
        if len(users) != 1 or not users[0].strip():
            raise LoginNeededError(f"the proxy must send the header {USER} once, with a name; it sent {len(users)}")
        name = users[0].strip()
        listed = [each.strip() for value in groups for each in value.split(",") if each.strip()]
        if len(name) > NAME_MAX or len(listed) > GROUPS_MAX:
            raise LoginNeededError(f"the headers {USER} and {GROUPS} are too long")
        name, listed = f"{self._user_prefix}{name}", [f"{self._group_prefix}{each}" for each in listed]
        reserved = [each for each in (name, *listed) if each.startswith(RESERVED)]
        if reserved:
            raise LoginNeededError(
                f"the proxy names {reserved[0][:200]!r}: names that begin with {RESERVED} are the cluster's own, and no proxy gives them"
            )
        return User(name=name, groups=tuple(dict.fromkeys((*listed, AUTHENTICATED))))


def names_of(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Common name and DNS names of a certificate, as `ssl.SSLSocket.getpeercert` gives it."""
    common = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    return frozenset(common | {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"})


def _read(path: Path) -> str:
    """Read each time: who renews the secret need not restart anything."""
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ProxySecretError(f"{path}: the proxy's secret cannot be read: {error}") from None
    if len(secret) < SECRET_LEAST:
        raise ProxySecretError(
            f"{path}: the proxy's secret has {len(secret)} characters: write at least {SECRET_LEAST}, as `openssl rand -hex 32` gives"
        )
    return secret


def _equal(given: str, secret: str) -> bool:
    """Whether two secrets are equal, in a time that says nothing of how much of them is, nor of their length."""
    return hmac.compare_digest(*(hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (given, secret)))
