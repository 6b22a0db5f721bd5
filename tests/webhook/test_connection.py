"""One connection on a transport in memory: what is answered does not depend on how its bytes arrive, and nothing is smuggled."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.webhook.serve.connection import Answer, Connection, Request
from fairlead.webhook.serve.limits import HEAD_BYTES_MAX, Limits

LIMITS = Limits(body_bytes=64)
GOOD = b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nbody"


class Wire(asyncio.Transport):
    """Keeps what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def talk(*chunks: bytes) -> tuple[list[tuple[str, bytes]], bytes, bool]:
    """The requests that reach the handler, all bytes of the answers, and whether the connection is closed."""
    seen: list[tuple[str, bytes]] = []

    def handle(request: Request) -> Answer:
        seen.append((request.path, request.body))
        return Answer(b"{}")

    wire = Wire()
    connection = Connection(
        handle, lambda status, reason: b"refused", LIMITS, lambda: 0.0, opened=lambda _: True, closed=lambda _: None
    )
    connection.connection_made(wire)
    for chunk in chunks:
        if not wire.closed:
            connection.data_received(chunk)
    return seen, bytes(wire.written), wire.closed


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def head(*lines: bytes, first: bytes = b"POST /mutate HTTP/1.1") -> bytes:
    return b"\r\n".join((first, *lines, b"", b""))


STREAMS = [
    GOOD,
    GOOD * 3,
    GOOD + b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n" + GOOD,
    GOOD + head(b"Content-Length: 65"),
    GOOD + head(b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + GOOD,
    head(b"Content-Length: 4", b"Connection: close") + b"body" + GOOD,
    b"\x16\x03\x01 no HTTP at all\r\n\r\n" + GOOD,
    head(b"X: " + b"a" * HEAD_BYTES_MAX, b"Content-Length: 4") + b"body",
]


@pytest.mark.parametrize("stream", STREAMS)
def test_every_place_to_split_a_stream_in_two_gives_the_same_answers(stream: bytes) -> None:
    whole = talk(stream)
    places = range(1, len(stream)) if len(stream) < 1_000 else (1, 20, 4_000, HEAD_BYTES_MAX, len(stream) - 1)
    for at in places:
        assert talk(stream[:at], stream[at:]) == whole, at


@given(stream=st.sampled_from(STREAMS[:-1]), cuts=st.lists(st.integers(0, 400), max_size=20))
def test_fragments_of_any_size_give_the_same_answers(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges) if a < b]
    assert talk(*chunks) == talk(stream)


@given(noise=st.binary(max_size=200))
def test_noise_reaches_no_handler_and_crashes_nothing(noise: bytes) -> None:
    seen, answer, closed = talk(noise + b"\r\n\r\n")
    assert seen == [] or noise.startswith((b"GET", b"PUT", b"POST", b"HEAD"))
    assert status(answer) >= 400 or not closed


SMUGGLED = b"POST /smuggled HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
PAYLOADS = {
    "a length and chunks": head(b"Content-Length: 4", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks and a length": head(b"Transfer-Encoding: chunked", b"Content-Length: 4") + b"0\r\n\r\n",
    "chunks": head(b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks, misspelt": head(b"Transfer-Encoding: xchunked", b"Content-Length: 4"),
    "chunks with an extension": head(b"Transfer-Encoding: chunked") + b"4;a=b\r\nbody\r\n0\r\n\r\n",
    "chunks with a huge size": head(b"Transfer-Encoding: chunked") + b"ffffffffffffffff\r\n",
    "chunks with a trailer": head(b"Transfer-Encoding: chunked") + b"0\r\nContent-Length: 9\r\n\r\n",
    "two equal lengths": head(b"Content-Length: 4", b"Content-Length: 4"),
    "two unequal lengths": head(b"Content-Length: 4", b"Content-Length: 0"),
    "a list of lengths": head(b"Content-Length: 4, 4"),
    "a signed length": head(b"Content-Length: +4"),
    "a hexadecimal length": head(b"Content-Length: 0x4"),
    "an endless length": head(b"Content-Length: " + b"9" * 40),
    "a folded line": head(b"X: a", b" b", b"Content-Length: 4"),
    "a space before the colon": head(b"Content-Length : 4"),
    "a lone line feed in a value": head(b"X: a\nContent-Length: 4"),
    "a lone line feed after the first line": b"POST /mutate HTTP/1.1\nContent-Length: 4\r\n\r\n",
    "a lone carriage return": head(b"X: a\rContent-Length: 4"),
    "a null byte": head(b"X: a\x00b", b"Content-Length: 4"),
    "other than ASCII": head("X: ä".encode(), b"Content-Length: 4"),
    "no colon": head(b"Content-Length 4"),
    "HTTP/0.9": b"POST /mutate\r\n\r\n",
    "HTTP/2.0": head(b"Content-Length: 0", first=b"POST /mutate HTTP/2.0"),
    "an upgrade": head(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 0"),
    "no length": head(),
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_what_two_parsers_could_read_differently_is_refused_and_ends_the_connection(payload: bytes) -> None:
    seen, answer, closed = talk(GOOD + payload + SMUGGLED)
    assert seen == [("/mutate", b"body")], "the request before counts, nothing after it does"
    assert closed
    assert status(answer.split(b"{}", 1)[1]) in {400, 411, 501}
