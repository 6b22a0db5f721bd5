"""`cost` and `report`. What they do is imported when they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.cli.options import OfCluster

Window = Annotated[
    str, typer.Option(metavar="SPAN", help="30d, 2026-11-01..2026-12-01 (the end excluded), month or last-month; UTC.")
]


@dataclass(frozen=True, kw_only=True)
class Priced(OfCluster):
    """One that reads the ledger, and prices."""

    ledger: Annotated[
        str,
        typer.Option(
            metavar="DIR|URL",
            envvar="FAIRLEAD_LEDGER",
            help="Where the controller keeps the ledger. Default: $FAIRLEAD_LEDGER.",
        ),
    ] = ""
    flavors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Flavors (and Queues) in YAML, for prices. Default: those of the cluster.",
            exists=True,
            dir_okay=False,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Cost(Priced):
    """Show what use costs: device hours, of them idle and lost, and charges, by queue or by what you name. Reads only.

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
        from fairlead.cli.cost.cost import run

        return run(self)


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
        from fairlead.cli.cost.report import run

        return run(self)
