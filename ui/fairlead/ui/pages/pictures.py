"""Queues as SVG: what each uses of what it may, and its use over time. Pure.

A bar shows what a queue uses of what it may, with marks for its fair share and what it deserves. A history is an area of what was used, a line of
what was requested, and what it deserves, in percents, so it is as wide as its page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from fairlead.kube.quantity import amount
from fairlead.ui.model.queue_history import POINTS, QueueHistory, Series
from fairlead.ui.model.queues import Line, Share

WIDTH = 100.0
ROOM = 1.1  # so that the longest bar does not end at the edge


@dataclass(frozen=True, slots=True)
class Bar:
    """Lengths and places on a scale of 0 to `WIDTH`, the same for all queues. `limit` None: none, or beyond the scale."""

    own: float  # used, up to what it deserves
    borrowed: float  # used beyond that
    demand: float  # where used and requested together end
    fair: float
    deserved: float
    limit: float | None
    over: str  # what it borrows, as an amount; "" for nothing
    label: str


def bars(lines: Sequence[Line]) -> Mapping[tuple[str, str], Bar]:
    """The bars by queue and flavor. All queues have one scale for a flavor."""
    scales: dict[str, float] = {}
    for line in lines:
        for share in line.shares:
            most = max(amount(text) for text in (share.used, share.demand, share.fair_share, share.deserved))
            scales[share.flavor] = max(scales.get(share.flavor, 0.0), most)
    return {
        (line.name, share.flavor): _bar(share, scales[share.flavor] * ROOM or 1.0)
        for line in lines
        for share in line.shares
    }


SPARK_HEIGHT = 20


@dataclass(frozen=True, slots=True)
class Spark:
    """The use of a day: the path of its outline in a box of `SPARK_POINTS` by `SPARK_HEIGHT`, where in it the deserved amount is, and what it says."""

    path: str
    deserved: float
    label: str


def sparks(lines: Sequence[Line], used: Mapping[tuple[str, str], Sequence[float]]) -> Mapping[tuple[str, str], Spark]:
    """By queue and flavor, of those that the ledger knows."""
    return {
        (line.name, share.flavor): _spark(used[line.name, share.flavor], amount(share.deserved))
        for line in lines
        for share in line.shares
        if (line.name, share.flavor) in used
    }


def _spark(used: Sequence[float], deserved: float) -> Spark:
    scale = SPARK_HEIGHT / (max(*used, deserved) * ROOM or 1.0)
    heights = [f"{SPARK_HEIGHT - scale * each:.1f}".removesuffix(".0") for each in used]
    steps = [
        f"V{height}H{at + 1}"
        for at, height in enumerate(heights)
        if at + 1 == len(heights) or heights[at + 1] != height
    ]
    return Spark(
        path=f"M0 {SPARK_HEIGHT}{''.join(steps)}V{SPARK_HEIGHT}Z",
        deserved=round(SPARK_HEIGHT - scale * deserved, 1),
        label=f"the last day: {sum(used) / len(used):.3g} used on average, {max(used):.3g} at most; deserved {deserved:g}",
    )


def _bar(share: Share, scale: float) -> Bar:
    used, deserved = amount(share.used), amount(share.deserved)

    def place(value: float) -> float:
        return round(WIDTH * min(value, scale) / scale, 2)

    over = used - deserved
    said = f"{share.used} used, fair share {share.fair_share}, deserved {share.deserved}"
    return Bar(
        own=place(min(used, deserved)),
        borrowed=round(place(used) - place(min(used, deserved)), 2),
        demand=place(amount(share.demand)),
        fair=place(amount(share.fair_share)),
        deserved=place(deserved),
        limit=None if share.limit is None or amount(share.limit) > scale else place(amount(share.limit)),
        over=f"{over:g}" if over > 0 else "",
        label=said + (f", limit {share.limit}" if share.limit is not None else ""),
    )


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
