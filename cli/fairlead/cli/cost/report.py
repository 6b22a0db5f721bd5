"""`fairlead report`: reads prices, wait targets and the ledger, and prints how well the fleet was used."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

import typer

from fairlead.cli import printer
from fairlead.cli.cost import reading
from fairlead.cli.cost.cost import conservation
from fairlead.cli.cost.reading import Priced, Window
from fairlead.cli.printer import Cell, Column, say
from fairlead.driver.backend.geometry import compute_slices, memory_slices
from fairlead.driver.backend.profiles import mig_tables
from fairlead.history.cost import page, report, window, written
from fairlead.history.cost.report import Size, Table
from fairlead.history.cost.window import CostError
from fairlead.history.cost.written import percent, report_json, targets, verdict
from fairlead.history.prices import PriceBook

_LEFT = frozenset({"QUEUE", "PROFILE", "WANTED"})


@dataclass(frozen=True, kw_only=True)
class Report(Priced):
    """Show how well the fleet is used: utilisation, memory, idle and fragmented time, waits, what could be smaller. Reads only.

    Exit code 0: shown. 1: prices cannot be read. 2: the question or the ledger cannot be.
    """

    window: Window = "7d"
    output: Annotated[
        Literal["text", "json", "html"],
        typer.Option(
            "--output", "-o", help="Text; json; html: one page that needs nothing else: `-o html > report.html`."
        ),
    ] = "text"

    def run(self) -> int:
        try:
            asked = window.parse(self.window, reading.now_s())
            with reading.opened(self.ledger) as reader:
                known = window.known_part(asked, reader.known())
                settings = self.settings()
                book, targets_s = PriceBook.of(settings.flavors), report.wait_targets(settings.queues)
                made = report.make(reader, book, known, tables=size_tables(), targets_s=targets_s)
        except CostError as error:
            say(error, file=sys.stderr)
            return 2
        if known.missing:
            say(known.missing, file=sys.stderr)
        if self.output == "json":
            printer.structured(report_json(made), self.output)
        elif self.output == "html":
            say(page.html(made), end="")
        else:
            _show(made)
        return 0


def size_tables() -> list[Table]:
    """The MIG sizes of all products that the driver knows."""
    found: list[Table] = []
    for profiles in mig_tables().values():
        memory, compute = memory_slices(profiles), compute_slices(profiles)
        found.append([
            Size(
                name=each.name,
                memory_bytes=each.memory_bytes,
                memory=Fraction(each.memory_slices, memory),
                compute=Fraction(each.compute_slices, compute),
            )
            for each in profiles
            if each.memory_bytes is not None
        ])  # fmt: skip
    return found


def _show(made: report.Report) -> None:
    say(f"{made.known.window}\n")
    _table(
        ["TARGET", "", "WANTED", ""],
        [[name, percent(part), wanted, verdict(met)] for name, part, wanted, met in targets(made)],
    )
    if made.unsampled:
        say(f"{percent(made.unsampled)} of the time held has no samples; it counts as busy.")
    say()
    conservation(made.conservation)
    _table(["NOT PUT TO USE", "TIME", "COST"], written.losses(made), "\n")
    if made.holders:
        _table(["IDLE HOLDER", "QUEUE", "IDLE", "OF ITS TIME", "COST"], written.holders(made), "\n")
    if made.sizing:
        _table(
            ["WOULD DO WITH LESS", "DEVICES", "HAS", "PEAK", "LOAD", "PROFILE", "FREE", "SAVED"],
            written.sizing(made),
            "\n",
        )
        if made.sizing_total > len(made.sizing):
            say(f"(and {made.sizing_total - len(made.sizing)} more)")
    if made.waiting:
        _table(["WAITS IN QUEUE", "GANGS", "P50", "P95", "TARGET OF P95", ""], written.waits(made), "\n")


def _table(head: list[str], rows: list[list[str]], before: str = "") -> None:
    say(before, end="")
    columns = [
        Column(
            title=name,
            least=0 if place else 12,
            most=0 if place else 64,
            right=bool(place) and name not in _LEFT and place < len(head) - (not name),
        )
        for place, name in enumerate(head)
    ]
    printer.table(columns, [[Cell(text) for text in row] for row in rows])
