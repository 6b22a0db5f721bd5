"""The one printer: what the command line writes to a terminal, without characters of others that steer it (`fairlead.api.texts`).

Names, reasons and messages come from tenants, and from whoever answers as the apiserver. Colours are this program's: they are added here, around texts
that have lost theirs. `tests/test_contracts.py` finds a print beside this one.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable
from typing import TextIO

import typer

from fairlead.api.texts import plain


def say(*values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Prints like `print`, without characters that steer a terminal."""
    print(plain(sep.join(map(str, values))), end=end, file=file, flush=flush)


def say_coloured(cells: Iterable[tuple[str, str]], *, gap: str = "") -> None:
    """A line of texts with a gap between them, each with a colour, "bold" or "". `typer.echo` removes colours where the output is no terminal."""
    colours = not os.environ.get("NO_COLOR")
    parts = (_coloured(plain(text), colour if colours else "") for text, colour in cells)
    typer.echo(gap.join(parts).rstrip())


def _coloured(text: str, colour: str) -> str:
    if not colour:
        return text
    return typer.style(text, bold=True) if colour == "bold" else typer.style(text, fg=colour)


def fail(error: BaseException) -> None:
    """An error that nobody awaited, with where it was raised: its message may hold others' texts."""
    say("".join(traceback.format_exception(error)), end="", file=sys.stderr)
