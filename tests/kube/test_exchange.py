"""Requests over kept connections, against servers that answer byte by byte what each test says. TLS: the contract suite."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fairlead.kube import credentials, errors, exchange, resources
from fairlead.kube.client import Client
from fairlead.kube.exchange import Answer, Exchange, ExchangeError, Stale

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Serve = Callable[["Connection"], Awaitable[None]]


class Connection:
    """One connection, as the server has it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self._reader, self._writer, self.number = reader, writer, number

    async def request(self) -> str:
        """The next request whole; "" at the end of the connection."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return ""
        length = next((line for line in head.split("\r\n") if line.lower().startswith("content-length:")), "0")
        return head + (await self._reader.readexactly(int(length.rpartition(":")[2]))).decode()

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self._writer.write(part)

    async def ended(self) -> None:
        """The client has closed it."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass

    def abort(self) -> None:
        assert isinstance(self._writer.transport, asyncio.Transport)
        self._writer.transport.abort()


class Server:
    """`serve` is called with each connection; the connection is closed when it returns."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.serve: Serve = always(OK)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError):
            await self.serve(Connection(reader, writer, self.connections))
        writer.close()


def always(answer: bytes) -> Serve:
    async def serve(connection: Connection) -> None:
        while await connection.request():
            connection.send(answer)

    return serve


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield made
    listening.close()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Exchange]:
    made = Exchange(server.url, tls=None, server_name=None, user_agent="test", limit=2)
    yield made
    await made.close(5.0)


async def ask(client: Exchange, method: str = "GET", path: str = "/x", timeout_s: float = 10.0, **more) -> Answer:
    given = {"params": {}, "headers": {}, "body": None} | more
    return await client.request(method, path, timeout_s=timeout_s, **given)


async def test_a_request_says_what_is_asked_and_how(client: Exchange, server: Server):
    seen: list[str] = []

    async def serve(connection: Connection) -> None:
        while text := await connection.request():
            seen.append(text)
            connection.send(OK)

    server.serve = serve
    await ask(client, params={"labelSelector": "a in (b,c)", "limit": "5"}, headers={"Authorization": "Bearer t"})
    await ask(client, "POST", body=b"{}", headers={"Content-Type": "application/json"})
    await ask(client, "DELETE")
    get, post, delete = seen
    assert get.startswith("GET /x?labelSelector=a%20in%20%28b%2Cc%29&limit=5 HTTP/1.1\r\n")
    assert f"Host: {server.url[7:]}\r\n" in get
    assert "Authorization: Bearer t\r\n" in get
    assert post.endswith("Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    assert "Content-Length: 0\r\n" in delete


async def test_the_next_request_goes_over_the_same_connection(client: Exchange, server: Server):
    for _ in range(3):
        assert await ask(client) == Answer(200, b"ok", None)
    assert server.connections == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, b"", None)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Answer(200, b"", None)),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, Answer(200, b"ok", None)),
        (b"HTTP/1.1 429 Slow\r\nretry-after: 7\r\nContent-Length: 1\r\n\r\n!", Answer(429, b"!", "7")),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            Answer(200, b"abcde", None),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
            % (len(gzip.compress(b"text" * 9, mtime=0)), gzip.compress(b"text" * 9, mtime=0)),
            Answer(200, b"text" * 9, None),
        ),
    ],
)
async def test_an_answer_is_read_however_it_is_cut(client: Exchange, server: Server, answer: bytes, expected: Answer):
    async def serve(connection: Connection) -> None:
        while await connection.request():
            for index in range(len(answer)):
                connection.send(answer[index : index + 1])
                await asyncio.sleep(0)

    server.serve = serve
    assert [await ask(client), await ask(client)] == [expected, expected]
    server.serve = always(answer)
    assert await ask(client) == expected
    assert server.connections == 1


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", b"hello\r\n\r\n"])
async def test_what_is_no_whole_answer_is_an_error(client: Exchange, server: Server, answer: bytes):
    async def serve(connection: Connection) -> None:
        await connection.request()
        connection.send(answer)

    server.serve = serve
    with pytest.raises(ExchangeError) as caught:
        await ask(client)
    assert not isinstance(caught.value, Stale)


async def test_a_late_answer_is_not_taken_for_the_next_one(client: Exchange, server: Server):
    late = asyncio.Event()

    async def serve(connection: Connection) -> None:
        while await connection.request():
            if connection.number == 1:
                await late.wait()
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
            else:
                connection.send(OK)

    server.serve = serve
    with pytest.raises(TimeoutError):
        await ask(client, timeout_s=0.05)
    given_up = asyncio.create_task(ask(client))
    await asyncio.sleep(0)
    given_up.cancel()
    late.set()
    assert (await ask(client)).body == b"ok"


@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfals", b"HTTP/1.1 200 OK\r\n"])
async def test_more_than_was_asked_for_ends_the_connection(client: Exchange, server: Server, more: bytes):
    async def serve(connection: Connection) -> None:
        while await connection.request():
            connection.send(OK + more)

    server.serve = serve
    assert [(await ask(client)).body, (await ask(client)).body] == [b"ok", b"ok"]
    assert server.connections == 2


async def test_no_more_requests_are_under_way_than_the_limit(client: Exchange, server: Server):
    answers, two, under_way, most = asyncio.Event(), asyncio.Event(), 0, 0

    async def serve(connection: Connection) -> None:
        nonlocal under_way, most
        while await connection.request():
            under_way += 1
            most = max(most, under_way)
            if under_way == 2:
                two.set()
            await answers.wait()
            under_way -= 1
            connection.send(OK)

    server.serve = serve
    tasks = [asyncio.create_task(ask(client)) for _ in range(7)]
    await two.wait()
    answers.set()
    assert {answer.body for answer in await asyncio.gather(*tasks)} == {b"ok"}
    assert (most, server.connections) == (2, 2)


async def test_an_unused_connection_is_closed(client: Exchange, server: Server, monkeypatch: pytest.MonkeyPatch):
    closed = asyncio.Event()

    async def serve(connection: Connection) -> None:
        await always(OK)(connection)
        closed.set()

    server.serve = serve
    monkeypatch.setattr(exchange, "KEPT_S", 0.0)
    await ask(client)
    async with asyncio.timeout(10):
        await closed.wait()


@pytest.mark.parametrize("given", [{"path": "/x HTTP/1.1\r\nA: b"}, {"headers": {"Authorization": "t\r\nA: b"}}])
async def test_a_line_break_does_not_get_into_the_head(client: Exchange, server: Server, given):
    with pytest.raises(ValueError, match="more than one line"):
        await ask(client, **given)
    assert server.connections == 0


async def test_what_may_be_repeated_is_when_a_kept_connection_turns_out_to_be_closed(server: Server):
    """The guard is asked before the second attempt, too; a creation is not sent again, since it may have arrived."""
    asked: list[str] = []

    async def serve(connection: Connection) -> None:
        await connection.request()
        connection.send(b'HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{"metadata":{"name":"node-a"}}')
        if await connection.request():
            asked.append("closed before an answer")
            connection.abort()

    server.serve = serve
    allowed: list[int] = []
    async with Client(credentials.fixed(server.url)) as plain:
        client = plain.guarded(lambda: allowed.append(1), timeout_s=5)
        await client.get(resources.NODES, "node-a")
        assert (await client.get(resources.NODES, "node-a")).metadata.name == "node-a"
        assert (server.connections, len(asked), len(allowed)) == (2, 1, 3)
        with pytest.raises(errors.Unreachable, match="closed the connection"):
            await client.create(resources.NODES, {"metadata": {"name": "node-b"}})
        assert (server.connections, len(asked), len(allowed)) == (2, 2, 4)
