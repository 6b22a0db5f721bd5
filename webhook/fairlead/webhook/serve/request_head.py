"""The head of an HTTP/1.1 request: method, path, content type, length of the body. Source: RFC 9112."""

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
    """The client wants the connection closed after the answer."""
    expects_continue: bool


class _Collector:
    """What llhttp calls while it parses."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True


@lru_cache(maxsize=256)
def parse_head(head: bytes, body_bytes_max: int) -> RequestHead:
    """head: up to and with the first empty line. Cached, since an apiserver's heads differ in little but the length.

    llhttp refuses what makes request smuggling possible: two lengths, a length beside Transfer-Encoding, lone CR or LF, folded
    lines, space before a colon. Refused here too: any Transfer-Encoding, other than ASCII, versions before 1.0 and after 1.1.
    Raises HttpError.
    """
    if not head.isascii():
        raise HttpError(400, "the head holds other than ASCII")
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        raise HttpError(501, "Upgrade is not supported: send a plain request") from None
    except httptools.HttpParserError as error:
        raise HttpError(400, f"the head is no HTTP/1.1 request: {error}") from None
    version = parser.get_http_version()
    if not collector.complete or version not in {"1.0", "1.1"}:
        raise HttpError(400, "the head is no HTTP/1.1 request")
    return _request_head(parser.get_method().decode(), version, collector, body_bytes_max)


def _request_head(method: str, version: str, collector: _Collector, body_bytes_max: int) -> RequestHead:
    content_type, length, close, expects = "", None, version == "1.0", False
    for name, value in collector.headers:
        match name.lower():
            case b"content-length":
                length = int(value)  # digits, once: llhttp has seen to that
            case b"content-type":
                content_type = value.decode().partition(";")[0].strip().lower()
            case b"transfer-encoding":
                raise HttpError(501, "Transfer-Encoding: send a Content-Length")
            case b"connection":
                close = close or b"close" in value.lower()
            case b"expect":
                expects = value.strip().lower() == b"100-continue"
    if method == "POST" and length is None:
        raise HttpError(411, "Content-Length is missing")
    if (length or 0) > body_bytes_max:
        raise HttpError(413, f"the body is larger than {body_bytes_max} bytes")
    path = collector.url.decode().partition("?")[0]
    return RequestHead(method, path, content_type, length or 0, close, expects)
