"""The head of an HTTP/1.1 request: method, path, content type, length of the body. Source: RFC 9112."""

from __future__ import annotations

from functools import lru_cache

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


@lru_cache(maxsize=256)
def parse_head(head: bytes, body_bytes_max: int) -> RequestHead:
    """head: up to and with the first empty line. Cached, since an apiserver's heads differ in little but the length.

    Raises HttpError.
    """
    try:
        first, *lines = head.removesuffix(HEAD_END).decode("ascii").split("\r\n")
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
    return RequestHead(method, target.partition("?")[0], content_type, int(length or 0), close, expects)
