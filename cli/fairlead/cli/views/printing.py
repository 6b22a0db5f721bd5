"""How `queues`, `gangs` and `explain` print: as wide as the terminal, in full into a pipe, as JSON or YAML for programs."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from fairlead.api import texts
from fairlead.cli.printer import say, say_coloured
from fairlead.cli.views.table import GAP, Cell, Column, fit


def width() -> int | None:
    """The terminal's width; None where the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    fitted = fit(columns, [[cell._replace(text=texts.line(cell.text)) for cell in row] for row in rows], width())
    for line in fitted.lines:
        say_coloured(line, gap=" " * GAP)
    if fitted.missing:
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
