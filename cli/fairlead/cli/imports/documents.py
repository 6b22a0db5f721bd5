"""The documents of a file, each with what messages call it. How much is read, and how, is `fairlead.bounded`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairlead.bounded import yaml_text
from fairlead.bounded.limits import UnreadableError
from fairlead.cli.imports.model import Fault, RefusedError, Source, plain


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
