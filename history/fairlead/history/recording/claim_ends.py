"""When claims came free, as recorded decisions tell: for a ledger that was not written to the end."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from fairlead.history.recording.errors import RecordingError
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.records import Decision
from fairlead.history.recording.writer import segments


def claim_ends(directory: Path, since_us: int, wanted: Collection[str]) -> dict[str, int]:
    """By UID of these claims, when a decision after `since_us` (unix microseconds) first saw it without its allocation.

    A claim that a whole state lacks may have ended long before, while nothing was recorded: of it nothing is known. What cannot be read
    ends the search. Reads the segments that were written since.
    """
    found: dict[str, int] = {}
    with contextlib.suppress(RecordingError, OSError):
        late = [path for _, path in segments(directory) if path.stat().st_mtime * 1e6 >= since_us]
        left = set(wanted)
        for read in Reader(late):
            record = read.record
            if not left:
                break
            if not isinstance(record, Decision) or record.at * 1e6 < since_us:
                continue
            claims = record.facts.claims
            if record.whole:
                left &= claims.keys()
                continue
            gone = {uid for uid in left if uid in claims and claims[uid] is None}
            found |= dict.fromkeys(gone, round(record.at * 1e6))
            left -= gone
    return found
