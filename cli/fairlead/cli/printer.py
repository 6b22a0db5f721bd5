"""The one printer: what the command line writes to a terminal, without characters of others that steer it (`fairlead.api.texts`).

Names, reasons and messages come from tenants, and from whoever answers as the apiserver. Colours are this program's: they are added here,
around texts that have lost theirs. `tests/test_contracts.py` finds a print beside this one.

Tables and paragraphs are as wide as the terminal, and in full into a pipe. Figures of a table are never shortened: a column says how far
it may be shortened and when it may be left out, and titles of columns that were are said.
Example: columns QUEUE (least 10) and USED (right), a width of 16 and a queue `research/vision`: `resear…ion     8`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import typer

from fairlead.api import texts
from fairlead.api.texts import plain

if TYPE_CHECKING:
    from rich.console import Console

GAP = 2
PROGRESS_AFTER_S = 2.0


def say(*values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Prints like `print`, without characters that steer a terminal."""
    _line.clear()
    print(plain(sep.join(map(str, values))), end=end, file=file, flush=flush)


def say_coloured(cells: Iterable[tuple[str, str]], *, gap: str = "") -> None:
    """A line of texts with a gap between them, each with a colour, "bold" or "". `typer.echo` removes colours where the output is no terminal."""
    _line.clear()
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


def console(**options: Any) -> Console:
    """For tables and live views of rich, whose import takes as long as a small command.

    rich takes some control characters out of texts, not ESC; what it writes itself are segments of their own kind.
    """
    from rich.console import Console
    from rich.segment import Segment

    class Printer(Console):
        def _render_buffer(self, buffer: Iterable[Segment]) -> str:
            return super()._render_buffer(
                each if each.control else Segment(plain(each.text), each.style) for each in buffer
            )

    return Printer(**options)


# -- progress ----------------------------------------------------------------------------------------------------------


class _Line:
    """The last line of the terminal, while it is that of `progress`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown = False

    def show(self, text: str) -> None:
        with self._lock:
            self._shown = True
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def clear(self) -> None:
        with self._lock:
            if self._shown:
                self._shown = False
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()


_line = _Line()


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """On a terminal: after PROGRESS_AFTER_S a line on standard error that says what goes on and since when; it goes when something is printed."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield
        return
    ended, begun_s = threading.Event(), time.monotonic()

    def tick() -> None:
        wait_s = PROGRESS_AFTER_S
        while not ended.wait(wait_s):
            _line.show(f"{doing}: {time.monotonic() - begun_s:.0f} s …")
            wait_s = 1.0

    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield
    finally:
        ended.set()
        ticking.join()
        _line.clear()


# -- output ------------------------------------------------------------------------------------------------------------


def width() -> int | None:
    """The terminal's width; None where the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    full: bool = False,
    title: bool = True,
    only: Sequence[bool] | None = None,
) -> None:
    """`full`: as wide as it is, whatever the terminal; `only`: which rows are printed, each column as wide as all of them need it."""
    shown = [[cell._replace(text=texts.line(cell.text)) for cell in row] for row in rows]
    fitted = fit(columns, shown, None if full else width())
    for line, wanted in zip(fitted.lines, (title, *(only or [True] * len(rows))), strict=True):
        if wanted:
            say_coloured(line, gap=" " * GAP)
    if fitted.missing and title:
        say(f"({', '.join(fitted.missing)}: no room; a wider terminal or -o json shows more)", file=sys.stderr)


def paragraph(text: str, *, indent: int = 0, bold: bool = False) -> None:
    """Wrapped at the terminal's width, between words; following lines are indented a little further."""
    size, lead = width(), " " * indent
    lines = [lead + text]
    if size is not None and size > indent + 20:
        lines = textwrap.wrap(
            text,
            size,
            initial_indent=lead,
            subsequent_indent=lead + ("  " if indent else ""),
            break_long_words=False,
            break_on_hyphens=False,
        )
    for line in lines:
        say_coloured([(line, "bold" if bold else "")])


def structured(value: Any, output: str) -> None:
    """Prints what `json.dumps` takes, as JSON or YAML."""
    if output == "yaml":
        import yaml  # a tenth of a second, which tables need not pay

        say(yaml.safe_dump(json.loads(json.dumps(value)), sort_keys=False, allow_unicode=True, width=4096), end="")
    else:
        say(json.dumps(value, indent=2))


# -- tables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Column:
    """`least`: to how many characters it may be shortened (0: never), `most`: beyond how many it is in any case where there is
    a width (0: never); `dispensable`: left out first, from 1 up (0: never).
    """

    title: str
    right: bool = False
    least: int = 0
    most: int = 0
    dispensable: int = 0
    sentence: bool = False  # shortened at its end, not in its middle


class Cell(NamedTuple):
    text: str
    colour: str = ""


class Fitted(NamedTuple):
    lines: tuple[tuple[Cell, ...], ...]  # the title first; padded
    missing: tuple[str, ...]  # titles of columns that had no room


def fit(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> Fitted:
    natural = [
        max([len(column.title), *(len(row[place].text) for row in rows)]) for place, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    if width is not None:
        natural = [min(wide, column.most or wide) for column, wide in zip(columns, natural, strict=True)]
    needed = [
        max(len(column.title), min(wide, column.least or wide)) for column, wide in zip(columns, natural, strict=True)
    ]
    going = sorted(
        (place for place in shown if columns[place].dispensable), key=lambda place: columns[place].dispensable
    )
    while width is not None and going and _total(needed, shown) > width:
        shown.remove(going.pop(0))
    sizes = natural if width is None else _grown(needed, natural, shown, width - _total(needed, shown))
    titles = [Cell(column.title, "bold") for column in columns]
    last = shown[-1]
    lines = tuple(
        tuple(_padded(row[place], columns[place], sizes[place], last=place == last) for place in shown)
        for row in (titles, *rows)
    )
    return Fitted(lines, tuple(column.title for place, column in enumerate(columns) if place not in shown))


def _total(sizes: Sequence[int], shown: Sequence[int]) -> int:
    return sum(sizes[place] for place in shown) + GAP * (len(shown) - 1)


def _grown(needed: Sequence[int], natural: Sequence[int], shown: Sequence[int], spare: int) -> list[int]:
    """Sizes after the spare characters were given, one each in turn, to the smallest columns that need more."""
    sizes = list(needed)
    while spare > 0:
        short = [place for place in shown if sizes[place] < natural[place]]
        if not short:
            break
        smallest = min(sizes[place] for place in short)
        for place in short:
            if sizes[place] == smallest and spare > 0:
                sizes[place] += 1
                spare -= 1
    return sizes


def _padded(cell: Cell, column: Column, size: int, *, last: bool) -> Cell:
    text = shortened(cell.text, size, sentence=column.sentence)
    if column.right:
        return Cell(text.rjust(size), cell.colour)
    return Cell(text if last else text.ljust(size), cell.colour)


def shortened(text: str, size: int, *, sentence: bool = False) -> str:
    """A sentence keeps its beginning, a name both ends: the names of one Job's pods differ at the end."""
    if len(text) <= size:
        return text
    if sentence or size < 8:
        return text[: max(0, size - 1)] + "…"
    end = (size - 1) // 3
    return f"{text[: size - 1 - end]}…{text[-end:]}"
