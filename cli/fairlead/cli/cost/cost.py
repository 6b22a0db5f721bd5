"""`fairlead cost`: reads prices and the ledger, makes the bill, prints it: a line per group, then what no group is charged, the total, and where
all device time went.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from fairlead.api.texts import counted
from fairlead.cli import printer
from fairlead.cli.cost import reading
from fairlead.cli.cost.reading import Priced, Window
from fairlead.cli.printer import Cell, Column, say
from fairlead.history.cost import bill, focus, window, written
from fairlead.history.cost.bill import Bill, Conservation, Line
from fairlead.history.cost.usage import Figures, Money, hours
from fairlead.history.cost.window import CostError
from fairlead.history.cost.written import amounts, number
from fairlead.history.ledger.entries import BUCKETS
from fairlead.history.prices import PriceBook, rounded

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
UNCHARGED = Column(title="UNCHARGED", right=True)
UNPRICED = Column(title="UNPRICED", right=True)
_IDLE = {"holder": "their holders", "queue": "their queues", "shared": "all by their use"}


@dataclass(frozen=True, kw_only=True)
class Cost(Priced):
    """Show what use costs: device hours, of them idle and lost, what pods requested, and charges, by queue or by what you name. Reads only.

    Exit code 0: shown. 1: prices cannot be read. 2: the question or the ledger cannot be.
    """

    by: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="GROUP[,GROUP…]",
            help="queue, namespace, user, flavor, gang, claim, node, device, unit, day or label=NAME; may be repeated. Default: queue.",
        ),
    ] = ()
    where: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="GROUP=VALUE", help="Only what has this value; may be repeated. Changes no line's charge."
        ),
    ] = ()
    window: Window = "30d"
    basis: Annotated[
        Literal["allocated", "utilised"],
        typer.Option(help="Charge the time that devices were held, or the busy part of it."),
    ] = "allocated"
    idle: Annotated[
        Literal["holder", "queue", "shared"],
        typer.Option(help="Charge idle time in claims to the holder, to its queue, or to all by their use."),
    ] = "holder"
    billing_account: Annotated[
        str, typer.Option(metavar="ID", help="With -o focus: BillingAccountId, such as the cluster's name.")
    ] = "fairlead"
    output: Annotated[
        Literal["table", "json", "csv", "focus"],
        typer.Option("--output", "-o", help="A table for people; json; csv for spreadsheets; focus: FOCUS 1.2 CSV."),
    ] = "table"

    def run(self) -> int:
        try:
            if self.output == "focus" and self.by:
                raise CostError(
                    "--by: means nothing with -o focus, which has a row per claim, device and day: leave it out"
                )
            asked = bill.Asked(
                by=window.parse_by(self.by or ("queue",)),
                where=window.parse_where(self.where),
                basis=self.basis,
                idle=self.idle,
            )
            span = window.parse(self.window, reading.now_s())
            with reading.opened(self.ledger) as reader:
                known = window.known_part(span, reader.known())
                settings = self.settings()
                book = PriceBook.of(settings.flavors)
                if known.missing:
                    say(known.missing, file=sys.stderr)
                if self.output == "focus":
                    units = focus.pricing_units(settings.flavors)
                    for line in focus.lines(reader, book, asked, known, account=self.billing_account, units=units):
                        say(line, end="")
                    return 0
                made = bill.make(reader, book, asked, known)
        except CostError as error:
            say(error, file=sys.stderr)
            return 2
        if self.output == "json":
            printer.structured(written.bill_json(made), self.output)
        elif self.output == "csv":
            say(written.bill_csv(made), end="")
        else:
            _show(made)
        return 0


def _show(bill: Bill) -> None:
    asked, unpriced = bill.asked, bool(bill.figures.unpriced)
    say(f"{bill.known.window}, charged: {asked.basis} time, idle time in claims to {_IDLE[asked.idle]}")
    columns = [*(Column(title=name.upper(), least=8, most=48) for name in asked.by), *FIGURES]
    rows = [_row(line) for line in bill.lines]
    rows.append(_total(bill))
    every: list[Line | Bill] = [*bill.lines, bill]
    if any(bill.uncharged.values()):
        columns.append(UNCHARGED)
        for row, each in zip(rows, every, strict=True):
            row.append(Cell(amounts(each.uncharged)))
    if unpriced:
        columns.append(UNPRICED)
        for row, each in zip(rows, every, strict=True):
            row.append(Cell(number(hours(each.figures.unpriced))))
    flavors = written.pod_units(bill)
    columns += [
        Column(title=f"{name.upper()} {unit.replace('-hours', '-HOURS')}", right=True) for name, unit in flavors.items()
    ]
    for row, each in zip(rows, every, strict=True):
        pods = each.figures.pods
        row += [Cell(number(pods[name].hours) if name in pods else "") for name in flavors]
    printer.table(columns, rows)
    if not bill.lines:
        say("Nothing in this window matches.")
    if unpriced:
        say("UNPRICED: hours of flavors without a price at that time; they are charged nothing.")
    if without := written.unpriced_pods(bill):
        printer.paragraph(f"Without a price at that time, and charged nothing: {'; '.join(without)}.")
    if any(line.figures.lost for line in bill.lines):
        say("LOST: the work of these hours, a part of USED, was lost to evictions.")
    if asked.where:
        say("Filtered: lines that do not match are left out, and so are charges that belong to no line.")
    say()
    conservation(bill.conservation)


def conservation(found: Conservation) -> None:
    parts = [f"{bucket} {found.percent[bucket]}" for bucket in BUCKETS if found.weighed[bucket]]
    printer.paragraph(
        f"All device time, {number(hours(found.total))} h of {counted(found.units, 'device')} on {counted(len(found.days), 'day')}, is 100.0 %: "
        f"{', '.join(parts) or 'none'}."
    )
    if found.weighed["unknown"] or found.gaps:
        say(f"Unknown: {number(hours(found.weighed['unknown']))} h. Not seen:")
        for gap in found.gaps[:GAPS_MAX]:
            say(f"  {window.shown(gap.start_us)} to {window.shown(gap.end_us)}: {gap.reason}")
        if len(found.gaps) > GAPS_MAX:
            say(f"  and {len(found.gaps) - GAPS_MAX} more; -o json shows all")


def _row(line: Line) -> list[Cell]:
    if line.kind == "use":
        names = [key or "-" for key in line.keys]
    else:
        names = list(line.keys)
        names[0] = f"({written.kind(line)}) {names[0]}".strip()
    return [
        *(Cell(name) for name in names),
        *_figures(line.figures, line.charged, held=line.kind == "use"),
    ]


def _total(bill: Bill) -> list[Cell]:
    names = ["TOTAL", *("" for _ in bill.asked.by[1:])]
    return [
        *(Cell(name, "bold") for name in names),
        *(Cell(cell.text, "bold") for cell in _figures(bill.figures, bill.charged, held=True, every=True)),
    ]


def _figures(figures: Figures, charged: Money, *, held: bool, every: bool = False) -> list[Cell]:
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
