"""The network between processes: connections on which messages are late, held, lost, doubled, or refused.

A `Path` leads one way, from one process to another; its faults are the network's, of that direction alone. What TCP promises
holds: within one connection messages stay in order, and one that is lost breaks the connection or is sent again (late).
Requests go by connections of their own, so they may overtake one another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp

from fairlead.kube.exchange import Answer, ExchangeError
from fairlead.sandbox.apiserver.wire.exchange import Request, Response, Stream
from tests.chaos.loop import Process, VirtualLoop
from tests.chaos.virtual import CLOCK, PROCESS

USUAL_S = (0.0002, 0.002)  # of a message
ORDER_S = 1e-6  # between two messages of a connection: a timer of the same moment might come first
REPEATED = frozenset({"GET", "PUT", "DELETE"})  # what a client may send again by itself, so that it arrives twice


class Reset(ExchangeError, aiohttp.ClientConnectionError):  # noqa: N818 - says what the connection was
    """The connection was refused, or broke: as a `Wire` says it, and as calls of webhooks do."""


@dataclass
class Path:
    """One direction between two programs. A restart of either changes nothing about it."""

    late_s: tuple[float, float] = USUAL_S
    cut: bool = False  # refused, and what is open breaks
    held: bool = False  # nothing arrives until it ends: a partition of one way, or a connection that is silent
    lost: float = 0.0  # of 1
    doubled: float = 0.0  # of 1
    waiting: list[Callable[[], None]] = field(default_factory=list)
    connections: dict[Connection, None] = field(default_factory=dict)


class Connection:
    """One direction of one stream of messages. `broken` is called, as either end, when it breaks."""

    def __init__(self) -> None:
        self.last_at = 0.0
        self.open = True
        self.broken: list[tuple[Process, Callable[[], None]]] = []


class Network:
    """All paths, by the names of the programs. `random` decides what happens to each message."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.random = Random(0)
        self.messages = 0
        self._loop = loop
        self._paths: dict[tuple[str, str], Path] = {}

    def path(self, source: str, target: str) -> Path:
        return self._paths.setdefault((source, target), Path())

    def cut(self, path: Path) -> None:
        path.cut = True
        for connection in list(path.connections):
            self.close(path, connection)

    def hold(self, path: Path) -> None:
        path.held = True

    def heal(self, path: Path) -> None:
        path.late_s, path.cut, path.held, path.lost, path.doubled = USUAL_S, False, False, 0.0, 0.0
        waiting, path.waiting = path.waiting, []
        for send in waiting:
            send()

    def heal_all(self) -> None:
        for path in self._paths.values():
            self.heal(path)

    def connect(self, path: Path) -> Connection:
        made = Connection()
        path.connections[made] = None
        return made

    def close(self, path: Path, connection: Connection, *, tell: bool = True) -> None:
        path.connections.pop(connection, None)
        if not connection.open:
            return
        connection.open = False
        if tell:
            for process, broken in connection.broken:
                process.call(self.random.uniform(*USUAL_S), broken)

    def send(self, path: Path, connection: Connection, to: Process, work: Callable[..., None], *args: Any) -> None:
        """`work(*args)` is done as `to` when the message arrives. One that is lost breaks the connection."""
        self.messages += 1
        if not connection.open or path.cut:
            self.close(path, connection)
            return
        if path.held:
            path.waiting.append(lambda: self.send(path, connection, to, work, *args))
            return
        if path.lost and self.random.random() < path.lost:
            self.close(path, connection)
            return
        at = max(connection.last_at + ORDER_S, CLOCK.now + self.random.uniform(*path.late_s))
        connection.last_at = at

        def arrive() -> None:
            if connection.open:
                work(*args)

        self._loop.call_at(at, arrive, context=to.context)


class Serving(Protocol):
    """A process that answers requests: an apiserver."""

    process: Process

    async def answer(self, request: Request) -> Response | Stream | None: ...


class Servers(Protocol):
    """Which apiserver a client's next connection goes to."""

    def server_of(self, client: Process) -> Serving: ...
    def refused(self, client: Process) -> None: ...


class MemoryWire:
    """A client's way to the apiservers: fairlead.kube.wire.Wire."""

    def __init__(self, network: Network, servers: Servers, user_agent: str) -> None:
        self._network = network
        self._servers = servers
        self._headers = {"user-agent": user_agent, "accept": "application/json"}

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
    ) -> Answer:
        request = self._request(method, path, params, headers, body)
        async with asyncio.timeout(timeout_s):
            answer = await self._asked(request)
        assert isinstance(answer, Response)
        return Answer(answer.status, answer.body, answer.headers.get("Retry-After"))

    async def open(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str], silence_max_s: float
    ) -> MemoryStream:
        request = self._request("GET", path, params, headers, None)
        async with asyncio.timeout(silence_max_s):
            opened = await self._asked(request)
        if isinstance(opened, Response):
            return MemoryStream(opened.status, opened.body, silence_max_s)
        assert isinstance(opened, MemoryStream)
        opened.silence_max_s = silence_max_s
        return opened

    async def close(self) -> None:
        """There is nothing to close: each request has a connection of its own."""

    def _request(
        self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], body: bytes | None
    ) -> Request:
        query = "?" + urlencode(params) if params else ""
        return Request.of(method, path + query, {**self._headers, **headers}, body or b"")

    async def _asked(self, request: Request) -> Response | MemoryStream:
        client = PROCESS.get()
        assert client is not None
        server = self._servers.server_of(client)
        there = self._network.path(client.name, server.process.name)
        back = self._network.path(server.process.name, client.name)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Response | MemoryStream] = loop.create_future()
        if there.cut or back.cut or not server.process.alive:
            await asyncio.sleep(self._network.random.uniform(*USUAL_S))
            self._servers.refused(client)
            raise Reset(f"{server.process.name} refuses connections")
        exchange = _Exchange(self._network, client, server, there, back, answered)
        exchange.start(request)
        try:
            return await answered
        except Reset:
            self._servers.refused(client)
            raise
        finally:
            if answered.cancelled():
                self._servers.refused(client)
                exchange.leave()


class _Exchange:
    """One request on a connection of its own, and its answer; for a watch, all that follows."""

    def __init__(
        self,
        network: Network,
        client: Process,
        server: Serving,
        there: Path,
        back: Path,
        answered: asyncio.Future[Response | MemoryStream],
    ) -> None:
        self._network, self._client, self._server = network, client, server
        self._there, self._back = there, back
        self._answered = answered
        self._forth = network.connect(there)
        self._reply = network.connect(back)
        for each in (self._forth, self._reply):
            each.broken.append((client, self._broke))
        self._stream: MemoryStream | None = None
        self._serving: asyncio.Task[None] | None = None
        self._server_died = lambda: self._end(tell=True)
        server.process.on_kill.append(self._server_died)
        client.on_kill.append(self.leave)

    def start(self, request: Request) -> None:
        process = self._server.process
        self._network.send(self._there, self._forth, process, self._serve, request)
        doubled = self._there.doubled
        if doubled and request.method in REPEATED and self._network.random.random() < doubled:
            self._network.send(self._there, self._forth, process, self._serve_again, request)

    # -- as the server

    def _serve(self, request: Request) -> None:
        self._serving = self._server.process.spawn(self._answer(request), "request")

    def _serve_again(self, request: Request) -> None:
        """The same request once more; nobody reads this answer."""
        if "watch" not in request.query:
            self._server.process.spawn(self._server.answer(request), "request again")

    async def _answer(self, request: Request) -> None:
        try:
            answer = await self._server.answer(request)
            if answer is None:
                self._end(tell=True)
            elif isinstance(answer, Stream):
                await self._watch(answer)
            else:
                self._send(self._arrived, answer)
        finally:
            self._serving = None

    async def _watch(self, answer: Stream) -> None:
        self._send(self._opened, answer.status)
        try:
            async for chunk in answer.chunks:
                if not self._reply.open:
                    return
                self._send(self._chunk, chunk)
            self._send(self._chunk, b"")
        finally:
            await answer.chunks.aclose()

    def _send(self, work: Callable[..., None], *args: Any) -> None:
        self._network.send(self._back, self._reply, self._client, work, *args)

    def _left(self) -> None:
        if self._serving is not None:
            self._serving.cancel()

    # -- as the client

    def _arrived(self, answer: Response) -> None:
        self._end(tell=False)
        if not self._answered.done():
            self._answered.set_result(answer)

    def _opened(self, status: int) -> None:
        self._stream = MemoryStream(status, None, 0.0, self.leave)
        if not self._answered.done():
            self._answered.set_result(self._stream)
        else:
            self.leave()

    def _chunk(self, chunk: bytes) -> None:
        assert self._stream is not None
        self._stream.feed(chunk or None)
        if not chunk:
            self._end(tell=False)

    def _broke(self) -> None:
        self._end(tell=False)
        if not self._answered.done():
            self._answered.set_exception(Reset("the connection broke"))
        if self._stream is not None:
            self._stream.fail(Reset("the connection broke"))

    def leave(self) -> None:
        """The client gives up: the server learns of it, unless the network keeps that from it."""
        if self._forth.open:
            self._network.send(self._there, self._forth, self._server.process, self._left)
        self._network.close(self._back, self._reply, tell=False)

    def _end(self, *, tell: bool) -> None:
        for process, work in ((self._server.process, self._server_died), (self._client, self.leave)):
            if work in process.on_kill:
                process.on_kill.remove(work)
        self._network.close(self._there, self._forth, tell=tell)
        self._network.close(self._back, self._reply, tell=tell)


class MemoryStream:
    """The body of an answer as it arrives: fairlead.kube.wire.Streamed."""

    def __init__(
        self, status: int, body: bytes | None, silence_max_s: float, leave: Callable[[], None] | None = None
    ) -> None:
        self.status = status
        self.retry_after: str | None = None
        self.silence_max_s = silence_max_s
        self._leave = leave
        self._chunks: deque[bytes | Exception | None] = deque() if body is None else deque((body, None))
        self._wake = asyncio.Event()

    def feed(self, chunk: bytes | None) -> None:
        """None is the end."""
        self._chunks.append(chunk)
        self._wake.set()

    def fail(self, error: Exception) -> None:
        self._chunks.append(error)
        self._wake.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                if chunk is None:
                    return
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
            self._wake.clear()
            async with asyncio.timeout(self.silence_max_s):
                await self._wake.wait()

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def aclose(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None
