"""Flags of `fairlead ledger backup | info | prune | check | claims`. What they do is imported when they are called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from fairlead.cli.printer import say

ledger_app = typer.Typer(
    help="Copy, look at, shorten and check the ledger of where GPU time went.", no_args_is_help=True
)
Ledger = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        envvar="FAIRLEAD_LEDGER",
        help="Its directory, a file that `backup` made, or postgresql://USER:PASSWORD@HOST/DATABASE.",
    ),
]
Output = Annotated[
    Literal["table", "json"], typer.Option("--output", "-o", help="A table for people; json for programs.")
]
Date = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="DATE", help="A day (UTC).")]


@ledger_app.command()
def backup(
    ledger: Ledger,
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A file that is not there yet, or an empty PostgreSQL database's URL."),
    ],
) -> None:
    """Copy it, while the controller writes: to a file, or to another database, which moves it.

    Exit code 0: copied. 2: not; nothing is left at TARGET.
    """
    from fairlead.cli.ledger.work import copy

    _exit(lambda: copy(ledger, target))


@ledger_app.command()
def info(ledger: Ledger, output: Output = "table") -> None:
    """Where it is, its version and size, who writes it, and which time it covers."""
    from fairlead.cli.ledger.work import show

    _exit(lambda: show(ledger, output))


@ledger_app.command()
def prune(
    ledger: Ledger,
    older_than: Annotated[str, typer.Option(metavar="DURATION", help="As 400d: what ended before so long ago.")],
) -> None:
    """Remove what is old, in steps that the controller does not wait for. The file keeps its size; its room is used again."""
    from fairlead.api.durations import duration_s
    from fairlead.cli.ledger.work import shorten

    try:
        age_s = duration_s(older_than)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--older-than") from None
    _exit(lambda: shorten(ledger, age_s))


@ledger_app.command()
def check(ledger: Ledger, since: Date = None, until: Date = None) -> None:
    """Check that every moment of every device is counted once: without gap, without overlap.

    `--since` to `--until`, its day excluded; default: all of it. Exit code 0: it is so. 1: it is not; the first device and day are
    named. 2: the ledger cannot be read.
    """
    from fairlead.cli.ledger.work import check_conservation

    _exit(lambda: check_conservation(ledger, _unix_us(since), _unix_us(until)))


@ledger_app.command()
def claims(
    ledger: Ledger,
    window: Annotated[
        str,
        typer.Option(metavar="WINDOW", help="30d, 12h, 2026-11-01..2026-12-01 (end excluded), month, last-month; UTC."),
    ] = "30d",
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Only claims of this queue.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Only of this one.")
    ] = None,
    gang: Annotated[str | None, typer.Option(metavar="NAME", help="Only of gangs of this name.")] = None,
    output: Annotated[
        Literal["table", "json", "csv"],
        typer.Option("--output", "-o", help="A table for people; json for programs, csv for spreadsheets."),
    ] = "table",
) -> None:
    """List which claim held which device from when to when, and why that ended: what a line of a bill is made of.

    Exit code 0: listed. 2: the window, or the ledger, cannot be read.
    """
    from fairlead.cli.ledger.claims import show

    asked = {"queue": queue, "namespace": namespace, "gang": gang}
    only = {name: value for name, value in asked.items() if value is not None}
    _exit(lambda: show(ledger, window, only, output))


def _unix_us(day: datetime | None) -> int | None:
    return None if day is None else int(day.replace(tzinfo=UTC).timestamp()) * 1_000_000


def _exit(work: Callable[[], int]) -> None:
    from fairlead.history.cost.errors import CostError
    from fairlead.history.ledger.store.errors import LedgerError

    try:
        code = work()
    except (CostError, LedgerError) as error:
        say(error, file=sys.stderr)
        code = 2
    raise typer.Exit(code)
