"""Spans of time that recur: each begins as a cron expression says in a time zone, and lasts for a duration.

A start and a duration, as in Karpenter's disruption budgets, say by themselves whether a moment is within a span. Two cron
expressions, one for the start and one for the end, do not: after the start of a Friday evening the next end may be on Monday.
Durations are elapsed time: eleven hours from 20:00 end at 06:00 where the clock goes back meanwhile, at 08:00 where it goes forward.

Starts are those of Debian's cron, by cronsim: a start in an hour that the clock skips is at the end of the skip, one in an hour that
it repeats is in the first of the two; expressions whose minute or hour begins with `*` follow the elapsed time instead.
croniter was rejected: its results around clock changes depend on where the search begins. Pure: the time is an argument.
"""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from math import floor
from zoneinfo import ZoneInfo

import tzdata
from cronsim import CronSim, CronSimError

CRON_LENGTH_MAX = 128
ZONE_LENGTH_MAX = 64
JOINS_MAX = 64
"""Spans that are joined to one; the end of what is longer is not looked for."""

_FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
_SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def checked_cron(text: str) -> str:
    """`text`, if it is a cron expression of five fields that has a next time. Raises ValueError with what to write."""
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            f"{text!r} has {len(fields)} fields: write five, {', '.join(_FIELDS)}, such as '0 20 * * 1-5' for 20:00 from Monday to Friday"
        )
    try:
        found = next(CronSim(text, _SOME_DAY), None)
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        raise ValueError(
            f"{text!r} is no cron expression, or never comes: its field {field} cannot be met; "
            "write numbers, ranges, steps or *, such as '0 20 * * 1-5'"
        ) from None
    if found is None:
        raise ValueError(
            f"{text!r} never comes: no day of the next 50 years is of its month, day and weekday; correct them"
        )
    return text


@cache
def zones() -> frozenset[str]:
    """Names of the IANA time zones, of the tzdata package: what is valid does not depend on the machine."""
    return frozenset(files(tzdata).joinpath("zones").read_text(encoding="utf-8").split())


def checked_zone(text: str) -> str:
    """`text`, if it names a time zone. Raises ValueError with a name that is close."""
    if text not in zones():
        close = difflib.get_close_matches(text, zones(), n=1) or [
            name for name in sorted(zones()) if name.rpartition("/")[2].casefold() == text.casefold()
        ]
        hint = f"did you mean {close[0]}?" if close else "write an IANA name such as Europe/Berlin, or UTC"
        raise ValueError(f"{text!r} is no time zone; {hint}")
    return text


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time in unix seconds; of several that overlap or touch, the whole."""

    end: float
    known: bool = True
    """Whether it ends there; else it lasts longer, and how much longer is to be asked then."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """`start` and `zone` are valid (`checked_cron`, `checked_zone`); `length_s` is more than 0."""

    start: str
    length_s: float
    zone: str = "UTC"

    def span(self, at: float) -> Span | None:
        """The span that `at` (unix seconds) is in; its start belongs to it, its end does not."""
        start = self._last_start(at)
        if start is None or at >= start + self.length_s:
            return None
        for _ in range(JOINS_MAX):
            end = start + self.length_s
            again = self._last_start(end)
            if again is None or again <= start:
                return Span(end)
            start = again
        return Span(start + self.length_s, known=False)

    def next_start(self, at: float) -> float | None:
        """The first start after `at`; None if there is none within 50 years."""
        # Where an hour is repeated the search may begin with times of its first pass.
        return next((found for found in self._starts(floor(at)) if found > at), None)

    def _last_start(self, at: float) -> float | None:
        """The last start at `at` or before. The search back finds one, but misses starts of the first pass of an hour that is repeated."""
        back = (found for found in self._starts(floor(at) + 1, reverse=True) if found <= at)
        last = next(back, None)
        if last is None:
            return None
        for found in self._starts(last):
            if found > at:
                break
            last = max(last, found)
        return last

    def _starts(self, at: float, *, reverse: bool = False) -> Iterator[float]:
        """Starts after whole second `at`, or before it."""
        return (
            found.timestamp()
            for found in CronSim(self.start, datetime.fromtimestamp(at, ZoneInfo(self.zone)), reverse=reverse)
        )
