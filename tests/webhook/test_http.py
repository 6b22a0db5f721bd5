"""One connection in memory: every split of the bytes gives the same answers, limits hold, and no request is smuggled in."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.webhook.serve.connection import Answer, Connection, Request
from fairlead.webhook.serve.limits import HEAD_BYTES_MAX, Limits

LIMITS = Limits(body_bytes=200)
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Wire(asyncio.Transport):
    """What the connection writes, and how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = ""
        self.unread: list[bytes] | None = None  # while reading is paused: what the client has sent since
        self.deliver: Callable[[bytes], None] = lambda _: None

    def pause_reading(self) -> None:
        self.unread = []

    def resume_reading(self) -> None:
        unread, self.unread = self.unread or [], None
        for data in unread:
            self.deliver(data)

    def write(self, data: Any) -> None:
        assert not self.ended, "nothing is written after the end"
        self.written += bytes(data)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class Client:
    """Sends bytes to a connection that answers each request with its method, path and body; /later in a task of its own."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.now = 0.0
        self.requests: list[Request] = []
        self.wire = Wire()
        self.connection = Connection(self._handle, self._refuse, limits, lambda: self.now)
        self.connection.connection_made(self.wire)
        self.wire.deliver = self.send

    def send(self, data: bytes) -> None:
        if self.wire.ended:
            return  # an event loop reads nothing from a closed transport
        if self.wire.unread is None:
            self.connection.data_received(data)
        else:
            self.wire.unread.append(data)

    def statuses(self) -> list[int]:
        return [int(line.split()[1]) for line in self.wire.written.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]

    async def settle(self) -> None:
        """Lets the answers that are made later go out."""
        while (task := self.connection._answering) is not None:
            await asyncio.wait({task})

    def _handle(self, request: Request) -> Answer | Awaitable[Answer]:
        self.requests.append(request)
        answer = Answer(f"{request.method} {request.path} {request.content_type} ".encode() + request.body)
        return self._later(answer) if request.path == "/later" else answer

    async def _later(self, answer: Answer) -> Answer:
        await asyncio.sleep(0)
        return answer

    def _refuse(self, status: int, reason: str) -> bytes:
        return reason.encode()


async def played(parts: Iterable[bytes], *, hurried: bool = False) -> tuple[bytes, str, list[Request]]:
    """The answers to the parts of a stream, how the connection ended, and the requests; hurried: no pause between parts."""
    client = Client()
    for part in parts:
        client.send(part)
        if not hurried:
            await client.settle()
    await client.settle()
    return client.wire.written.replace(CONTINUE, b""), client.wire.ended, client.requests


async def whole_and_split(
    stream: bytes, cuts: Sequence[int], *, hurried: bool = False
) -> list[tuple[bytes, str, list[Request]]]:
    return [await played([stream]), await played(split(stream, cuts), hurried=hurried)]


def split(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    at = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    return [stream[start:end] for start, end in itertools.pairwise(at)]


def post(body: bytes = b"{}", path: str = "/mutate", *fields: str) -> bytes:
    head = "".join(
        f"{field}\r\n" for field in (f"Content-Length: {len(body)}", "Content-Type: application/json", *fields)
    )
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode() + body


def head(*fields: str) -> bytes:
    return ("POST /mutate HTTP/1.1\r\n" + "".join(f"{field}\r\n" for field in fields) + "\r\n").encode("latin-1")


def padded(head_bytes: int) -> bytes:
    """A request whose head has so many bytes, without the empty line at its end."""
    start = b"GET /mutate HTTP/1.1\r\nX: "
    return start + b"a" * (head_bytes - len(start)) + b"\r\n\r\n"


# -- splits ----------------------------------------------------------------------------------------------------------

STREAMS = {
    "one": post(),
    "no body": b"GET /mutate HTTP/1.1\r\n\r\n",
    "three on one connection": post(b"first") + post(b"second", "/later") + post(b"third"),
    "answers made later": post(b"a", "/later") + post(b"b", "/later?timeout=5s") + b"GET / HTTP/1.0\r\n\r\n",
    "a client that waits to continue": post(b"x" * 50, "/mutate", "Expect: 100-continue") + post(b"y"),
    "a client that closes": post(b"a", "/mutate", "Connection: close") + post(b"b"),
    "an upgrade that is not taken up": post(b"a", "/mutate", "Connection: upgrade", "Upgrade: h2c") + post(b"b"),
    "an end of a head within a body": post(b"\r\n\r\n\r\n\r\n") + post(b"GET / HTTP/1.1\r\n\r\n"),
    "a body too large": post() + head("Content-Length: 201") + b"x" * 201,
    "a fault after a good request": post(b"a", "/later") + head("Transfer-Encoding: chunked") + b"0\r\n\r\n" + post(),
    "a folded field after a good request": post() + head("A: b", " c", "Content-Length: 0") + post(),
    "an empty line first": b"\r\n" + post(),
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n" + post(),
    "more than is read at once after a request that is answered later": post(b"", "/later") + post(b"a") * 200,
    "not ended": post() + b"POST /mutate HTTP/1.1\r\nContent-Length: 5\r\n\r\nab",
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())
async def test_every_split_gives_the_same_answers(stream: bytes) -> None:
    whole = await played([stream])
    repeats = range(300, len(stream), 37) if len(stream) > 2_000 else range(300, len(stream))
    for cut in (*range(1, min(300, len(stream))), *repeats):
        assert await played(split(stream, [cut])) == whole, f"cut at {cut}"
    assert await played(split(stream, range(len(stream)))) == whole, "byte by byte"
    assert await played(split(stream, range(len(stream))), hurried=True) == whole, "byte by byte, at once"


@pytest.mark.parametrize("more", range(-4, 6))
async def test_the_limit_of_a_head_is_the_same_for_every_split(more: int) -> None:
    stream = padded(HEAD_BYTES_MAX + more) + post()
    whole = await played([stream])
    assert (b"431" in whole[0]) == (more > 0)
    assert whole[1] == ("closed" if more > 0 else "")
    for cut in (*range(HEAD_BYTES_MAX - 10, HEAD_BYTES_MAX + 12), 1, 100):
        assert await played(split(stream, [cut])) == whole, f"cut at {cut}"
    assert await played(split(stream, range(0, len(stream), 7))) == whole


junk = st.sampled_from(
    [
        b"GARBAGE\r\n\r\n",
        b"\r\n",
        b"POST / HTTP/1.1\nHost: x\n\n",
        head("Content-Length: 2", "Content-Length: 3"),
        head("Content-Length: 2", "Transfer-Encoding: chunked"),
        head("X: \x00"),
        head("Content-Length: 2000"),
        b"GET  / HTTP/1.1\r\n\r\n",
        padded(HEAD_BYTES_MAX + 1),
        b"POST /mutate HTTP/1.1\r\n",
    ]
)
good = st.builds(
    post,
    st.binary(max_size=20) | st.just(b"\r\n\r\n") | st.just(post()),
    st.sampled_from(["/mutate", "/later", "/validate?timeout=2s"]),
    st.sampled_from(["X: y", "Connection: keep-alive", "Connection: close", "Expect: 100-continue"]),
)


@RELAXED
@given(
    stream=st.lists(good | good | good | junk, max_size=5).map(b"".join),
    cuts=st.lists(st.integers(0, 400), max_size=12),
    hurried=st.booleans(),
)
def test_any_split_of_any_stream_gives_the_same_answers(stream: bytes, cuts: list[int], hurried: bool) -> None:
    whole, parts = asyncio.run(whole_and_split(stream, cuts, hurried=hurried))
    assert whole == parts


# -- smuggling -------------------------------------------------------------------------------------------------------

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"0\r\n\r\n" + SMUGGLED
PAYLOADS = {
    "CL.TE": (head("Content-Length: 6", "Transfer-Encoding: chunked") + CHUNKED, [501, 400]),
    "TE.CL": (head("Transfer-Encoding: chunked", "Content-Length: 4") + b"5c\r\n" + SMUGGLED + CHUNKED, [501]),
    "TE.TE": (head("Transfer-Encoding: chunked", "Transfer-Encoding: x") + CHUNKED, [501]),
    "chunked": (head("Transfer-Encoding: chunked") + CHUNKED, [501]),
    "chunked in capitals": (head("TRANSFER-ENCODING: Chunked") + CHUNKED, [501]),
    "chunked after a tab": (head("Transfer-Encoding:\tchunked") + CHUNKED, [501]),
    "not quite chunked": (head("Transfer-Encoding: xchunked") + CHUNKED, [501]),
    "identity": (head("Transfer-Encoding: identity", "Content-Length: 3") + b"abc" + SMUGGLED, [501]),
    "a space before the colon": (head("Transfer-Encoding : chunked", "Content-Length: 3") + CHUNKED, [400]),
    "a vertical tab in the name": (head("Transfer-Encoding\x0b: chunked", "Content-Length: 3") + CHUNKED, [400]),
    "folded": (head("Transfer-Encoding:", " chunked", "Content-Length: 3") + CHUNKED, [400]),
    "folded with a tab": (head("X: y", "\tTransfer-Encoding: chunked", "Content-Length: 3") + CHUNKED, [400]),
    "behind a bare LF": (head("X: y\nTransfer-Encoding: chunked", "Content-Length: 3") + CHUNKED, [400]),
    "behind a bare CR": (head("X: y\rTransfer-Encoding: chunked", "Content-Length: 3") + CHUNKED, [400]),
    "behind a NUL": (head("X: y\x00Transfer-Encoding: chunked", "Content-Length: 3") + CHUNKED, [400]),
    "a field without a name": (head(": y", "Content-Length: 0") + SMUGGLED, [400]),
    "a field without a colon": (head("Content-Length 5", "Content-Length: 0") + SMUGGLED, [400]),
    "two lengths": (head("Content-Length: 0", f"Content-Length: {len(SMUGGLED)}") + SMUGGLED, [400]),
    "the same length twice": (head("Content-Length: 0", "Content-Length: 0") + SMUGGLED, [400]),
    "a list of lengths": (head("Content-Length: 0, 0") + SMUGGLED, [400]),
    "a signed length": (head("Content-Length: +0") + SMUGGLED, [400]),
    "a negative length": (head("Content-Length: -1") + SMUGGLED, [400]),
    "a length in hexadecimal": (head("Content-Length: 0x0") + SMUGGLED, [400]),
    "a length with a form feed": (head("Content-Length: \x0c0") + SMUGGLED, [400]),
    "a length with a space in it": (head("Content-Length: 0 0") + SMUGGLED, [400]),
    "a length beyond 64 bits": (head(f"Content-Length: {2**64}") + SMUGGLED, [400]),
    "a huge length": (head(f"Content-Length: {2**63}") + SMUGGLED, [413]),
    "an empty length": (head("Content-Length:") + SMUGGLED, [400]),
    "a length in other digits": (head("Content-Length: \xb2") + SMUGGLED, [400]),
    "a length under another name": (head("Content_Length: 0") + SMUGGLED, [411]),
    "no length": (head("Host: x") + SMUGGLED, [411]),
    "a chunk extension": (head("Transfer-Encoding: chunked") + b"1;a=b\r\nx\r\n" + CHUNKED, [501]),
    "a chunk extension with a LF": (head("Transfer-Encoding: chunked") + b"1;\nx\r\n" + CHUNKED, [501]),
    "a huge chunk": (head("Transfer-Encoding: chunked") + b"FFFFFFFFFFFFFFFFF\r\n" + SMUGGLED, [501]),
    "a negative chunk": (head("Transfer-Encoding: chunked") + b"-1\r\n" + SMUGGLED, [501]),
    "trailers": (head("Transfer-Encoding: chunked", "Trailer: X") + b"0\r\nX: y\r\n\r\n" + SMUGGLED, [501]),
    "lines that end with LF": (b"POST /mutate HTTP/1.1\nContent-Length: 0\n\n" + SMUGGLED, [400]),
    "one line that ends with LF": (b"POST /mutate HTTP/1.1\r\nContent-Length: 0\n\r\n" + SMUGGLED, [400]),
    "an empty line of LF": (b"POST /mutate HTTP/1.1\r\nContent-Length: 0\r\n\n" + SMUGGLED, [400]),
    "two spaces in the first line": (b"POST  /mutate HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + SMUGGLED, [400]),
    "a space in the target": (b"POST /mutate x HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + SMUGGLED, [400]),
    "a tab in the first line": (b"POST\t/mutate HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + SMUGGLED, [400]),
    "no version": (b"POST /mutate\r\n\r\n" + SMUGGLED, [400]),
    "HTTP/0.9": (b"GET /mutate HTTP/0.9\r\n\r\n" + SMUGGLED, [400]),
    "HTTP/1.2": (b"GET /mutate HTTP/1.2\r\n\r\n" + SMUGGLED, [400]),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED, [400]),
    "RTSP": (b"GET /mutate RTSP/1.0\r\n\r\n" + SMUGGLED, [400]),
    "a method in small letters": (b"post /mutate HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + SMUGGLED, [400]),
    "an empty line before": (b"\r\nPOST /mutate HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + SMUGGLED, [400]),
    "another empty line before": (b"\r\n\r\nPOST /mutate HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + SMUGGLED, [400]),
    "a request after the last one": (post(b"", "/mutate", "Connection: close") + SMUGGLED, [200]),
    "a request within a body": (post(SMUGGLED) + post(SMUGGLED), [200, 200]),
    "a request within the body of an upgrade": (
        post(SMUGGLED, "/mutate", "Upgrade: h2c", "Connection: upgrade"),
        [200],
    ),
}


@pytest.mark.parametrize(("payload", "statuses"), PAYLOADS.values(), ids=PAYLOADS.keys())
def test_no_request_is_smuggled_in(payload: bytes, statuses: list[int]) -> None:
    """The first fault ends the connection; what follows it is never read as a request."""
    for parts in ([payload], split(payload, range(len(payload)))):
        client = Client()
        for part in parts:
            client.send(part)
        assert "/smuggled" not in {request.path for request in client.requests}
        if statuses[0] == 200:
            assert client.statuses() == statuses
        else:
            assert len(client.statuses()) == 1
            assert client.statuses()[0] in statuses
            assert client.wire.ended == "closed"


# -- limits ----------------------------------------------------------------------------------------------------------


def test_each_state_has_its_deadline() -> None:
    client = Client()
    client.now = LIMITS.head_s
    client.connection.expire(client.now)
    assert (client.wire.ended, client.wire.written) == ("aborted", b""), "no head"

    client = Client()
    client.send(b"POST /mutate HTTP/1.1\r\n")
    client.now = LIMITS.head_s - 0.1
    client.send(b"X: y\r\n")
    client.connection.expire(client.now)
    assert client.wire.ended == ""
    client.now += 0.1
    client.connection.expire(client.now)
    assert client.wire.ended == "aborted", "a head that dribbles gains no time"

    client = Client()
    client.send(post(b"abc")[:-1])
    client.now = LIMITS.body_s
    client.connection.expire(client.now)
    assert (client.statuses(), client.wire.ended) == ([408], "closed"), "half a body"

    client = Client()
    client.send(post())
    client.now = LIMITS.idle_s - 0.1
    client.connection.expire(client.now)
    assert client.wire.ended == ""
    client.now += 0.1
    client.connection.expire(client.now)
    assert (client.statuses(), client.wire.ended) == ([200], "aborted"), "no further request"


async def test_an_answer_has_its_deadline_and_a_client_that_only_sends_is_not_read_until_then() -> None:
    client = Client()
    client.send(post(b"", "/later"))
    client.now = LIMITS.answer_s
    client.connection.expire(client.now)
    assert client.wire.ended == "aborted"

    client = Client()
    client.send(post(b"", "/later"))
    for _ in range(HEAD_BYTES_MAX + LIMITS.body_bytes):
        client.send(b"x")
        assert client.wire.unread is None
    client.send(b"x" * 10)
    assert client.wire.unread == []
    client.send(b"x" * 1000)
    assert len(client.connection._buffer) == HEAD_BYTES_MAX + LIMITS.body_bytes + 10
    await client.settle()
    assert (client.statuses(), client.wire.ended) == ([200], "closed")
    assert b"HTTP/1.1 431 " in client.wire.written


async def test_a_connection_that_drains_answers_what_is_in_flight_and_nothing_more() -> None:
    client = Client()
    client.send(post(b"a", "/later") + post(b"b"))
    task = client.connection.drain()
    assert task is not None
    await task
    assert [request.body for request in client.requests] == [b"a"]
    assert client.wire.ended == "closed"
    assert b"Connection: close" in client.wire.written
    idle = Client()
    assert idle.connection.drain() is None
    assert idle.wire.ended == "closed"
