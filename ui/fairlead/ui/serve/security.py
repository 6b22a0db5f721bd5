"""What protects a reader: headers of every answer, and which server a request is meant for. Pure.

A page of another site can make a browser send requests to loopback under that site's name (DNS rebinding); it cannot make it send
another Host header. So only requests to loopback's own names are answered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
STRICT: Final = "max-age=31536000"
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


def allowed_hosts(port: int) -> frozenset[str]:
    """What the Host header of a request to loopback at this port may be."""
    return frozenset(f"{name}:{port}" for name in LOOPBACK) | (frozenset(LOOPBACK) if port == 80 else frozenset())


def headers_for(*, private: bool, hosts: Collection[str] | None) -> Mapping[str, str]:
    """The headers of a server that is `private` to those who log in. Its forms need their own origin named, which no-referrer keeps back. Where it
    has names of its own, browsers use nothing but TLS with them from then on; not under names that other servers share, as localhost.
    """
    if not private:
        return HEADERS
    named = {} if hosts is None else {"Strict-Transport-Security": STRICT}
    return {**HEADERS, "Referrer-Policy": "same-origin", **named}
