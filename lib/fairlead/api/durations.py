"""Durations as users write them, `1h30m`, `90s`, `2d`, and GPU-hours as text. Apart from our kinds, whose models take a third of a second to import."""

from __future__ import annotations

import re
from fractions import Fraction

DURATION = r"([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+"
_DURATION = re.compile(DURATION)
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION_MAX_S = 3650 * 86400.0
"""Ten years: what is longer counts as this, so that no sum of a time and durations leaves the calendar."""


def duration_s(text: str) -> float:
    """`1h30m`, `90s`, `2d` in seconds, at most `DURATION_MAX_S`. Raises ValueError, which says how to write one."""
    if len(text) > 32 or not _DURATION.fullmatch(text):
        shown = repr(text) if len(text) <= 40 else f"{text[:32]!r}… ({len(text)} characters)"
        raise ValueError(f"{shown} is no duration: write a number with a unit (s, m, h, d), such as 90s or 1h30m")
    return min(sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text)), DURATION_MAX_S)


def written(seconds: float) -> str:
    """What `duration_s` reads as these seconds, in whole units: `7d`, `1h30m`; "0s" for less than a millisecond."""
    left, parts = round(seconds * 1000), ""
    for unit in ("d", "h", "m", "s", "ms"):
        number, left = divmod(left, round(_SECONDS[unit] * 1000))
        parts += f"{number}{unit}" if number else ""
    return parts or "0s"


def hours_text(hours: Fraction) -> str:
    """Hours in messages and statuses: at most two digits after the point. What is below a limit is not rounded up to it."""
    cut = int(hours * 100)
    whole, part = divmod(cut, 100)
    return f"{whole}.{part:02d}".rstrip("0").rstrip(".")
