"""Kubernetes' two forms of time, Time (seconds) and MicroTime, to and from epoch seconds. Reads no clock.

Sums of times and of durations that users write may lie beyond what a date can say. They are shown as the last date that can be
written (`LAST_S`), or the first: a status or an event never fails for a number in it.
"""

from datetime import UTC, datetime

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
DAY_US = 24 * HOUR_US

LAST_S = 253_402_300_799.0
"""9999-12-31T23:59:59Z."""
FIRST_S = -30_610_224_000.0
"""1000-01-01T00:00:00Z: years before have fewer digits than RFC 3339 asks for."""


def seconds(epoch_s: float) -> str:
    """metav1.Time: `2026-11-21T01:50:31Z`."""
    return _date(epoch_s).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(epoch_s: float) -> str:
    """metav1.MicroTime: `2026-11-21T01:50:31.123456Z`."""
    return _date(epoch_s).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def microseconds(epoch_s: float) -> int:
    return round(epoch_s * SECOND_US)


def parse(text: str) -> float:
    """Epoch seconds of either form, or of any RFC 3339 time. Raises ValueError."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (OverflowError, OSError) as error:  # a time without zone in the first or last year
        raise ValueError(f"{text[:40]!r} is no time that can be reckoned with") from error


def parsed(written: object) -> float | None:
    """As `parse`; None for what is empty or no time."""
    try:
        return parse(str(written)) if written else None
    except ValueError:
        return None


def _date(epoch_s: float) -> datetime:
    """The nearest that can be written; NaN is the last."""
    within = max(FIRST_S, epoch_s) if epoch_s < LAST_S else LAST_S
    return datetime.fromtimestamp(within, UTC)
