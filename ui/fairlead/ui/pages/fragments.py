"""Pages as trees of fragments: the elements that a live page replaces one by one; pure.

A template marks them: `{% live "count" %}<p id="count">…</p>{% endlive %}`, one element that has that id. Marks are control characters, which
`render.visible` keeps out of every value, so nothing in the cluster can forge one. Fragments lie inside one another: the page's `main`, in it
the list of nodes, in it each node. Of two renderings of a page only what differs is sent: a fragment whose own text, without the
fragments in it, is the same is not sent, but those of them that differ are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from markupsafe import Markup

_BEGIN, _NAMED, _END = "\x02", "\x03", "\x04"
_MARK = re.compile("\x02[^\x03]*\x03|\x04")
_ID = re.compile(r"[a-z][a-z0-9-]*")


class Marked(Markup):
    """Markup with marks, made by templates: the only text in which control characters stay."""


WHO: Final = Marked("\x05")  # where it says who is logged in
STREAM: Final = Marked("\x06")  # where a live page has what opens its stream
THEME: Final = Marked("\x07")  # attributes of the root element: light or dark, if the reader chose


class Live(Extension):
    """`{% live ID %}…{% endlive %}`. Raises ValueError for an ID that is not of a-z, 0-9 and hyphens."""

    tags = {"live"}  # noqa: RUF012 - jinja2's interface

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        name = parser.parse_expression()
        body = parser.parse_statements(("name:endlive",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark", [name]), [], [], body).set_lineno(line)

    def _mark(self, name: str, caller: Callable[[], str]) -> Markup:
        return mark(name, caller())


def mark(name: str, element: str) -> Marked:
    if not _ID.fullmatch(name):
        raise ValueError(f"a fragment cannot be called {name!r}: a letter, then a-z, 0-9 and hyphens")
    return Marked(f"{_BEGIN}{name}{_NAMED}{element.strip()}{_END}")


def name_of(kind: str, *values: Any) -> str:
    """An id for what is called anything: `kind`, and a hash of the values."""
    return f"{kind}-{hashlib.blake2s(repr(values).encode(), digest_size=6).hexdigest()}"


def plain(marked: str, *, who: str = "", stream: str = "", theme: str = "") -> str:
    """The page itself, with what is each reader's own: `who` asks, what opens its `stream`, and its `theme`."""
    return _MARK.sub("", marked).replace(WHO, who).replace(STREAM, stream).replace(THEME, theme)


@dataclass(frozen=True, eq=False)
class Fragment:
    """An element with its id; the page as a whole has ""."""

    name: str
    parts: list[str | Fragment] = field(default_factory=list)

    @cached_property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @cached_property
    def own(self) -> tuple[str, ...]:
        """Its text without the fragments in it, but for their names."""
        return tuple(part if isinstance(part, str) else _BEGIN + part.name for part in self.parts)

    @cached_property
    def inner(self) -> tuple[Fragment, ...]:
        return tuple(part for part in self.parts if isinstance(part, Fragment))

    def every(self) -> Iterator[Fragment]:
        """Those in it, and in those; each before what it holds."""
        for each in self.inner:
            yield each
            yield from each.every()


def tree(marked: str) -> Fragment:
    """Raises ValueError where two fragments have one name."""
    page = Fragment("")
    open_ = [page]
    names: set[str] = set()
    for number, begun in enumerate(marked.split(_BEGIN)):
        first, *rest = begun.split(_END)
        if number:
            name, _, first = first.partition(_NAMED)
            if name in names:
                raise ValueError(f"two fragments are called {name!r}")
            names.add(name)
            found = Fragment(name)
            open_[-1].parts.append(found)
            open_.append(found)
        if first:
            open_[-1].parts.append(first)
        for part in rest:
            open_.pop()
            if part:
                open_[-1].parts.append(part)
    return page


def changed(before: Fragment, now: Fragment) -> Iterator[Fragment]:
    """What of two renderings of a page is to be replaced; what is outside of all fragments never changes."""
    known = {each.name: each for each in before.inner}
    for each in now.inner:
        other = known.get(each.name)
        if other is None or other.own != each.own:
            yield each
        else:
            yield from changed(other, each)
