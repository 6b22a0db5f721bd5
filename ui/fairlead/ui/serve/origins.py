"""Where a request comes from, and where a login may lead to. Pure.

A form of another site must not be sent here under the viewer's cookie, and no address of this server may lead a viewer elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

NEXT_MAX = 2000
ARRIVED = "arrived"


def foreign(headers: Mapping[str, str], *, scheme: str = "https") -> str:
    """Why a request that changes something is refused; "" where a page of this server sent it."""
    site = headers.get("Sec-Fetch-Site", "")
    if site and site != "same-origin":
        return f"the form was sent by a page of another site (Sec-Fetch-Site: {site[:40]})"
    origin, host = headers.get("Origin", ""), headers.get("Host", "")
    if not origin and not site:
        return "the request does not say which page it comes from: it has neither an Origin nor a Sec-Fetch-Site header"
    if origin == "null" and site:
        return ""  # a page without a referrer has an origin that is not named; that it is this server's own the browser says
    if origin and origin.lower() != f"{scheme}://{host}".lower():
        return f"the form was sent by a page of {origin[:200]}, and this server is {scheme}://{host[:200]}"
    return ""


def local_path(text: str, default: str = "/") -> str:
    """The path and query that are meant, on this server and no other; `default` for everything else."""
    if not text.startswith("/") or text.startswith("//") or "\\" in text or len(text) > NEXT_MAX:
        return default
    if not text.isascii() or not text.isprintable() or " " in text:
        return default
    try:
        parts = urlsplit(text)
    except ValueError:
        return default
    if parts.scheme or parts.netloc or parts.path in {"/login", "/logout"} or parts.path.startswith("//"):
        return default
    return text
