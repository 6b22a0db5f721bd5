"""What an import starts from and results in: documents; objects of ours, notes on what has no equal, or the faults for which nothing is written.

How much of a file is read, and how, is `fairlead.bounded`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from fairlead.api.flavor import Flavor
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.bounded import yaml_text
from fairlead.bounded.limits import UnreadableError

System = Literal["kueue", "volcano", "yunikorn", "runai"]
SHOWN_MAX = 80


@dataclass(frozen=True, slots=True)
class Source:
    """Where something was read: a file with its document, the kind and the name of the object."""

    where: str
    kind: str = ""
    name: str = ""

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.name}".strip()

    def __lt__(self, other: Source) -> bool:
        """Orders by place, document 2 before document 10."""
        return self._order < other._order

    @property
    def _order(self) -> tuple[list[tuple[int, str]], str, str]:
        parts = re.findall(r"[0-9]{1,18}|[^0-9]+|[0-9]+", self.where, re.ASCII)
        place = [(int(part), "") if part.isdecimal() and len(part) <= 18 else (-1, part) for part in parts]
        return (place, self.kind, self.name)

    def __str__(self) -> str:
        return f"{self.where}: {self.subject}" if self.subject else self.where


@dataclass(frozen=True, slots=True)
class Fault:
    """Why nothing is written: `text` says what is wrong with the value at `path`, and the next step."""

    source: Source
    path: str
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.source), self.path, self.text) if part)


@dataclass(frozen=True, slots=True)
class Note:
    """Something at `path` of the source. `about`: kind and name of the object written for it, if there is one."""

    source: Source
    path: str
    text: str
    lost: bool = True
    """Whether it has no equal; else it is only said."""
    about: tuple[str, str] | None = None

    @property
    def word(self) -> str:
        return "no equal" if self.lost else "note"

    def __str__(self) -> str:
        return ": ".join(part for part in (self.word, str(self.source), self.path, self.text) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Flavors and policies by name, queues each after its parent. `sources`: of each object, by kind and name."""

    flavors: tuple[Flavor, ...] = ()
    queues: tuple[Queue, ...] = ()
    policies: tuple[TenancyPolicy, ...] = ()
    notes: tuple[Note, ...] = ()
    sources: dict[tuple[str, str], tuple[Source, ...]] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        return sum(note.lost for note in self.notes)


class RefusedError(Exception):
    """The input cannot be imported: every fault that was found."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = tuple(dict.fromkeys(faults))
        super().__init__("\n".join(map(str, self.faults)))


def shown(value: Any) -> str:
    """A value of the input for a message: in one line, and not longer than a line."""
    if isinstance(value, dict | list):
        return f"{len(value)} {'fields' if isinstance(value, dict) else 'entries'}"
    text = repr(value[: SHOWN_MAX + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"


def plain(text: str) -> str:
    """The text in one line of printable characters, as a name from the input stands in messages and comments."""
    text = text if len(text) <= 253 else f"{text[:252]}…"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


@dataclass(frozen=True, slots=True)
class Document:
    """`where` is what messages call it: the file, and which of its documents."""

    where: str
    value: Any


def documents(text: str | bytes, where: str) -> list[Document]:
    """Those that are not empty. Raises RefusedError."""
    try:
        values = yaml_text.documents(text)
    except UnreadableError as error:
        raise RefusedError([Fault(Source(plain(where)), "", f"{error}; correct the file")]) from None
    several = len(values) > 1
    return [
        Document(f"{plain(where)}, document {number}" if several else plain(where), value)
        for number, value in enumerate(values, 1)
        if value is not None
    ]
