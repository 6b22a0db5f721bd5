"""The sandbox's Kubernetes apiserver: HTTPS, bearer tokens, the API of an apiserver of one release.

Only sockets, TLS, start and stop are here; `Dispatcher` computes the answers. A stopped server has no connection left, neither one whose
TLS handshake was under way nor one whose client is silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Self

from aiohttp import web

from fairlead.kube.releases import Minor
from fairlead.sandbox import files
from fairlead.sandbox.apiserver import assembly, statuses
from fairlead.sandbox.apiserver.dispatch import Dispatcher
from fairlead.sandbox.apiserver.faults import Faults
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.store import WatchLag
from fairlead.sandbox.apiserver.wire import tls
from fairlead.sandbox.apiserver.wire.bodies import BODY_LIMIT_BYTES
from fairlead.sandbox.apiserver.wire.exchange import Request, Response, Stream, encode, warning_header
from fairlead.sandbox.release import NEWEST, Release, as_release

ADMIN, ADMIN_GROUP = "admin", "system:masters"
_STOP_GRACE_S = 2.0
_BACKLOG = 128
_TOO_LARGE = Response(
    413,
    encode(
        statuses.status_of(
            statuses.ApiError(
                413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_LIMIT_BYTES}", {}
            )
        )
    ),
)


def utc_now() -> datetime:
    return datetime.now(UTC)


class ApiServer:
    """One apiserver, of `release`. `clock` gives the time of timestamps, `random` names, uids and tokens; TLS goes to `workdir`."""

    def __init__(
        self,
        *,
        workdir: Path,
        clock: Callable[[], datetime] = utc_now,
        random: Random | None = None,
        authorize: bool = True,
        bookmark_interval_s: float = 5.0,
        history_limit: int = 10_000,
        release: Release | Minor = NEWEST,
    ) -> None:
        self._workdir = workdir
        self._clock = clock
        self._random = random or Random()  # noqa: S311 (a sandbox: no secret outlives it)
        self.state: State = assembly.assemble(
            clock,
            self._random,
            authorize=authorize,
            bookmark_interval_s=bookmark_interval_s,
            history_limit=history_limit,
            release=as_release(release),
        )
        self.faults = Faults(self._close_watches)
        self.dispatcher = Dispatcher(self.state, self.faults)
        self._authority = tls.make_authority(utc_now())
        self._runner: web.ServerRunner | None = None
        self._listening: socket.socket | None = None
        self._watches: dict[asyncio.Task[object], str] = {}
        self._host, self._port = "", 0

    # -- life
    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve. A port of 0 takes a free one; see `url`.

        After `stop` it may start again, with its objects and tokens but, as a real one, without history: a watch from
        before gets 410 and lists again.
        """
        if self.state.stopping:
            self.state.stopping = False
            self.state.store.compact()
        server = ConnectionServer(self._serve, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=_STOP_GRACE_S, keepalive_timeout=600)
        await self._runner.setup()
        context = tls.server_context(self._authority, host, self._workdir, utc_now())
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        await web.SockSite(self._runner, self._listening, ssl_context=context).start()
        self._host, self._port = host, self._runner.addresses[0][1]
        self.dispatcher.address = f"{host}:{self._port}"

    async def restart(self, *, away_s: float = 0.0) -> None:
        """Stop, and start again at the same address after a while: connections break, and old watches get 410."""
        await self.stop()
        await asyncio.sleep(away_s)
        await self.start(self._host, self._port)

    def lag_watches(
        self, most_s: float, *, seed: int = 0, least_s: float = 0.0, resources: Collection[str] = ()
    ) -> None:
        """From now on watches show changes later, each resource by itself (see `lag`); 0 ends that."""
        random = Random(seed)  # noqa: S311
        lag = WatchLag(most_s, random=random, least_s=least_s, resources=resources)
        self.state.lag = lag if most_s else None
        self.state.wake_watchers()

    async def stop(self) -> None:
        """End open watches, finish requests in progress, close."""
        self.state.stop()
        if self._watches:
            _, late = await asyncio.wait(list(self._watches), timeout=_STOP_GRACE_S)
            for task in late:
                task.cancel()
        if self._runner is not None and self._listening is not None:
            # asyncio leaks the socket of a connection that it has accepted, but not served yet, when its server closes.
            asyncio.get_running_loop().remove_reader(self._listening)
            await asyncio.sleep(0)
            await self._runner.cleanup()
            self._runner = self._listening = None
        await self.state.admission.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- what clients need
    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"https://{host}:{self._port}"

    @property
    def ca_pem(self) -> bytes:
        return self._authority.pem

    def token(
        self, user: str = ADMIN, *, groups: Sequence[str] = (), extra: Mapping[str, Sequence[str]] | None = None
    ) -> str:
        """A bearer token for `user`; "admin" is in system:masters."""
        if user == ADMIN and not groups:
            groups = (ADMIN_GROUP,)
        return self.state.tokens.issue(user, groups, extra)

    def kubeconfig(
        self, user: str = ADMIN, *, groups: Sequence[str] = (), extra: Mapping[str, Sequence[str]] | None = None
    ) -> str:
        """A kubeconfig (YAML) with which any client, kubectl too, talks to this server as `user`."""
        return files.kubeconfig(self.url, self.ca_pem, user, self.token(user, groups=groups, extra=extra))

    # -- the rim
    async def _serve(self, raw: web.BaseRequest) -> web.StreamResponse:
        body = await _read(raw)
        headers: dict[str, str] = {}
        for name, value in raw.headers.items():  # repeated headers are one list
            key = name.lower()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        answer = (
            _TOO_LARGE
            if body is None
            else await self.dispatcher.handle(Request.of(raw.method, raw.raw_path, headers, body))
        )
        if answer is None:
            if raw.transport is not None:
                raw.transport.abort()
            return web.Response(status=500)
        if isinstance(answer, Stream):
            return await self._stream(raw, answer)
        return web.Response(status=answer.status, body=answer.body, headers=_headers(answer))

    async def _stream(self, raw: web.BaseRequest, answer: Stream) -> web.StreamResponse:
        """Write a watch until it ends or the client disconnects."""
        response = web.StreamResponse(status=answer.status, headers=_headers(answer))
        response.enable_chunked_encoding()
        task = asyncio.current_task()
        assert task is not None
        self._watches[task] = raw.path
        try:
            await response.prepare(raw)
            async with contextlib.aclosing(answer.chunks) as chunks:
                async for chunk in chunks:
                    await response.write(chunk)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            if raw.transport is not None:
                raw.transport.close()
            if task.cancelling() and self._runner is not None and not self.state.stopping:
                raise
        finally:
            self._watches.pop(task, None)
        return response

    def _close_watches(self, resource: str) -> int:
        """End open watches; those of one resource if named."""
        closing = [task for task, path in self._watches.items() if not resource or f"/{resource}" in path]
        for task in closing:
            task.cancel()
        return len(closing)


async def _read(raw: web.BaseRequest) -> bytes | None:
    """The body; None when it is too large."""
    chunks, size = [], 0
    async for chunk in raw.content.iter_any():
        size += len(chunk)
        if size > BODY_LIMIT_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _headers(answer: Response | Stream) -> list[tuple[str, str]]:
    headers = [("Content-Type", answer.content_type), ("Cache-Control", "no-cache, private")]
    if isinstance(answer, Response):
        headers += list(answer.headers.items())
    for text in dict.fromkeys(answer.warnings):
        if (header := warning_header(text)) is not None:
            headers.append(("Warning", header))
    return headers


if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler

_FAREWELL_S = 0.5


class ConnectionServer(web.Server):
    """aiohttp's server, which also ends the connections that its `shutdown` misses.

    `shutdown` forgets each connection that is made while it waits for requests in progress, and one whose TLS handshake
    ends later: they would be served forever. And it closes connections, it does not abort them: over TLS asyncio then waits 30 s for the
    client's answer, which a client that is stopped never gives.
    """

    _ended = False

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._open: dict[RequestHandler, asyncio.Transport] = {}
        self._none = asyncio.Event()  # set when the last one of an ended server is gone

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open[handler] = transport
        if self._ended:
            transport.abort()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._open.pop(handler, None)
        if self._ended and not self._open:
            self._none.set()
        super().connection_lost(handler, exc)

    async def shutdown(self, timeout: float | None = None) -> None:
        """Finish requests in progress, at most `timeout` seconds, and end every connection; those made from now on at once."""
        self._ended = True
        await super().shutdown(timeout)
        if self._open:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._none.wait(), _FAREWELL_S)
        for transport in list(self._open.values()):
            transport.abort()
