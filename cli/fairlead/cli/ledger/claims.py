"""`fairlead ledger claims`: which claim held which device from when to when, and why that ended: what a line of a bill is made of."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from fractions import Fraction
from typing import Any, Final

from fairlead.cli.printer import say
from fairlead.cli.views import printing
from fairlead.cli.views.table import Cell, Column
from fairlead.history.cost.usage import hours
from fairlead.history.cost.window import Known, known_part, parse
from fairlead.history.cost.written import csv_cell, plain
from fairlead.history.ledger.entries import WHOLE_PPM, Span
from fairlead.history.ledger.store.reader import open_reader
from fairlead.kube.timestamps import SECOND_US, seconds

FIELDS: Final = (
    "namespace", "claim", "gang", "queue", "flavor", "node", "device", "share", "from", "until", "gpuHours", "ended", "lost",
)  # fmt: skip
_SHORT: Final = {"gpuHours": "GPU-HOURS"}
_GOES_ON: Final = "goes on"
_CUT: Final = "later"


def show(ledger: str, window: str, only: Mapping[str, str], output: str) -> int:
    """`only`: values of fields of a span. Raises CostError, LedgerError."""
    asked = parse(window, time.time())
    with closing(open_reader(ledger)) as reader:
        reads = reader.known()
        known = known_part(asked, reads)
        known_until_us = known.window.until_us if reads is None else reads[1]
        found = reader.spans(*known.window)
        rows = [_row(each, known_until_us) for each in found if all(getattr(each, name) == only[name] for name in only)]
    if known.missing:
        say(known.missing, file=sys.stderr)
    rows.sort(key=lambda row: (row["from"], row["namespace"], row["claim"], row["node"], row["device"]))
    _PRINTED[output](rows, known)
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
        printing.table(columns, [[Cell(row[name]) for name in FIELDS] for row in rows])
    if any(row["ended"] == _CUT for row in rows):
        say(f"{_CUT}: it ended after this window.")


def _csv(rows: Iterable[dict[str, str]], _: Known) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows([csv_cell(row[name]) for name in FIELDS] for row in rows)


def _json(rows: Iterable[dict[str, str]], known: Known) -> None:
    window = {"from": seconds(known.window.since_us / SECOND_US), "to": seconds(known.window.until_us / SECOND_US)}
    printing.structured({"window": window, "missing": known.missing, "claims": list(_programs(rows))}, "json")


def _programs(rows: Iterable[dict[str, str]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {**row, "lost": bool(row["lost"])}


_PRINTED: Final = {"table": _table, "csv": _csv, "json": _json}
