"""Runs as bars of an SVG, a lane under the other: which are drawn, where, and what the rest is folded into. Pure.

Places are percents of the width, so a picture is as wide as its page and its texts are not stretched. A group has a bounded number of
lanes, each with a name beside it: what runs and what waits come first, then what was largest. The rest is one area, the devices that it held,
and is said in words.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from markupsafe import Markup

from fairlead.ui.model.gang import Spread
from fairlead.ui.model.gangs import age
from fairlead.ui.model.runs import Run, State
from fairlead.ui.model.time_chart import Choice, Group, TimeChart

LANE, BAR, AREA = 18, 14, 30  # heights
LABELLED = 7.0  # percent: a narrower bar has no text
LEAST = 0.35  # percent: what is shorter is drawn as long as this
BINS = 96
LANES, LINES = 72, 36  # of all groups of a page together: of what holds or held devices, and of what waits
BARS = 700  # of what holds or held devices, of a page
STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800)
TICKS_MAX = 7
ROWS_MAX = 200  # of the table
NOTHING = Markup("")
HELD: tuple[tuple[State, str], ...] = (("runs", "running"), ("ran", "ended"))
ENDS: Mapping[str, str] = {
    "Failed": "failed",
    "Evicted": "evicted",
    "Deleted": "deleted",
    "NodeGone": "its node went away",
}
"""Ends that have a mark, in the ledger's words, and in ours."""


@dataclass(frozen=True, slots=True)
class Tick:
    """`link`: to the next shorter window around it; "" for none."""

    at: str
    label: str
    link: str


@dataclass(frozen=True, slots=True)
class Bar:
    """`box`, and `whisker` (from p50 to p90) or "", are places as attributes; so is `start` of what waits, and `end` where `cause` has a mark.

    `label`: its name, where others share its lane and there is room; else "".
    """

    run: Run
    box: Markup
    css: str
    title: str
    label: str = ""
    whisker: Markup = NOTHING
    cap: Markup = NOTHING
    start: Markup = NOTHING
    end: Markup = NOTHING
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """What stands beside a lane: the run of it that began last, its name, and how many others it has."""

    run: Run
    label: str
    more: int


@dataclass(frozen=True, slots=True)
class GroupPicture:
    """`folded`: what is not drawn as bars, in words; `area`: the devices that it held, as boxes."""

    group: Group
    bars: tuple[Bar, ...]
    lanes: tuple[Lane, ...]
    area: tuple[Markup, ...]
    folded: tuple[str, ...]
    height: int
    summary: str


@dataclass(frozen=True, slots=True)
class Picture:
    """`now`: its place, "" where it is not in the window. `ends`: the causes of ends that are marked in it."""

    groups: tuple[GroupPicture, ...]
    ticks: tuple[Tick, ...]
    now: str
    ends: tuple[str, ...]
    gaps: tuple[Markup, ...]
    rows: tuple[tuple[Run, str, str, str], ...]  # run, from, to, words: the table
    more_rows: int


def picture(chart: TimeChart, colours: Mapping[str, str]) -> Picture:
    """`colours`: CSS classes of queues, for a picture by node."""
    scale = _Scale(chart.since, chart.until)
    count = max(1, len(chart.groups))
    lanes, lines, tried = max(3, LANES // count), max(2, LINES // count), max(12, BARS // count)
    groups = tuple(_group(group, chart, scale, (lanes, lines, tried), colours) for group in chart.groups)
    drawn = [bar.run for group in groups for bar in group.bars]
    return Picture(
        groups=groups,
        ticks=tuple(_ticks(chart, scale)),
        now=scale.place(chart.now) if chart.now <= chart.until else "",
        ends=tuple(cause for cause in ENDS if any(bar.cause == cause for group in groups for bar in group.bars)),
        gaps=tuple(scale.box(begin, end, 0, None) for begin, end in chart.gaps),
        rows=tuple((run, _clock(run.start), _ends(run), words(run, chart.now)) for run in drawn[:ROWS_MAX]),
        more_rows=chart.count - min(len(drawn), ROWS_MAX),
    )


class _Scale:
    def __init__(self, since: float, until: float) -> None:
        self._since, self._until = since, until
        self._percents = 100.0 / (until - since)

    def percent(self, at: float) -> float:
        return (min(max(at, self._since), self._until) - self._since) * self._percents

    def place(self, at: float) -> str:
        return f"{self.percent(at):.2f}%"

    def extent(self, begin: float, end: float) -> tuple[float, float]:
        """Place and width; never so narrow that it is not seen, nor beyond the edge."""
        left = self.percent(begin)
        wide = max(LEAST, self.percent(end) - left)
        return min(left, 100.0 - wide), wide

    def box(self, begin: float, end: float, y: int, height: int | None) -> Markup:
        left, wide = self.extent(begin, end)
        return _box(left, wide, y, height)


def _box(left: float, wide: float, y: int, height: int | None) -> Markup:
    tall = "100%" if height is None else str(height)
    return Markup(f'x="{left:.2f}%" y="{y}" width="{wide:.2f}%" height="{tall}"')  # noqa: S704 - numbers alone


def _group(
    group: Group, chart: TimeChart, scale: _Scale, room: tuple[int, int, int], colours: Mapping[str, str]
) -> GroupPicture:
    """`room`: lanes of what held devices, lanes of what waits, and bars of the former."""
    lanes, lines, tried = room
    held = [run for run in group.runs if run.state != "waits"]
    waits = [run for run in group.runs if run.state == "waits"]
    chosen = _fitting(held[:tried], scale, lanes)
    rest = held if not chosen else [run for run in held if id(run) not in chosen]
    rows = _Lanes(LEAST / 2)
    in_lanes: list[list[Run]] = []
    for run in sorted((run for run in held if id(run) in chosen), key=lambda each: (each.start, each.gang)):
        lane = rows.put(*scale.extent(run.start, run.end or chart.end))
        in_lanes += [[]] if lane == len(in_lanes) else []
        in_lanes[lane].append(run)
    in_lanes += [[run] for run in waits[:lines]]
    bars = [
        _bar(run, chart, scale, lane * LANE + 2, colours, alone=len(own) == 1)
        for lane, own in enumerate(in_lanes)
        for run in own
    ]
    height = len(in_lanes) * LANE
    area: tuple[Markup, ...] = ()
    if rest:
        area = tuple(_area(rest, chart, scale, height + 2))
        height += AREA + 4
    return GroupPicture(
        group=group,
        bars=tuple(bars),
        lanes=tuple(Lane(own[-1], _label(own[-1]), len(own) - 1) for own in in_lanes),
        area=area,
        folded=tuple(_folded(rest, waits[lines:], chart)),
        height=height + 2,
        summary=_summary(group),
    )


class _Lanes:
    """Lanes of bars that do not overlap: each bar goes into the first that has room. `gap`: between two bars of a lane, percents."""

    def __init__(self, gap: float, most: int | None = None) -> None:
        self._gap = gap
        self._most = most
        self._lanes: list[list[tuple[float, float]]] = []

    def __len__(self) -> int:
        return len(self._lanes)

    def put(self, left: float, wide: float) -> int:
        """The lane's number, -1 where there is no room."""
        right = left + wide + self._gap
        for number, lane in enumerate(self._lanes):
            place = bisect.bisect_left(lane, (left, right))
            if (place == 0 or lane[place - 1][1] <= left) and (place == len(lane) or right <= lane[place][0]):
                lane.insert(place, (left, right))
                return number
        if self._most is not None and len(self._lanes) >= self._most:
            return -1
        self._lanes.append([(left, right)])
        return len(self._lanes) - 1


def _fitting(held: Sequence[Run], scale: _Scale, lanes: int) -> set[int]:
    """Which are drawn as bars, the first of the order first: those for which a lane has room."""
    rows = _Lanes(LEAST / 2, lanes)
    return {id(run) for run in held if rows.put(*scale.extent(run.start, run.end or run.start)) >= 0}


def _bar(run: Run, chart: TimeChart, scale: _Scale, y: int, colours: Mapping[str, str], *, alone: bool) -> Bar:
    """`alone`: in its lane, which then has its name."""
    end = chart.end if run.end is None else run.end
    left, wide = scale.extent(run.start, end)
    colour = colours.get(run.queue, "") if run.state != "waits" and chart.choice.by == "node" else ""
    bar = Bar(
        run=run,
        box=_box(left, wide, y, BAR),
        css=f"run {run.state} {colour}".strip(),
        title=words(run, chart.now),
        label=_label(run) if wide >= LABELLED and not alone else "",
    )
    if run.state != "waits":
        cause = run.ended if run.ended in ENDS else "Evicted" if run.lost else ""
        if not cause:
            return bar
        return replace(bar, cause=cause, end=Markup(f'x="{left + wide:.2f}%" y="{y}"'))  # noqa: S704 - numbers alone
    if run.end is None:
        return bar
    bar = replace(bar, start=_line(scale.place(end), y, BAR, 3))
    if run.p90 is None or run.p90 <= run.end:
        return bar
    cap = _line(scale.place(run.p90), y + 2, BAR - 4, 2) if run.p90 <= chart.until else NOTHING
    return replace(bar, whisker=scale.box(run.end, run.p90, y + BAR // 2 - 1, 2), cap=cap)


def _label(run: Run) -> str:
    return run.gang.partition("/")[2] + (f" ×{run.devices}" if run.devices else "")


def _area(rest: Iterable[Run], chart: TimeChart, scale: _Scale, y: int) -> Iterable[Markup]:
    """Mean devices of each of `BINS` parts of the past."""
    wide_s = (chart.end - chart.since) / BINS
    held = [0.0] * (BINS + 1)
    steps = [0.0] * (BINS + 1)
    for run in rest:
        begin, end = (
            (max(run.start, chart.since) - chart.since) / wide_s,
            ((run.end or chart.end) - chart.since) / wide_s,
        )
        begin, end = min(max(begin, 0.0), BINS), min(max(end, 0.0), BINS)
        if end <= begin:
            continue
        first, last, devices = int(begin), int(end), float(run.devices or 1)
        if first == last:
            held[first] += devices * (end - begin)
            continue
        held[first] += devices * (first + 1 - begin)
        held[last] += devices * (end - last)
        steps[first + 1] += devices
        steps[last] -= devices
    level, means = 0.0, list[float]()
    for place in range(BINS):
        level += steps[place]
        means.append(held[place] + level)
    most = max(means) or 1.0
    for place, mean in enumerate(means):
        tall = round(AREA * mean / most)
        if tall or mean > 0.01 * most:
            left = scale.percent(chart.since + place * wide_s)
            right = scale.percent(chart.since + (place + 1) * wide_s)
            yield _box(left, right - left + 0.02, y + AREA - max(1, tall), max(1, tall))


def _folded(rest: Sequence[Run], waits: Sequence[Run], chart: TimeChart) -> Iterable[str]:
    if rest:
        on = Counter(run.state for run in rest)
        said = " and ".join(f"{on[state]} {what}" for state, what in HELD if on[state])
        yield f"{said} {'run is' if len(rest) == 1 else 'runs are'} folded into the area of the devices that they held"
    if waits:
        starts = [run.end for run in waits if run.end is not None]
        last = f", the last forecast to start in {age(max(0.0, max(starts) - chart.now))}" if starts else ""
        yield f"{len(waits)} more {'waits' if len(waits) == 1 else 'wait'}{last}"


def _summary(group: Group) -> str:
    said = ((group.of("runs"), "running"), (group.of("waits"), "waiting"), (group.of("ran"), "ended"))
    return ", ".join(f"{number} {what}" for number, what in said if number)


def _ticks(chart: TimeChart, scale: _Scale) -> Iterable[Tick]:
    span = chart.until - chart.since
    step = next((each for each in STEPS_S if span / each <= TICKS_MAX), STEPS_S[-1])
    at = (int(chart.since) // step + 1) * step
    while at < chart.until - span * 0.03:
        shown = datetime.fromtimestamp(at, UTC).strftime("%d %b" if at % 86_400 == 0 else "%H:%M")
        around = chart.around(at) if at < chart.end else None
        yield Tick(at=scale.place(at), label=shown, link="" if around is None else address(around))
        at += step


@dataclass(frozen=True, slots=True)
class SpreadPicture:
    """The picture of one gang's forecast: boxes, and what they say."""

    wait: Markup
    now: Markup
    p50: Markup
    whisker: Markup
    p90: Markup
    label: str


def spread_picture(spread: Spread) -> SpreadPicture:
    last = spread.p90 or spread.p50
    scale = _Scale(spread.queued, last + max(1.0, 0.03 * (last - spread.queued)))
    late = "" if spread.p90 is None else f", in {age(max(0.0, spread.p90 - spread.now))} with 90 % probability"
    return SpreadPicture(
        wait=scale.box(spread.queued, spread.p50, 6, BAR),
        now=_line(scale.place(spread.now), 0, 26, 2),
        p50=_line(scale.place(spread.p50), 6, BAR, 3),
        whisker=NOTHING if spread.p90 is None else scale.box(spread.p50, spread.p90, 12, 2),
        p90=NOTHING if spread.p90 is None else _line(scale.place(spread.p90), 8, BAR - 4, 2),
        label=f"waits for {age(max(0.0, spread.now - spread.queued))}; starts in {age(max(0.0, spread.p50 - spread.now))} with 50 % probability{late}",
    )


def _line(place: str, y: int, height: int, width: int) -> Markup:
    return Markup(f'x="{place}" y="{y}" width="{width}" height="{height}"')  # noqa: S704 - numbers alone


def words(run: Run, now: float) -> str:
    """What a bar says."""
    what = f"{'gang' if run.is_gang else 'claim'} {run.gang}"
    devices = "" if run.devices is None else f", {run.devices} {'device' if run.devices == 1 else 'devices'}"
    queue = f", queue {run.queue}" if run.queue else ""
    if run.state == "waits":
        place = f", position {run.position}" if run.position else ""
        if run.never:
            return f"{what}{queue}{place}: waits for {age(now - run.start)}, and cannot start on this cluster"
        if run.end is None:
            return f"{what}{queue}{place}: waits for {age(now - run.start)}, no start is forecast"
        late = f", with nine chances in ten in {age(max(0.0, run.p90 - now))}" if run.p90 is not None else ""
        return f"{what}{queue}{place}: waits for {age(now - run.start)}, forecast to start in {age(max(0.0, run.end - now))}{late}"
    on = (
        f", on {', '.join(run.nodes[:4])}{f' and {len(run.nodes) - 4} more' if len(run.nodes) > 4 else ''}"
        if run.nodes
        else ""
    )
    end = run.end if run.end is not None else now
    lasted = age(max(0.0, end - run.start))
    ended = {"": "ended", "Unknown": "ended", "Completed": "completed"}.get(run.ended) or ENDS.get(run.ended, run.ended)
    ended += ", its work lost" if run.lost else ""
    if run.state == "runs":
        return f"{what}{queue}{devices}{on}: " + (
            f"runs for {lasted}" if end >= now else f"ran for {lasted}, and went on"
        )
    return f"{what}{queue}{devices}{on}: ran for {lasted}, {ended}"


def _ends(run: Run) -> str:
    if run.state == "waits":
        return "" if run.end is None else f"starts {_clock(run.end)}" + (f" to {_clock(run.p90)}" if run.p90 else "")
    return "" if run.state == "runs" or run.end is None else _clock(run.end)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%d %b %H:%M:%S")


def address(choice: Choice, **changed: object) -> str:
    return f"/time{choice.query(**changed)}"
