"""Events on one object, newest first; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.kube import timestamps
from fairlead.kube.resources import Raw

SHOWN_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """`at`: when it was seen last, unix seconds; None where no time is written."""

    at: float | None
    reason: str
    message: str
    count: int
    warning: bool


def events_of(found: Iterable[Raw], *, kind: str, namespace: str, name: str) -> tuple[EventLine, ...]:
    """Those on that object; at most `SHOWN_MAX`."""
    own = [
        _line(raw)
        for raw in found
        if (about := raw.get("involvedObject") or {}).get("kind") == kind
        and about.get("name") == name
        and about.get("namespace", namespace) == namespace
    ]
    return tuple(sorted(own, key=lambda each: -(each.at or 0.0))[:SHOWN_MAX])


def _line(raw: Raw) -> EventLine:
    series = raw.get("series") or {}
    written = (
        series.get("lastObservedTime") or raw.get("lastTimestamp") or raw.get("eventTime") or raw.get("firstTimestamp")
    )
    return EventLine(
        at=timestamps.parsed(written),
        reason=str(raw.get("reason") or ""),
        message=str(raw.get("message") or ""),
        count=int(series.get("count") or raw.get("count") or 1),
        warning=raw.get("type") == "Warning",
    )
