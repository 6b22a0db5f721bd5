"""One HTTP exchange without a socket: requests, responses and streams as handlers see them.

Only server.py imports aiohttp; handlers are plain functions that tests call.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from fairlead.api import texts

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Request:
    """`path` is raw (percent-encoded); `segments` are decoded."""

    method: str
    path: str
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # lower-case names
    body: bytes = b""

    @classmethod
    def of(cls, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Request:
        path, _, query = target.partition("?")
        values = {name: tuple(found) for name, found in parse_qs(query, keep_blank_values=True).items()}
        return cls(method, path, values, {name.lower(): value for name, value in (headers or {}).items()}, body)

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(unquote(part) for part in self.path.split("/") if part)

    def param(self, name: str) -> str:
        return self.query.get(name, ("",))[0]

    def flag(self, name: str) -> bool:
        """As Go reads a boolean query parameter: present and not false or 0."""
        return name in self.query and self.param(name).lower() not in {"false", "0"}

    def number(self, name: str) -> int | None:
        """None when not given. Raises ValueError with Go's text."""
        value = self.param(name)
        if not value:
            return None
        if not re.fullmatch(r"[+-]?\d{1,18}", value, re.ASCII):
            raise ValueError(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return int(value)

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "")

    @property
    def content_type(self) -> str:
        """The media type alone, lower-case; "" when not given."""
        return self.headers.get("content-type", "").split(";")[0].strip().lower()


@dataclass
class Response:
    """A whole answer."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass
class Stream:
    """A streamed answer (a watch). `chunks` ends when the watch does."""

    chunks: AsyncGenerator[bytes, None]
    content_type: str = JSON
    status: int = 200
    warnings: list[str] = field(default_factory=list)


def encode(value: Any) -> bytes:
    """JSON as Go writes it: no spaces."""
    return _encode(value)


def json_response(value: Any, status: int = 200) -> Response:
    return Response(status, encode(value))


def text_response(text: str, status: int = 200) -> Response:
    return Response(status, text.encode(), TEXT)


def warning_header(text: str) -> str | None:
    """The value of a Warning header; None for a text with control characters, which a real apiserver leaves out, too."""
    if texts.plain(text) != text:
        return None
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'299 - "{quoted}"'
