"""HTTP/1.1 to one server: a request out, its whole answer in, over connections that are kept for the next request.

What an apiserver's client needs and no more, on asyncio's transports: a general client takes more time for a small write than
the write's TLS does. Answers are parsed by llhttp (httptools). Watches, and servers behind a proxy, are aiohttp's (`transport`).
Invariants:
- A connection carries one request at a time, and a second one only after the whole answer to the first: one that was given up,
  by its caller or a timeout, is closed.
- At most `limit` requests are under way; the others wait for their turn, in order.
- Nothing is sent twice. `Stale` says that a kept connection was closed before a byte of the answer came: the caller knows
  whether the request may be repeated.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlencode, urlsplit

import httptools

from fairlead.bounded import unpack
from fairlead.bounded.limits import UnreadableError

KEPT_S = 15.0  # unused: a load balancer may close a connection without a word, minutes later
BODY_MAX_BYTES = 2**31


class ExchangeError(Exception):
    """No answer that can be read."""


class Stale(ExchangeError):  # noqa: N818 - says what the connection was
    """The server closed a kept connection before it answered: most likely before it saw the request."""


class Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None


class Exchange:
    """Connections to one server. `url` may have a path; `server_name` is what its certificate must name, if not the host."""

    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None, server_name: str | None, user_agent: str, limit: int
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url}: not the http or https URL of a server")
        self._host, self._port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._server_name = (server_name or self._host) if self._tls is not None else None
        self._prefix = parts.path.rstrip("/")
        host = parts.netloc.rpartition("@")[2]
        self._common = f" HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {user_agent}\r\nAccept: application/json\r\n"
        _check_one_line(self._common.replace("\r\n", ""))
        self._slots = asyncio.Semaphore(limit)
        self._kept: list[_Connection] = []  # the one that was used last, last
        self._open: set[_Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None

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
        """Raises ExchangeError, TimeoutError and OSError (ssl.SSLError among them). `path` is quoted already."""
        message = self._message(method, path, params, headers, body)
        async with asyncio.timeout(timeout_s), self._slots:
            connection = await self._connection()
            try:
                answer = await connection.exchange(message)
            except BaseException:
                connection.abort()
                raise
            if connection.reusable:
                self._keep(connection)
            else:
                connection.abort()
            return answer

    async def close(self, timeout_s: float) -> None:
        """Ends every connection; returns when they are gone, or the time is up."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._kept.clear()
        still = list(self._open)
        for connection in still:
            connection.abort()
        if still:
            await asyncio.wait([connection.gone for connection in still], timeout=timeout_s)

    def _message(
        self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], body: bytes | None
    ) -> bytes:
        query = f"?{urlencode(params, quote_via=quote)}" if params else ""
        lines = f"{method} {self._prefix}{path}{query}"
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        _check_one_line(lines, *headers.values())
        if method == "GET":
            fields += "Accept-Encoding: gzip\r\n"
        if body is None:
            if method not in {"GET", "HEAD"}:
                fields += "Content-Length: 0\r\n"
            return f"{lines}{self._common}{fields}\r\n".encode("latin-1")
        return f"{lines}{self._common}{fields}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body

    async def _connection(self) -> "_Connection":
        """The kept one that was used last, or a new one. Raises OSError."""
        while self._kept:
            kept = self._kept.pop()
            if kept.usable:
                return kept
        loop = asyncio.get_running_loop()
        made = _Connection(loop, self._open)
        await loop.create_connection(
            lambda: made, self._host, self._port, ssl=self._tls, server_hostname=self._server_name
        )
        return made

    def _keep(self, connection: "_Connection") -> None:
        loop = asyncio.get_running_loop()
        connection.kept_since = loop.time()
        self._kept.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(KEPT_S, self._drop_unused, loop)

    def _drop_unused(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = None
        now = loop.time()
        for connection in self._kept:
            if connection.kept_since + KEPT_S <= now:
                connection.abort()
        self._kept = [connection for connection in self._kept if connection.usable]
        if self._kept:
            due = min(connection.kept_since for connection in self._kept) + KEPT_S
            self._sweep = loop.call_at(due, self._drop_unused, loop)


class _Connection(asyncio.Protocol):
    """One connection. Its `on_…` methods are called by the parser."""

    def __init__(self, loop: asyncio.AbstractEventLoop, opened: "set[_Connection]") -> None:
        self.kept_since = 0.0
        self.reusable = False  # after an answer: whether it may carry another request
        self.gone = loop.create_future()
        self._loop = loop
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[Answer] | None = None
        self._parser: Any = None
        self._used = False
        self._begun = False  # a byte of the answer has come
        self._chunks: list[bytes] = []
        self._size = 0
        self._retry_after: str | None = None
        self._gzip = False
        self._ends_with_connection = True  # no header says where the body ends
        self._in_body = False

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, message: bytes) -> Answer:
        """Raises ExchangeError and OSError; the connection is of no use then, nor when this is cancelled."""
        if self._transport is None:
            raise Stale("the server closed the connection")
        self.reusable = self._begun = False
        self._parser = httptools.HttpResponseParser(self)
        answered: asyncio.Future[Answer] = self._loop.create_future()
        self._answered = answered
        self._transport.write(message)
        answer = await answered
        self._used = True
        return answer

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._opened.add(self)

    def data_received(self, data: bytes) -> None:
        if self._answered is None:  # nothing was asked: what comes belongs to no request
            self.reusable = False
            self.abort()
            return
        self._begun = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ExchangeError(f"the answer is no HTTP/1.1: {error}"))
            self.abort()

    def eof_received(self) -> None:
        """The transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.reusable = False
        self._opened.discard(self)
        if self._in_body and self._ends_with_connection and exc is None:
            self.on_message_complete()
            self.reusable = False
        elif self._used and not self._begun:
            self._fail(Stale("the server closed the connection"))
        elif exc is not None:
            self._fail(exc)
        else:
            self._fail(ExchangeError("the server closed the connection in the middle of its answer"))
        if not self.gone.done():
            self.gone.set_result(None)

    def _fail(self, error: Exception) -> None:
        answered, self._answered = self._answered, None
        if answered is not None and not answered.done():
            answered.set_exception(error)

    # -- called by the parser --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answered is None:  # more than was asked for
            self.reusable = False
            self.abort()
        self._chunks = []
        self._size = 0
        self._retry_after = None
        self._gzip = False
        self._ends_with_connection = True
        self._in_body = False

    def on_header(self, name: bytes, value: bytes) -> None:
        match len(name):  # few headers have these lengths
            case 11 if name.lower() == b"retry-after":
                self._retry_after = value.decode("latin-1")
            case 14 if name.lower() == b"content-length":
                self._ends_with_connection = False
            case 16 if name.lower() == b"content-encoding":
                self._gzip = value.strip().lower() == b"gzip"
            case 17 if name.lower() == b"transfer-encoding":
                self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > BODY_MAX_BYTES:
            self._fail(ExchangeError(f"the answer is larger than {BODY_MAX_BYTES} bytes"))
            self.abort()
            return
        self._chunks.append(data)

    def on_message_complete(self) -> None:
        self._in_body = False
        status = self._parser.get_status_code()
        if 100 <= status < 200:  # more is to come
            return
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        answered, self._answered = self._answered, None
        if answered is None or answered.done():
            self.abort()
            return
        if self._gzip:
            try:
                body = unpack.whole(body, BODY_MAX_BYTES)
            except UnreadableError as error:
                answered.set_exception(ExchangeError(f"the answer cannot be decompressed: {error}"))
                return
        self.reusable = self.usable and bool(self._parser.should_keep_alive())
        answered.set_result(Answer(status, body, self._retry_after))


def _check_one_line(*texts: str) -> None:
    for text in texts:
        if "\r" in text or "\n" in text:
            raise ValueError(f"{text!r} would be more than one line of a request's head")
