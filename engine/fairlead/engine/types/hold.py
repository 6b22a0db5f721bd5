"""A hold of a gang or queue: what its object says, for messages; and whether what runs is to be evicted."""

from __future__ import annotations

from fairlead.engine.types.fact import Fact


class Hold(Fact, frozen=True, kw_only=True):
    """`since` is RFC 3339, as written; "" where a text is not known."""

    by: str = ""
    since: str = ""
    reason: str = ""
    evict: bool = False  # what runs goes, too

    def __str__(self) -> str:
        """`by alice since 2026-11-24T08:00:00Z: the rack is being moved`, or what of it is known."""
        by = f" by {self.by}" if self.by else ""
        since = f" since {self.since}" if self.since else ""
        return f"on hold{by}{since}{f': {self.reason}' if self.reason else ''}"
