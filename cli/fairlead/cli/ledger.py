"""`fairlead ledger backup | info | prune | check | claims`: what an operator does with the ledger itself. What it says of costs is elsewhere.

`claims` lists which claim held which device from when to when, and why that ended: what a line of a bill is made of.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Annotated, Final, Literal

import typer

from fairlead.cli import printer
from fairlead.cli.printer import Cell, Column, say
from fairlead.history.cost.usage import hours
from fairlead.history.cost.window import CostError, Known, known_part, parse
from fairlead.history.cost.written import csv_cell, plain
from fairlead.history.ledger.entries import WHOLE_PPM, Span
from fairlead.history.ledger.store.copying import backup
from fairlead.history.ledger.store.place import LedgerError
from fairlead.history.ledger.store.reader import open_reader
from fairlead.history.ledger.store.writer import prune
from fairlead.kube.flags import DURATION
from fairlead.kube.timestamps import SECOND_US, seconds

FIELDS: Final = (
    "namespace", "claim", "gang", "queue", "flavor", "node", "device", "share", "from", "until", "gpuHours", "ended", "lost",
)  # fmt: skip
_SHORT: Final = {"gpuHours": "GPU-HOURS"}
_GOES_ON: Final = "goes on"
_CUT: Final = "later"
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
        backup(self.ledger, self.target)
        with closing(open_reader(self.target)) as reader:
            say(f"copied {reader.info().intervals:,} intervals to {reader.place.text}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Info(OfLedger):
    """Where it is, its version and size, who writes it, and which time it covers."""

    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="A table for people; json for programs.")
    ] = "table"

    def work(self) -> int:
        with closing(open_reader(self.ledger)) as reader:
            found = reader.info()
        if self.output == "json":
            say(json.dumps(dataclasses.asdict(found), indent=2))
            return 0
        first, last = ("-", "-") if found.known_us is None else map(_moment, found.known_us)
        rows = {
            "place": f"{found.place} ({found.kind}, version {found.version})",
            "size": f"{found.size_bytes / 1e6:,.1f} MB, {found.intervals:,} intervals",
            "writer": found.writer or "-",
            "from": first,
            "until": last,
        }
        for name, value in rows.items():
            say(f"{name:<8}{value}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Prune(OfLedger):
    """Remove what is old, in steps that the controller does not wait for. The file keeps its size; its space is used again."""

    older_than_s: Annotated[
        float,
        DURATION,
        typer.Option("--older-than", metavar="DURATION", help="As 400d: what ended before so long ago."),
    ]

    def work(self) -> int:
        before_us = int((time.time() - self.older_than_s) * SECOND_US)
        removed = sum(prune(self.ledger, before_us))
        say(f"removed {removed:,} rows that ended before {_moment(before_us)}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Check(OfLedger):
    """Check that every moment of every device is counted once: without gap, without overlap.

    `--since` to `--until`, its day excluded; default: all of it. Exit code 0: it is so. 1: it is not; the first device and day are
    named. 2: the ledger cannot be read.
    """

    since: Date = None
    until: Date = None

    def work(self) -> int:
        with closing(open_reader(self.ledger)) as reader:
            known = reader.known()
            if known is None:
                say("the ledger holds nothing yet")
                return 0
            since_us = known[0] if self.since is None else _unix_us(self.since)
            until_us = known[1] if self.until is None else _unix_us(self.until)
            broken = next(reader.broken_days(since_us, until_us), None)
        if broken is None:
            say(f"every moment of every device is counted once, {_moment(since_us)} to {_moment(until_us)}")
            return 0
        day = datetime.fromtimestamp(broken.day_us // SECOND_US, UTC).date().isoformat()
        say(
            f"{broken.unit} on {day}: {broken.share_ppm / WHOLE_PPM:.4%} of it is accounted for from {_moment(broken.start_us)} to "
            f"{_moment(broken.end_us)}; of the day {broken.weighed:,} ppm·µs instead of {WHOLE_PPM * broken.present_us:,}"
        )
        return 1


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
        asked = {"queue": self.queue, "namespace": self.namespace, "gang": self.gang}
        only = {name: value for name, value in asked.items() if value is not None}
        window = parse(self.window, time.time())
        with closing(open_reader(self.ledger)) as reader:
            reads = reader.known()
            known = known_part(window, reads)
            known_until_us = known.window.until_us if reads is None else reads[1]
            found = reader.spans(*known.window)
            rows = [
                _row(each, known_until_us) for each in found if all(getattr(each, name) == only[name] for name in only)
            ]
        if known.missing:
            say(known.missing, file=sys.stderr)
        rows.sort(key=lambda row: (row["from"], row["namespace"], row["claim"], row["node"], row["device"]))
        if self.output == "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(FIELDS)
            writer.writerows([csv_cell(row[name]) for name in FIELDS] for row in rows)
        elif self.output == "json":
            span = {
                "from": seconds(known.window.since_us / SECOND_US),
                "to": seconds(known.window.until_us / SECOND_US),
            }
            claims = [{**row, "lost": bool(row["lost"])} for row in rows]
            printer.structured({"window": span, "missing": known.missing, "claims": claims}, "json")
        else:
            _table(rows, known)
        return 0


def _row(span: Span, known_until_us: int) -> dict[str, str]:
    share = Fraction(span.share_ppm, WHOLE_PPM)
    ended = span.ended_by or "Unknown"
    if span.goes_on:
        ended = _GOES_ON if span.end_us >= known_until_us // SECOND_US * SECOND_US else _CUT
    return {
        "namespace": span.namespace,
        "claim": span.claim,
        "gang": span.gang,
        "queue": span.queue,
        "flavor": span.flavor,
        "node": span.node,
        "device": span.device,
        "share": plain(share, 6),
        "from": seconds(span.start_us / SECOND_US),
        "until": seconds(span.end_us / SECOND_US),
        "gpuHours": plain(hours((span.end_us - span.start_us) * span.share_ppm), 6),
        "ended": ended,
        "lost": "yes" if span.lost else "",
    }


def _table(rows: list[dict[str, str]], known: Known) -> None:
    columns = [
        Column(title=_SHORT.get(name, name.upper()), right=name in {"share", "gpuHours"}, least=8, most=48)
        for name in FIELDS
    ]
    say(f"{known.window}: {len(rows):,} times that a claim held a device")
    if rows:
        printer.table(columns, [[Cell(row[name]) for name in FIELDS] for row in rows])
    if any(row["ended"] == _CUT for row in rows):
        say(f"{_CUT}: it ended after this window.")


def _unix_us(day: datetime) -> int:
    return int(day.replace(tzinfo=UTC).timestamp()) * SECOND_US


def _moment(time_us: int) -> str:
    whole, rest = divmod(time_us, SECOND_US)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06}Z"
