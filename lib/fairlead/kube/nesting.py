"""JSON that is nested beyond reason, cut before anything walks it.

Opaque parameters of a claim may be nested 5,000 levels deep within the API's 10 KiB. Decoding, comparing or encoding such a value takes a level of
Python's stack for each, so one claim of one tenant would end whatever watches claims. What lies deeper than DEPTH_MAX reads as null. No
configuration that a driver takes is so deep, so that nothing which can be used is lost.
"""

from __future__ import annotations

import re
from typing import Final

DEPTH_MAX: Final = 128
_PLACE: Final = b'"parameters"'
"""Only opaque parameters are of any shape; every other field has a schema, which bounds its depth."""
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_OPENING: Final = b"[{"


def bounded(body: bytes) -> bytes:
    """The same JSON, without what is nested too deeply; `body` itself where nothing is."""
    if _PLACE not in body or body.count(b"{") + body.count(b"[") <= DEPTH_MAX:
        return body
    return cut(body)


def cut(body: bytes) -> bytes:
    """The body as `bounded` leaves it, whatever it holds. What is not closed is no JSON: it ends where it is too deep."""
    kept: list[bytes] = []
    depth = copied = start = 0
    for match in _TOKEN.finditer(body):
        at = match.start()
        token = body[at : at + 1]
        if token == b'"':
            continue
        if token in _OPENING:
            if depth == DEPTH_MAX:
                start = at
            depth += 1
        else:
            depth -= 1
            if depth == DEPTH_MAX:
                kept += (body[copied:start], b"null")
                copied = at + 1
    if depth > DEPTH_MAX:
        return b"".join((*kept, body[copied:start]))
    return b"".join((*kept, body[copied:])) if kept else body
