"""`fairlead ledger backup | info | prune | check | claims`. What they do is imported when they run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from fairlead.cli.printer import say
from fairlead.kube.flags import DURATION

Date = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="DATE", help="A day (UTC).")]


@dataclass(frozen=True, kw_only=True)
class OfLedger:
    """A command that opens a ledger."""

    ledger: Annotated[
        str,
        typer.Argument(
            metavar="LEDGER",
            envvar="FAIRLEAD_LEDGER",
            help="Its directory, a file that `backup` made, or postgresql://USER:PASSWORD@HOST/DATABASE.",
        ),
    ]

    def run(self) -> int:
        from fairlead.history.cost.window import CostError
        from fairlead.history.ledger.store.place import LedgerError

        try:
            return self.work()
        except (CostError, LedgerError) as error:
            say(error, file=sys.stderr)
            return 2

    def work(self) -> int:
        """The exit code. Raises CostError and LedgerError."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Backup(OfLedger):
    """Copy it, while the controller writes: to a file, or to another database, which moves it.

    Exit code 0: copied. 2: not; nothing is left at TARGET.
    """

    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A file that is not there yet, or an empty PostgreSQL database's URL."),
    ]

    def work(self) -> int:
        from fairlead.cli.ledger.work import copy

        return copy(self.ledger, self.target)


@dataclass(frozen=True, kw_only=True)
class Info(OfLedger):
    """Where it is, its version and size, who writes it, and which time it covers."""

    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="A table for people; json for programs.")
    ] = "table"

    def work(self) -> int:
        from fairlead.cli.ledger.work import show

        return show(self.ledger, self.output)


@dataclass(frozen=True, kw_only=True)
class Prune(OfLedger):
    """Remove what is old, in steps that the controller does not wait for. The file keeps its size; its space is used again."""

    older_than_s: Annotated[
        float,
        DURATION,
        typer.Option("--older-than", metavar="DURATION", help="As 400d: what ended before so long ago."),
    ]

    def work(self) -> int:
        from fairlead.cli.ledger.work import shorten

        return shorten(self.ledger, self.older_than_s)


@dataclass(frozen=True, kw_only=True)
class Check(OfLedger):
    """Check that every moment of every device is counted once: without gap, without overlap.

    `--since` to `--until`, its day excluded; default: all of it. Exit code 0: it is so. 1: it is not; the first device and day are
    named. 2: the ledger cannot be read.
    """

    since: Date = None
    until: Date = None

    def work(self) -> int:
        from fairlead.cli.ledger.work import check_conservation

        return check_conservation(self.ledger, _unix_us(self.since), _unix_us(self.until))


@dataclass(frozen=True, kw_only=True)
class Claims(OfLedger):
    """List which claim held which device from when to when, and why that ended: what a line of a bill is made of.

    Exit code 0: listed. 2: the window, or the ledger, cannot be read.
    """

    window: Annotated[
        str,
        typer.Option(metavar="WINDOW", help="30d, 12h, 2026-11-01..2026-12-01 (end excluded), month, last-month; UTC."),
    ] = "30d"
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Only claims of this queue.")] = None
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Only of this one.")] = None
    gang: Annotated[str | None, typer.Option(metavar="NAME", help="Only of gangs of this name.")] = None
    output: Annotated[
        Literal["table", "json", "csv"],
        typer.Option("--output", "-o", help="A table for people; json for programs, csv for spreadsheets."),
    ] = "table"

    def work(self) -> int:
        from fairlead.cli.ledger.claims import show

        asked = {"queue": self.queue, "namespace": self.namespace, "gang": self.gang}
        only = {name: value for name, value in asked.items() if value is not None}
        return show(self.ledger, self.window, only, self.output)


def _unix_us(day: datetime | None) -> int | None:
    return None if day is None else int(day.replace(tzinfo=UTC).timestamp()) * 1_000_000
