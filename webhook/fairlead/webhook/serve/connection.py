"""One HTTP/1.1 connection, as an apiserver sends it to a webhook: requests with a body in, one answer each.

Reviews and TLS play no part: `handle` answers a whole request at once, or later. A web framework would take more time for an
answer than the verdict does. The bytes of a request are collected here and its head is parsed by llhttp, one head
at a time, because httptools cannot pause: fed the whole stream, it would parse requests before those ahead of them are answered.

Anything but a plain request is an attack or a mistake (RFC 9112):
- llhttp, in its strict mode, rejects folded header fields, bare CR or LF, white space before a colon, a second Content-Length, one
  beside Transfer-Encoding, and numbers with a sign, prefix or comma;
- rejected here: other bytes than ASCII, a request line with more than two spaces or another version, any Transfer-Encoding, a POST
  without Content-Length, and a head that ends elsewhere for llhttp than for the caller. So no two readers of the bytes can
  disagree on where a request ends (request smuggling).
A fresh parser for each head: nothing of one request reaches the next. An Upgrade is not taken up (RFC 9110, 7.8).

Keeps: an answer is sent before the next request is parsed; how the bytes are split into reads changes no answer; nothing is read
after an answer that closes the connection; every state has a deadline (`expire` ends a connection that is late).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import cast

import httptools
import msgspec

from fairlead.webhook.serve.limits import HEAD_BYTES_MAX, Limits

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
    """The client asks for the connection to be closed after the answer."""


class Answer(msgspec.Struct, frozen=True):
    body: bytes
    status: int = 200
    content_type: str = "application/json"


Handle = Callable[[Request], Answer | Awaitable[Answer]]
Refuse = Callable[[int, str], bytes]
"""The body of an error's answer, by status and reason; called once per error, so that the server can count them."""


DECODED_FACTOR = 4
"""How much more memory a review takes decoded than as bytes."""
CLOSE = "Connection: close\r\n"
RETRY_AFTER = "Retry-After: 1\r\n"
"""With a 503: an apiserver then asks again by itself, within the webhook's timeout."""


class Connection(asyncio.Protocol):
    """proven: whether the connection has carried a review; one that has not may be idle for as long as a head may take, only.
    settled: called when an answer that was made later is sent, or a client reads its answers again; buffered_bytes has changed.
    """

    def __init__(
        self,
        handle: Handle,
        refuse: Refuse,
        limits: Limits,
        clock: Callable[[], float],
        *,
        proven: Callable[[], bool] = lambda: True,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        self._handle, self._refuse, self._limits, self._clock = handle, refuse, limits, clock
        self._proven, self._settled = proven, settled
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._searched = 0
        """Bytes of the buffer in which no head ends."""
        self._head: RequestHead | None = None
        self._answering: asyncio.Task[None] | None = None
        self._answer: Awaitable[Answer] | None = None
        self._answering_bytes = 0
        self._blocked = False
        """Whether the client does not read its answers: no request of it is answered until it does."""
        self._draining = False
        self._closing = False
        self._paused = False
        """Whether no more is read until the request in flight is answered."""
        self.deadline = 0.0

    # -- called by the event loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self.deadline = self._clock() + self._limits.head_s

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._buffer += data
        if self._answering is None and not self._blocked:
            self._advance()
        waits = self._answering is not None or self._blocked
        if waits and len(self._buffer) > HEAD_BYTES_MAX + self._limits.body_bytes:
            self._pause_reading()  # the client sends more requests before it has an answer

    def pause_writing(self) -> None:
        self._blocked = True
        self.deadline = min(self.deadline, self._clock() + self._limits.body_s)

    def resume_writing(self) -> None:
        self._blocked = False
        if self._closing or self._transport is None:
            return
        self.deadline = self._clock() + self._idle_s
        self._advance_and_read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._give_up()

    # -- called by the server --------------------------------------------------------------------------------------

    @property
    def buffered_bytes(self) -> int:
        """What the connection holds in memory: requests that are not answered yet, decoded or not."""
        return len(self._buffer) + self._answering_bytes

    def shed(self) -> None:
        """End the connection, since the server has no room for what it holds; the client may try again."""
        if self._answering is None and self._buffer and self._transport is not None and not self._closing:
            self._fail(HttpError(503, "the server has no room for the body now; try again"))
        else:
            self.abort()

    def expire(self, now: float) -> None:
        """End the connection if it is late."""
        if now < self.deadline:
            return
        if self._answering is None and self._head is not None:
            self._fail(HttpError(408, f"the body did not arrive within {self._limits.body_s:g} s"))
        else:
            self.abort()

    def drain(self) -> asyncio.Task[None] | None:
        """Close as soon as the request in flight is answered; that answer's task, if there is one."""
        self._draining = True
        if self._answering is None and self._transport is not None:
            self._closing = True
            self._transport.close()
        return self._answering

    def abort(self) -> None:
        transport, self._transport = self._transport, None
        self._give_up()
        if transport is not None:
            transport.abort()

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def _idle_s(self) -> float:
        return self._limits.idle_s if self._proven() else self._limits.head_s

    def _give_up(self) -> None:
        """Forget what is buffered, and the answer that is being made."""
        self._buffer = bytearray()
        if self._answering is not None:
            self._answering.cancel()
            if inspect.iscoroutine(self._answer) and inspect.getcoroutinestate(self._answer) == inspect.CORO_CREATED:
                self._answer.close()  # its task has not begun, and will not
            self._answering, self._answer, self._answering_bytes = None, None, 0

    def _advance(self) -> None:
        """Answer every request that has arrived whole."""
        while self._buffer and self._answering is None and not self._blocked and self._transport is not None:
            try:
                request = self._next_request()
            except HttpError as error:
                self._fail(error)
                return
            if request is None:
                return
            self.deadline = self._clock() + self._limits.answer_s
            answer = self._handle(request)
            if isinstance(answer, Answer):
                self._send(answer, close=request.close)
            else:
                self._answering_bytes = DECODED_FACTOR * len(request.body)
                self._answer = answer
                self._answering = asyncio.ensure_future(self._answer_later(answer, close=request.close))

    def _next_request(self) -> Request | None:
        """The next request, if all of it has arrived. Raises HttpError."""
        head = self._head
        if head is None:
            head = self._head = self._next_head()
            if head is None:
                return None
            if len(self._buffer) < head.body_bytes:
                self.deadline = self._clock() + self._limits.body_s
                if head.expects_continue and self._transport is not None:
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if len(self._buffer) < head.body_bytes:
            return None
        body = self._take(head.body_bytes)
        self._head = None
        return Request(head.method, head.path, head.content_type, body, head.close)

    def _next_head(self) -> RequestHead | None:
        """The next request's head, if all of it has arrived. Raises HttpError."""
        end = self._buffer.find(HEAD_END, max(0, self._searched - len(HEAD_END) + 1))
        if end > HEAD_BYTES_MAX or (end < 0 and len(self._buffer) >= HEAD_BYTES_MAX + len(HEAD_END)):
            raise HttpError(431, f"the head is larger than {HEAD_BYTES_MAX} bytes")
        if end < 0:
            if self._searched == 0:  # these are the first bytes of the head
                self.deadline = min(self.deadline, self._clock() + self._limits.head_s)
            self._searched = len(self._buffer)
            return None
        self._searched = 0
        return parse_head(self._take(end + len(HEAD_END)), self._limits.body_bytes)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    async def _answer_later(self, answer: Awaitable[Answer], *, close: bool) -> None:
        try:
            self._send(await answer, close=close)
        finally:
            self._answering, self._answer, self._answering_bytes = None, None, 0
        if self._blocked:
            self._settled()
        else:
            self._advance_and_read()

    def _advance_and_read(self) -> None:
        self._advance()
        if self._paused and self._answering is None and not self._blocked and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        self._settled()

    def _fail(self, error: HttpError) -> None:
        self._send(Answer(self._refuse(error.status, error.reason), error.status), close=True)

    def _send(self, answer: Answer, *, close: bool) -> None:
        if self._transport is None:
            return
        self._closing = close or self._draining
        more = f"{CLOSE if self._closing else ''}{RETRY_AFTER if answer.status == 503 else ''}"
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\n{more}\r\n"
        )
        self.deadline = self._clock() + (self._limits.body_s if self._closing else self._idle_s)
        self._transport.write(head.encode() + answer.body)
        if self._closing:
            self._buffer.clear()
            if self._transport is not None:
                self._transport.close()


HEAD_END = b"\r\n\r\n"


class HttpError(Exception):
    """The bytes cannot be answered as a request; the connection ends after the error's answer."""

    def __init__(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)


class RequestHead(msgspec.Struct, frozen=True):
    method: str
    path: str
    content_type: str
    body_bytes: int
    close: bool
    """The client asks for the connection to be closed after the answer."""
    expects_continue: bool


class _Events:
    """What llhttp reports of one head; it calls the methods by these names."""

    def __init__(self) -> None:
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value.strip()))

    def on_headers_complete(self) -> None:
        self.complete = True


@lru_cache(maxsize=64)
def parse_head(head: bytes, body_bytes_max: int) -> RequestHead:
    """head: up to and with the first empty line. Cached, since an apiserver's heads differ in little but the length.

    Raises HttpError.
    """
    method, target, version, fields = _parse(head)
    if version not in {b"1.1", b"1.0"} or not head.startswith(b"%s %s HTTP/%s\r\n" % (method, target, version)):
        raise HttpError(400, "the first line is no HTTP/1.1 request")
    content_type, length, close, expects_continue = b"", b"", version == b"1.0", False
    for name, value in fields:
        match name:
            case b"content-length":
                length = value
            case b"content-type":
                content_type = value.partition(b";")[0].strip().lower()
            case b"connection":
                close = close or b"close" in value.lower()
            case b"expect":
                expects_continue = value.lower() == b"100-continue"
    if method == b"POST" and not length:
        raise HttpError(411, "Content-Length is missing")
    if int(length or 0) > body_bytes_max:
        raise HttpError(413, f"the body is larger than {body_bytes_max} bytes")
    path = target.partition(b"?")[0].decode()
    return RequestHead(method.decode(), path, content_type.decode(), int(length or 0), close, expects_continue)


def _parse(head: bytes) -> tuple[bytes, bytes, bytes, list[tuple[bytes, bytes]]]:
    """Method, target, version and header fields, names in lower case. Raises HttpError."""
    if not head.isascii():
        raise HttpError(400, "the head holds other than ASCII")
    events = _Events()
    parser = httptools.HttpRequestParser(events)
    fault, ends_early = "", False
    try:
        parser.feed_data(head[:-1])
        ends_early = events.complete
        parser.feed_data(head[-1:])
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        fault = str(error)
    if any(name == b"transfer-encoding" for name, _ in events.fields):
        raise HttpError(501, "Transfer-Encoding: send a Content-Length")
    if fault or ends_early or not events.complete:
        raise HttpError(400, f"no plain HTTP/1.1 request: {fault or 'the head does not end with its first empty line'}")
    return parser.get_method(), events.target, parser.get_http_version().encode(), events.fields
