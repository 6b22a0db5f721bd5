"""The demo's last line: whose GPU-seconds went where, as its controller's ledger has it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fairlead.history.cost.bill import percentages
from fairlead.history.ledger.entries import BUCKETS, WHOLE_PPM
from fairlead.history.ledger.store.place import LedgerError
from fairlead.history.ledger.store.reader import open_reader


def line(ledger: Path) -> str:
    """The summary of the ledger. To be called when the controller has ended: it writes the last seconds then."""
    try:
        reader = open_reader(str(ledger))
        try:
            known = reader.known()
            sums = [] if known is None else reader.sums(*known, ("queue",))
        finally:
            reader.close()
    except LedgerError as error:
        return f"the ledger cannot be read: {error}"
    weighed = Counter[tuple[str, str]]()
    for each in sums:
        weighed[each.bucket, each.keys[0]] += each.time_us * each.measure.share_ppm
    total = sum(weighed.values())
    if not total:
        return "the ledger holds nothing"
    ordered = sorted(weighed, key=lambda key: (BUCKETS.index(key[0]), -weighed[key], key[1]))
    percent = percentages({key: weighed[key] for key in ordered})
    parts = (f"{bucket}{f' by {queue}' if queue else ''} {percent[bucket, queue]} %" for bucket, queue in ordered)
    return f"GPU time: {total / WHOLE_PPM / 1e6:,.0f} s, of it {', '.join(parts)}: {sum(percent.values())} %"
