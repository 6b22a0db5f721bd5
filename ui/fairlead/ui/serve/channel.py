"""One live page for all its viewers: its last rendering, what changed when, and the messages that bring a viewer up to it; no I/O.

A viewer has a revision; `since` says what to send for it to have the newest. So a viewer that reads slowly misses nothing and needs
no buffer of its own, and one that comes back after a break gets what changed meanwhile. A revision that is not known gets the whole page.

Each message is compressed once for all who get it (RFC 1951, RFC 1952): it is a run of deflate blocks that ends at a byte and refers to
nothing before it, so messages can follow one another in any order. What differs between streams is the checksum at the end.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import struct
import zlib
from collections import deque
from functools import cached_property
from typing import Final

from fairlead.ui.pages.fragments import Fragment, changed, tree
from fairlead.ui.serve.answers import Shown

REVISIONS_KEPT = 120


class Channel:
    """`shown`: the page as it was rendered last. `of`: what it was rendered from, compared by identity."""

    def __init__(self) -> None:
        self.shown: Shown | None = None
        self.of: object = None
        self.made = -math.inf  # when of a monotonic clock
        self.viewers = 0
        self.lock = asyncio.Lock()
        self.news = asyncio.Event()  # is set once, at the next revision
        self._serial: Final = secrets.token_hex(4)
        self._page = Fragment("")
        self._revision = 0
        self._changes: deque[tuple[int, frozenset[str]]] = deque(maxlen=REVISIONS_KEPT)
        self._messages: dict[str, Chunk] = {}

    @property
    def revision(self) -> str:
        """The revision of the page as it is now: no other rendering of any page has it."""
        return f"{self._serial}-{self._revision}"

    def update(self, shown: Shown, of: object) -> None:
        """Raises ValueError for a page whose fragments are not right."""
        page = tree(shown.marked)
        names = frozenset(each.name for each in changed(self._page, page))
        first, self.shown, self.of, self._page = self.shown is None, shown, of, page
        if first or not names:
            return
        self._revision += 1
        self._changes.append((self._revision, names))
        self._messages.clear()
        self.news.set()
        self.news = asyncio.Event()

    def since(self, revision: str) -> Chunk | None:
        """What a viewer of that revision lacks; None: nothing."""
        if revision == self.revision:
            return None
        known = self._messages.get(revision)
        if known is None:
            if len(self._messages) >= REVISIONS_KEPT:
                self._messages.clear()  # revisions are what viewers say they have
            known = self._messages[revision] = Chunk(message(self.revision, self._lacking(revision)))
        return known

    def _lacking(self, revision: str) -> list[Fragment]:
        serial, _, number = revision.partition("-")
        at = int(number) if number.isascii() and number.isdigit() and len(number) < 12 else -1
        if serial != self._serial or not (self._changes and self._changes[0][0] - 1 <= at <= self._revision):
            return list(self._page.inner)
        names = set[str]().union(*(names for number, names in self._changes if number > at))
        return _outermost(self._page, names)


def _outermost(page: Fragment, names: set[str]) -> list[Fragment]:
    """The fragments of these names that are there, but not those inside another of them."""
    found: list[Fragment] = []
    for each in page.inner:
        if each.name in names:
            found.append(each)
        else:
            found += _outermost(each, names)
    return found


def message(revision: str, fragments: list[Fragment]) -> bytes:
    """An event of the stream. Each fragment takes the place of the element that has its id; what has focus keeps it."""
    texts = (
        f'<hx-partial hx-target="#{each.name}" hx-swap="outerMorph">{each.text}</hx-partial>' for each in fragments
    )
    return event("".join(texts), revision=revision)


def event(data: str, *, revision: str = "", retry_ms: int | None = None) -> bytes:
    lines = [f"data: {line}" for line in data.splitlines()]
    head = [f"id: {revision}"] if revision else []
    retry = [] if retry_ms is None else [f"retry: {retry_ms}"]
    return ("\n".join([*head, *retry, *lines]) + "\n\n").encode("utf-8", "replace")


HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST = b"\x03\x00"  # an empty block that ends the stream


class Chunk:
    """A part of a stream, as it is and compressed."""

    def __init__(self, plain: bytes) -> None:
        self.plain = plain

    @cached_property
    def deflated(self) -> bytes:
        made = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        return made.compress(self.plain) + made.flush(zlib.Z_FULL_FLUSH)


class Stream:
    """What to send of each chunk, in one stream. `gzip` False: the chunks as they are."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._sum = 0
        self._size = 0

    @property
    def head(self) -> bytes:
        return HEAD if self._gzip else b""

    def add(self, chunk: Chunk) -> bytes:
        if not self._gzip:
            return chunk.plain
        self._sum = zlib.crc32(chunk.plain, self._sum)
        self._size += len(chunk.plain)
        return chunk.deflated

    @property
    def end(self) -> bytes:
        return _LAST + struct.pack("<II", self._sum, self._size & 0xFFFFFFFF) if self._gzip else b""
