"""A queue's use over time as an SVG: an area of what it used, a line of what was requested, and what it deserves. Pure.

Places are percents of width and height, so it is as wide as its page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from fairlead.ui.model.queue_history import POINTS, QueueHistory, Series

ROOM = 1.1


@dataclass(frozen=True, slots=True)
class Picture:
    """`used`, `borrowed` and `requested` are boxes; `deserved` the height of its line."""

    series: Series
    used: tuple[Markup, ...]
    borrowed: tuple[Markup, ...]
    requested: tuple[Markup, ...]
    deserved: str
    label: str
    top: str


def pictures(found: QueueHistory) -> tuple[Picture, ...]:
    return tuple(map(_picture, found.series))


def ticks(found: QueueHistory, count: int = 5) -> tuple[tuple[str, str], ...]:
    """Place and time of a few moments."""
    lasts = found.until - found.since
    form = "%d %b" if lasts > 3 * 86_400 else "%H:%M"
    return tuple(
        (
            f"{100 * number / count:.1f}%",
            datetime.fromtimestamp(found.since + lasts * number / count, UTC).strftime(form),
        )
        for number in range(count)
    )


def _picture(series: Series) -> Picture:
    scale = series.most * ROOM or 1.0
    last = series.used[-1] if series.used else 0.0
    mean = sum(series.used) / POINTS
    return Picture(
        series=series,
        used=tuple(_boxes([(0.0, min(each, series.deserved)) for each in series.used], scale)),
        borrowed=tuple(_boxes([(min(each, series.deserved), each) for each in series.used], scale)),
        requested=tuple(_boxes(list(zip(series.used, series.requested, strict=True)), scale)),
        deserved=f"{100 - 100 * series.deserved / scale:.2f}%",
        label=f"{series.flavor}: {mean:.3g} used on average, {max(series.used):.3g} at most, {last:.3g} last; deserved {series.deserved:g}",
        top=f"{series.most:.3g}",
    )


def _boxes(heights: Sequence[tuple[float, float]], scale: float) -> Iterable[Markup]:
    """Beginning and end of each box; neighbours that are the same are one."""
    begin = 0
    for place in range(1, len(heights) + 1):
        if place < len(heights) and heights[place] == heights[begin]:
            continue
        low, high = heights[begin]
        if high > low:
            left, wide = 100 * begin / POINTS, 100 * (place - begin) / POINTS
            yield Markup(  # noqa: S704 - numbers alone
                f'x="{left:.2f}%" y="{100 - 100 * high / scale:.2f}%" width="{wide + 0.05:.2f}%" height="{100 * (high - low) / scale:.2f}%"'
            )
        begin = place
