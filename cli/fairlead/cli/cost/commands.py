"""Flags of `cost` and `report`. Each module is imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.cli.views.commands import Context, Kubeconfig

PANEL = "Costs"
Ledger = Annotated[
    str,
    typer.Option(
        metavar="DIR|URL",
        envvar="FAIRLEAD_LEDGER",
        help="Where the controller keeps the ledger. Default: $FAIRLEAD_LEDGER.",
    ),
]
Flavors = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Flavors (and Queues) in YAML, for prices. Default: those of the cluster.",
        exists=True,
        dir_okay=False,
    ),
]
Window = Annotated[
    str, typer.Option(metavar="SPAN", help="30d, 2026-11-01..2026-12-01 (the end excluded), month or last-month; UTC.")
]


def register(app: typer.Typer) -> None:
    for command in (cost, report):
        app.command(rich_help_panel=PANEL)(command)


def cost(
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP[,GROUP…]",
            help="queue, namespace, user, flavor, gang, claim, node, device, unit, day or label=NAME; may be repeated. Default: queue.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP=VALUE", help="Only what has this value; may be repeated. Changes no line's charge."
        ),
    ] = None,
    window: Window = "30d",
    basis: Annotated[
        Literal["allocated", "utilised"],
        typer.Option(help="Charge the time that devices were held, or the busy part of it."),
    ] = "allocated",
    idle: Annotated[
        Literal["holder", "queue", "shared"],
        typer.Option(help="Charge idle time in claims to the holder, to its queue, or to all by their use."),
    ] = "holder",
    ledger: Ledger = "",
    flavors: Flavors = None,
    billing_account: Annotated[
        str, typer.Option(metavar="ID", help="With -o focus: BillingAccountId, such as the cluster's name.")
    ] = "fairlead",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[
        Literal["table", "json", "csv", "focus"],
        typer.Option("--output", "-o", help="A table for people; json; csv for spreadsheets; focus: FOCUS 1.2 CSV."),
    ] = "table",
) -> None:
    """Show what use costs: device hours, of them idle and lost, and charges, by queue or by what you name. Reads only.

    Exit code 0: shown. 1: prices cannot be read. 2: the question or the ledger cannot be.
    """
    from fairlead.cli.cost.cost import Question, run

    question = Question(by=by or (), where=where or (), window=window, basis=basis, idle=idle)
    raise typer.Exit(
        run(
            question,
            ledger=ledger,
            flavors=flavors,
            account=billing_account,
            kubeconfig=kubeconfig,
            context=context,
            output=output,
        )
    )


def report(
    window: Window = "7d",
    ledger: Ledger = "",
    flavors: Flavors = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[
        Literal["text", "json", "html"],
        typer.Option(
            "--output", "-o", help="Text; json; html: one page that needs nothing else: `-o html > report.html`."
        ),
    ] = "text",
) -> None:
    """Show how well the fleet is used: utilisation, memory, idle and fragmented time, waits, what could be smaller. Reads only.

    Exit code 0: shown. 1: prices cannot be read. 2: the question or the ledger cannot be.
    """
    from fairlead.cli.cost.report import run

    raise typer.Exit(run(window, ledger=ledger, flavors=flavors, kubeconfig=kubeconfig, context=context, output=output))
