"""A comparison as a table for people."""

from __future__ import annotations

from fairlead.cli.printer import say
from fairlead.cli.views import printing
from fairlead.cli.views.table import Cell, Column
from fairlead.engine.forecast.what_if import Comparison
from fairlead.ui.what_if import written

COLUMNS = (
    Column(title="GANG", least=16, most=64),
    Column(title="QUEUE", least=8, most=32),
    Column(title="BEFORE", right=True),
    Column(title="AFTER", right=True),
    Column(title="CHANGE", right=True),
)
SHARES = (
    Column(title="QUEUE", least=8, most=40),
    Column(title="FLAVOR", least=6, most=32),
    *(Column(title=name.upper(), right=True) for name in written.SHARES[2:]),
)
_COLOURS = {True: "green", False: "red", None: ""}


def show(found: Comparison) -> None:
    shown = written.shown(found)
    say(shown.headline)
    if shown.starts:
        printing.table(
            COLUMNS,
            [
                [
                    Cell(row.gang),
                    Cell(row.queue),
                    Cell(row.before),
                    Cell(row.after),
                    Cell(row.change, _COLOURS[row.better]),
                ]
                for row in shown.starts
            ],
        )
    if shown.more:
        say(f"(and {shown.more} more; -o json shows all)")
    for line in shown.evicted:
        printing.paragraph(line)
    if shown.shares:
        printing.paragraph("Fair shares that change:")
        printing.table(SHARES, [[Cell(value) for value in row] for row in shown.shares])
    for name, line in shown.figures:
        say(f"{name + ':':<14} {line}")
    printing.paragraph(shown.note)
