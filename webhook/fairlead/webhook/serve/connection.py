"""HTTP/1.1 as an apiserver speaks it to a webhook, and no more: requests with a body in, one answer each, over one connection.

Exists because a web framework took more time for an answer than the verdict did, and because every
limit is then in one place. Knows nothing of reviews and TLS: `handle` answers a whole request at once, or later.
Strict, for whatever is not plain is an attack or a mistake: no transfer encodings, no folded headers, one Content-Length, a bounded head.
Keeps: an answer goes out before the next request is looked at; every state has a deadline (`expire` ends what is late).
Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import msgspec

HEAD_BYTES_MAX = 16 * 1024
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    content_type: str
    body: bytes
    close: bool
    """The client wants the connection closed after the answer."""


class Answer(msgspec.Struct, frozen=True):
    body: bytes
    status: int = 200
    close: bool = False


Handle = Callable[[Request], Answer | Awaitable[Answer]]
Refuse = Callable[[int, str], bytes]
"""The body of an answer with a status and a reason; told so that the caller can count it."""


class HttpError(Exception):
    """What arrived cannot be answered as a request; the connection ends after the answer."""

    def __init__(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)


class _Head(msgspec.Struct, frozen=True):
    method: str
    path: str
    content_type: str
    length: int
    close: bool
    expects: bool


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds for the head, the body, an answer, and between requests; and the largest body."""

    headers_s: float
    body_s: float
    answer_s: float
    idle_s: float
    body_bytes: int


class Connection(asyncio.Protocol):
    """One connection. `closed` is called when it is gone."""

    def __init__(
        self,
        handle: Handle,
        refuse: Refuse,
        times: Times,
        clock: Callable[[], float],
        closed: Callable[[Connection], None],
    ) -> None:
        self._handle, self._refuse, self._times, self._clock, self._closed = handle, refuse, times, clock, closed
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._answering: asyncio.Task[None] | None = None
        self._stopping = False
        self._began = False
        self.deadline = clock() + times.headers_s

    # -- what the loop calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._answering is None:
            self._advance()
        elif len(self._buffer) > HEAD_BYTES_MAX + self._times.body_bytes:
            self.abort()  # it sends and sends, and never waits for an answer

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closed(self)

    # -- what the server calls -------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """End the connection if it is late."""
        if now < self.deadline:
            return
        if self._answering is None and self._head is not None:
            self._fail(408, f"the body did not arrive within {self._times.body_s:g} s")
        else:
            self.abort()

    def stop(self) -> asyncio.Task[None] | None:
        """Close as soon as what is in flight is answered; that answer's task, if there is one."""
        self._stopping = True
        if self._answering is None and self._transport is not None:
            self._transport.close()
        return self._answering

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Answer every request that is whole."""
        while self._buffer and self._answering is None and self._transport is not None:
            try:
                request = self._next()
            except HttpError as error:
                self._fail(error.status, error.reason)
                return
            if request is None:
                return
            self.deadline = self._clock() + self._times.answer_s
            answer = self._handle(request)
            if isinstance(answer, Answer):
                self._send(answer, close=request.close)
            else:
                self._answering = asyncio.ensure_future(self._later(answer, request))

    def _next(self) -> Request | None:
        """The next request, if all of it is there. Raises HttpError."""
        head = self._head
        if head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0 or end > HEAD_BYTES_MAX:
                if end > HEAD_BYTES_MAX or len(self._buffer) > HEAD_BYTES_MAX:
                    raise HttpError(431, f"the head is larger than {HEAD_BYTES_MAX} bytes")
                if not self._began:
                    self._began = True
                    self.deadline = min(self.deadline, self._clock() + self._times.headers_s)
                return None
            head = self._head = _parse(bytes(self._buffer[:end]), self._times.body_bytes)
            del self._buffer[: end + 4]
            if len(self._buffer) < head.length:
                self.deadline = self._clock() + self._times.body_s
                if head.expects and self._transport is not None:
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if len(self._buffer) < head.length:
            return None
        body = bytes(self._buffer[: head.length])
        del self._buffer[: head.length]
        self._head, self._began = None, False
        return Request(head.method, head.path, head.content_type, body, head.close)

    async def _later(self, answer: Awaitable[Answer], request: Request) -> None:
        try:
            self._send(await answer, close=request.close)
        finally:
            self._answering = None
        self._advance()

    def _fail(self, status: int, reason: str) -> None:
        self._send(Answer(self._refuse(status, reason), status, close=True), close=True)

    def _send(self, answer: Answer, *, close: bool) -> None:
        if self._transport is None:
            return
        close = close or answer.close or self._stopping
        ended = "Connection: close\r\n" if close else ""
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(answer.body)}\r\n{ended}\r\n"
        )
        self._transport.write(head.encode() + answer.body)
        self.deadline = self._clock() + self._times.idle_s
        if close:
            self._buffer.clear()
            self._transport.close()


@lru_cache(maxsize=256)
def _parse(head: bytes, body_bytes_max: int) -> _Head:
    """Remembered, for an apiserver's heads differ in little but the length. Raises HttpError."""
    try:
        first, *lines = head.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise HttpError(400, "the head holds other than ASCII") from None
    words = first.split(" ")
    if len(words) != 3 or words[2] not in {"HTTP/1.1", "HTTP/1.0"}:
        raise HttpError(400, "the first line is no HTTP/1.1 request")
    method, target, version = words
    content_type, length, close, expects = "", "", version == "HTTP/1.0", False
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name[-1] in " \t" or name[0] in " \t":
            raise HttpError(400, "a header line is malformed")
        match name.lower():
            case "content-length":
                if length and length != value.strip():
                    raise HttpError(400, "Content-Length is said twice")
                length = value.strip()
            case "content-type":
                content_type = value.partition(";")[0].strip().lower()
            case "transfer-encoding":
                raise HttpError(501, "Transfer-Encoding: send a Content-Length")
            case "connection":
                close = close or "close" in value.lower()
            case "expect":
                expects = value.strip().lower() == "100-continue"
    if method == "POST" and not length:
        raise HttpError(411, "Content-Length is missing")
    if length and not (length.isdigit() and len(length) <= 12):
        raise HttpError(400, f"Content-Length {length[:20]!r} is no number")
    if int(length or 0) > body_bytes_max:
        raise HttpError(413, f"the body is larger than {body_bytes_max} bytes")
    return _Head(method, target.partition("?")[0], content_type, int(length or 0), close, expects)
