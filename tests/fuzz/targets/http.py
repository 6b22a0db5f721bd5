"""HTTP/1.1 in both directions: what clients send to the webhook, and what an apiserver answers to `kube.exchange`.

The bytes are delivered in random pieces, which their own checksum determines. Beyond exceptions, each input is delivered whole, too: how
bytes are split must not change what is answered or read.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from fairlead.kube import errors, exchange, listing
from fairlead.kube.core import Pod
from fairlead.webhook.serve import connection as serving
from fairlead.webhook.serve.limits import Limits
from tests.fuzz.mutations import byte_mutations
from tests.fuzz.target import Target

_LIMITS = Limits(body_bytes=2_000)


def pieces(data: bytes) -> Iterator[bytes]:
    random = Random(zlib.crc32(data))
    at = 0
    while at < len(data):
        size = random.choice((1, 2, 3, 7, 40, 300, 5_000))
        yield data[at : at + size]
        at += size


class Wire(asyncio.Transport):
    """The other end of a connection in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.ended = ""
        self.paused = False

    def write(self, data: Any) -> None:
        assert not self.ended, "nothing is written after the end"
        self.written += data

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return bool(self.ended)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


# -- requests ----------------------------------------------------------------------------------------------------------

_WORDS = (
    b"GET ", b"POST ", b"HEAD ", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT ", b"/mutate", b"/validate?timeout=10s", b" HTTP/1.1\r\n",
    b" HTTP/1.0\r\n", b" HTTP/0.9\r\n", b" HTTP/2.0\r\n", b"Content-Length: ", b"Content-Length: 5\r\n", b"content-length:0\r\n", b"Content-Length: +5\r\n",
    b"Content-Length: 5, 5\r\n", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding : chunked\r\n",
    b"Content-Type: application/json; charset=utf-8\r\n", b"Connection: close\r\n", b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Expect: 100-continue\r\n",
    b"Host: x\r\n", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b" folded\r\n", b"\t", b":", b"0\r\n\r\n", b"5\r\nhello\r\n", b"A: " + b"b" * 17_000 + b"\r\n",
)  # fmt: skip


def _request(body: bytes, *, method: bytes = b"POST", path: bytes = b"/mutate", more: bytes = b"") -> bytes:
    head = method + b" " + path + b" HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n" + more
    return head + (b"Content-Length: %d\r\n" % len(body) if method == b"POST" else b"") + b"\r\n" + body


_REQUESTS = (
    _request(b'{"a":1}'),
    _request(b"", method=b"GET", path=b"/healthz"),
    _request(b"hello") + _request(b"", method=b"GET", path=b"/readyz") + _request(b"again", more=b"Connection: close\r\n"),
    _request(b"x" * 1_900, more=b"Expect: 100-continue\r\n"),
    _request(b"x", path=b"/later") * 3,
    b"POST /mutate HTTP/1.0\r\nContent-Length: 2\r\n\r\nab",
    b"POST /mutate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
)  # fmt: skip


def requests(scratch: Path) -> Target:
    """Bytes to the webhook's connection."""

    def served(parts: Iterator[bytes]) -> tuple[bytes, str, list[serving.Request]]:
        wire, seen = Wire(), list[serving.Request]()

        def handle(request: serving.Request) -> serving.Answer | Awaitable[serving.Answer]:
            seen.append(request)
            assert len(request.body) <= _LIMITS.body_bytes
            return serving.Answer(request.method.encode() + request.path.encode() + request.body)

        def refuse(status: int, reason: str) -> bytes:
            return reason.encode()

        now = [0.0]
        served = serving.Connection(handle, refuse, _LIMITS, lambda: now[0])
        served.connection_made(wire)
        for part in parts:
            if wire.ended:
                break
            served.data_received(part)
            assert served.buffered_bytes <= 16 * 1024 + 4 + _LIMITS.body_bytes + len(part)
        before = bytes(wire.written).replace(
            b"HTTP/1.1 100 Continue\r\n\r\n", b""
        )  # sent only where the body is awaited
        now[0] += 1_000.0
        served.expire(now[0])
        served.connection_lost(None)
        assert wire.ended, "every state has a deadline"
        return before, wire.ended, seen

    def run(data: bytes) -> None:
        assert served(pieces(data)) == served(iter((data,) if data else ())), (
            "the split of the bytes changes the answers"
        )

    return Target(
        name="http-requests",
        run=run,
        seeds=_REQUESTS,
        mutate=byte_mutations(_WORDS),
        traced=("/webhook/serve/",),
        bytes_max=40_000,
    )


# -- answers -----------------------------------------------------------------------------------------------------------

_PODS = b'{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"b","uid":"u"}}]}'
_STATUS = b'{"kind":"Status","status":"Failure","message":"no","reason":"Conflict","details":{"retryAfterSeconds":1},"code":409}'
_ANSWER_WORDS = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n", b"HTTP/1.1 204 No Content\r\n",
    b"HTTP/1.1 304 Not Modified\r\n", b"HTTP/1.1 429 Slow\r\n", b"HTTP/1.1 503 x\r\n", b"HTTP/1.1 999 x\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 20\r\n",
    b"Retry-After: 1\r\n", b"Retry-After: -1\r\n", b"Retry-After: \xb2\r\n", b"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n", b"Content-Encoding: gzip\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 3\r\n", b"Content-Length: 18446744073709551616\r\n", b"Connection: close\r\n",
    b"Upgrade: h2c\r\nConnection: Upgrade\r\n", b"\r\n\r\n", b"\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"5;x=y\r\nhello\r\n", b"Trailer: x\r\n", _STATUS,
)  # fmt: skip


def _answer(status: bytes, body: bytes, *more: bytes) -> bytes:
    return (
        b"HTTP/1.1 "
        + status
        + b"\r\n"
        + b"".join(each + b"\r\n" for each in more)
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body
    )


_ANSWERS = (
    _answer(b"200 OK", _PODS, b"Content-Type: application/json"),
    _answer(b"200 OK", gzip.compress(_PODS, mtime=0), b"Content-Encoding: gzip"),
    _answer(b"409 Conflict", _STATUS),
    _answer(b"429 Too Many Requests", _STATUS, b"Retry-After: 1"),
    _answer(b"503 Service Unavailable", b"not JSON", b"Retry-After: 120", b"Connection: close"),
    b"HTTP/1.1 100 Continue\r\n\r\n" + _answer(b"200 OK", _PODS),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n" + _PODS,
    b"HTTP/1.1 204 No Content\r\n\r\n",
)  # fmt: skip


def answers(scratch: Path) -> Target:
    """Bytes from an apiserver, to the client's connection and what reads its answers."""
    loop = asyncio.new_event_loop()

    def answered(parts: Iterator[bytes]) -> exchange.Answer | type[Exception]:
        wire, opened = Wire(), set[Any]()
        connection = exchange._Connection(loop, opened)
        connection.connection_made(wire)
        waiting = connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
        waiting.send(None)
        for part in parts:
            if not wire.ended:
                connection.data_received(part)
        connection.eof_received()
        connection.connection_lost(None)
        assert not opened
        try:
            waiting.send(None)
        except StopIteration as done:
            answer: exchange.Answer = done.value
            return answer
        except (exchange.ExchangeError, OSError) as error:
            return type(error)
        raise AssertionError("a lost connection leaves its caller waiting")

    def run(data: bytes) -> None:
        answer = answered(pieces(data))
        assert answer == answered(iter((data,))), "the split of the bytes changes the answer"
        if isinstance(answer, type):
            return
        if answer.status >= 300:
            raise errors.from_response(answer.status, answer.body, retry_after=answer.retry_after)
        try:
            listing.decode(Pod, answer.body)
        except ValueError:  # what the client makes of it is the target apiserver-objects
            pass

    return Target(
        name="http-answers",
        run=run,
        seeds=_ANSWERS,
        mutate=byte_mutations(_ANSWER_WORDS),
        allowed=(errors.ApiError,),
        traced=("/kube/exchange.py", "/kube/errors.py"),
        close=loop.close,
    )
