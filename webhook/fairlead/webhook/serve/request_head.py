"""The head of an HTTP/1.1 request, parsed by llhttp: method, path, content type, length of the body.

Pure: the bytes of one whole head in, a RequestHead or an HttpError out. Anything but a plain request is an attack or a mistake:

- llhttp, in its strict mode, rejects folded header fields, bare CR or LF, white space before a colon, a second Content-Length, one
  beside Transfer-Encoding, and numbers with a sign, prefix or comma;
- rejected here: other bytes than ASCII, a request line with more than two spaces or another version, any Transfer-Encoding, a POST
  without Content-Length, and a head that ends elsewhere for llhttp than for the caller. So no two readers of the bytes can
  disagree on where a request ends (request smuggling).

A fresh parser for each head: nothing of one request reaches the next. An Upgrade is not taken up (RFC 9110, 7.8).
Source: RFC 9112.
"""

from __future__ import annotations

from functools import lru_cache

import httptools
import msgspec

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
