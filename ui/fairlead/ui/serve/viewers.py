"""Who looks at the pages, and what they may see: the seam between pages and logins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from fairlead.ui.model.scope import EVERYTHING, Scope

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """`name`: as the cluster knows the user; "" where there is no login. `leaves`: whether there is a session to log out of."""

    name: str
    scope: Scope
    leaves: bool = False


class LoginNeededError(Exception):
    """Who asks is not known, or not any more; the message says why. `status`: of the answer; 401, or 503 where it cannot be found out."""

    def __init__(self, message: str = "", *, status: int = 401) -> None:
        super().__init__(message)
        self.status = status


class Viewers(Protocol):
    """Ask once for each request, and of a stream again every minute: sessions end, and rights change."""

    @property
    def private(self) -> bool:
        """Whether viewers differ, so that nothing between them and the server may keep an answer."""
        ...

    async def viewer(self, request: web.Request) -> Viewer:
        """Raises LoginNeededError."""
        ...

    def refused(self, request: web.Request, error: LoginNeededError, *, json: bool) -> web.Response:
        """What is answered instead of the page."""
        ...

    def routes(self) -> Iterable[tuple[str, str, Handler]]:
        """Method, path and handler of what only this kind of login has."""
        ...


class Everyone:
    """Whoever reaches the server sees all that it reads: for loopback, where it reads with the rights of the user who started it."""

    private = False

    async def viewer(self, request: web.Request) -> Viewer:
        return Viewer(name="", scope=EVERYTHING)

    def refused(self, request: web.Request, error: LoginNeededError, *, json: bool) -> web.Response:
        raise error

    def routes(self) -> Iterable[tuple[str, str, Handler]]:
        return ()
