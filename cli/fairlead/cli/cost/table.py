"""A bill as a table: a line per group, then what no group is charged, the total, and where all device time went."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from fairlead.api.texts import counted
from fairlead.cli.printer import say
from fairlead.cli.views import printing
from fairlead.cli.views.table import Cell, Column
from fairlead.history.cost import written
from fairlead.history.cost.bill import Bill, Conservation, Line
from fairlead.history.cost.usage import Figures, hours
from fairlead.history.cost.window import shown
from fairlead.history.cost.written import amounts, number
from fairlead.history.ledger.entries import BUCKETS
from fairlead.history.prices import rounded

GAPS_MAX = 10
FIGURES = (
    Column(title="GPU-HOURS", right=True),
    Column(title="USED", right=True),
    Column(title="IDLE", right=True),
    Column(title="STARTING", right=True, dispensable=1),
    Column(title="LOST", right=True, dispensable=3),
    Column(title="NO SAMPLES", right=True, dispensable=2),
    Column(title="UTIL", right=True),
    Column(title="ALLOCATED", right=True, dispensable=5),
    Column(title="UTILISED", right=True, dispensable=4),
    Column(title="CHARGED", right=True),
)
UNPRICED = Column(title="UNPRICED", right=True)


def show(bill: Bill) -> None:
    asked, unpriced = bill.asked, bool(bill.figures.unpriced)
    say(f"{bill.known.window}, charged: {asked.basis} time, idle time in claims to {_IDLE[asked.idle]}")
    columns = [*(Column(title=name.upper(), least=8, most=48) for name in asked.by), *FIGURES]
    rows = [_row(line) for line in bill.lines]
    rows.append(_total(bill))
    if unpriced:
        columns.append(UNPRICED)
        for row, line in zip(rows, [*bill.lines, None], strict=True):
            figures = bill.figures if line is None else line.figures
            row.append(Cell(number(hours(figures.unpriced))))
    printing.table(columns, rows)
    if not bill.lines:
        say("Nothing in this window matches.")
    if unpriced:
        say("UNPRICED: hours of flavors without a price at that time; they are charged nothing.")
    if any(line.figures.lost for line in bill.lines):
        say("LOST: the work of these hours, a part of USED, was lost to evictions.")
    if asked.where:
        say("Filtered: lines that do not match are left out, and so are charges that belong to no line.")
    say()
    conservation(bill.conservation)


_IDLE = {"holder": "their holders", "queue": "their queues", "shared": "all by their use"}


def conservation(found: Conservation) -> None:
    parts = [f"{bucket} {found.percent[bucket]}" for bucket in BUCKETS if found.weighed[bucket]]
    printing.paragraph(
        f"All device time, {number(hours(found.total))} h of {counted(found.units, 'device')} on {counted(len(found.days), 'day')}, is 100.0 %: "
        f"{', '.join(parts) or 'none'}."
    )
    if found.weighed["unknown"] or found.gaps:
        say(f"Unknown: {number(hours(found.weighed['unknown']))} h. Not seen:")
        for gap in found.gaps[:GAPS_MAX]:
            say(f"  {shown(gap.start_us)} to {shown(gap.end_us)}: {gap.reason}")
        if len(found.gaps) > GAPS_MAX:
            say(f"  and {len(found.gaps) - GAPS_MAX} more; -o json shows all")


def _row(line: Line) -> list[Cell]:
    if line.kind == "use":
        names = [key or "-" for key in line.keys]
    else:
        names = list(line.keys)
        names[0] = f"({written.kind(line)}) {names[0]}".strip()
    return [*(Cell(name) for name in names), *_figures(line.figures, line.charged, held=line.kind == "use")]


def _total(bill: Bill) -> list[Cell]:
    names = ["TOTAL", *("" for _ in bill.asked.by[1:])]
    return [
        *(Cell(name, "bold") for name in names),
        *(Cell(cell.text, "bold") for cell in _figures(bill.figures, bill.total, held=True, every=True)),
    ]


def _figures(figures: Figures, charged: Mapping[str, Fraction], *, held: bool, every: bool = False) -> list[Cell]:
    """`held`: with the columns that only time in claims has. `every`: hours of all buckets, for the total."""
    utilisation = written.utilisation(figures)
    whole = figures.held if held and not every else sum(figures.weighed.values())
    own = [figures.weighed.get("used", 0), figures.weighed.get("idle", 0), figures.weighed.get("starting", 0)]
    own += [figures.lost, figures.held - figures.sampled]
    return [
        Cell(number(hours(whole)) if whole else ""),
        *(Cell(number(hours(each)) if held and figures.held else "") for each in own),
        Cell("" if utilisation is None else f"{rounded(utilisation * 100, 0)} %"),
        Cell(amounts(figures.money(buckets=figures.weighed))),
        Cell(amounts(figures.money(utilised=True)) if held else ""),
        Cell(amounts(charged)),
    ]
