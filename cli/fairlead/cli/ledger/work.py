"""What the subcommands of `fairlead ledger` do. Each returns the exit code, and raises LedgerErrors."""

from __future__ import annotations

import dataclasses
import json
import time
from contextlib import closing
from datetime import UTC, datetime

from fairlead.cli.printer import say
from fairlead.history.ledger.entries import WHOLE_PPM
from fairlead.history.ledger.store.copying import backup
from fairlead.history.ledger.store.reader import open_reader
from fairlead.history.ledger.store.writer import prune


def copy(ledger: str, target: str) -> int:
    backup(ledger, target)
    with closing(open_reader(target)) as reader:
        say(f"copied {reader.info().intervals:,} intervals to {reader.place.text}")
    return 0


def show(ledger: str, output: str) -> int:
    with closing(open_reader(ledger)) as reader:
        found = reader.info()
    if output == "json":
        say(json.dumps(dataclasses.asdict(found), indent=2))
        return 0
    first, last = ("-", "-") if found.known_us is None else map(moment, found.known_us)
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


def shorten(ledger: str, age_s: float) -> int:
    before_us = int((time.time() - age_s) * 1_000_000)
    removed = sum(prune(ledger, before_us))
    say(f"removed {removed:,} rows that ended before {moment(before_us)}")
    return 0


def check_conservation(ledger: str, since_us: int | None, until_us: int | None) -> int:
    """None: from its first, or until its last moment."""
    with closing(open_reader(ledger)) as reader:
        known = reader.known()
        if known is None:
            say("the ledger holds nothing yet")
            return 0
        since_us, until_us = known[0] if since_us is None else since_us, known[1] if until_us is None else until_us
        broken = next(reader.broken_days(since_us, until_us), None)
    if broken is None:
        say(f"every moment of every device is counted once, {moment(since_us)} to {moment(until_us)}")
        return 0
    day = datetime.fromtimestamp(broken.day_us // 1_000_000, UTC).date().isoformat()
    say(
        f"{broken.unit} on {day}: {broken.share_ppm / WHOLE_PPM:.4%} of it is accounted for from {moment(broken.start_us)} to "
        f"{moment(broken.end_us)}; of the day {broken.weighed:,} ppm·µs instead of {WHOLE_PPM * broken.present_us:,}"
    )
    return 1


def moment(time_us: int) -> str:
    whole, rest = divmod(time_us, 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06}Z"
