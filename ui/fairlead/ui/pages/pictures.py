"""Nodes, queues and their colours as SVG: the map of a node's GPUs, the bar of a queue, its use over time. Pure.

A node is a row of cells (at most `ROW_MAX`), islands outlined, MIG devices inside their cell, in the SVG's own units. A bar shows what a
queue uses of what it may, with marks for its fair share and what it deserves. A history is an area of what was used, a line of what was
requested, and what it deserves, in percents, so it is as wide as its page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import urlencode

from markupsafe import Markup

from fairlead.kube.quantity import amount
from fairlead.ui.model.cluster import STATES, GpuView, Hold, NodeView, PartView
from fairlead.ui.model.facts import ELSEWHERE, gang_text
from fairlead.ui.model.queues import POINTS, Line, QueueHistory, Series, Share

ROW_MAX = 8
GAP = 3
EDGE = 3  # around everything: room for outlines
SMALL, LARGE = 12, 20  # cells, with more than MANY nodes and with fewer
MANY = 64


@dataclass(frozen=True, slots=True)
class Cell:
    """`css`: the queue's class and the state; `pattern`: what lies over it, "" for nothing; `title`: for hovering.

    A cross lies over whatever takes no new claim: over the queue's colour where a claim still holds it.
    """

    box: Markup  # place and size, as attributes
    css: Markup
    pattern: str
    title: str
    parts: tuple[Cell, ...] = ()


@dataclass(frozen=True, slots=True)
class Outline:
    x: int
    y: int
    width: int


@dataclass(frozen=True, slots=True)
class NodeMap:
    name: str
    link: str
    label: str  # what the picture says, in words
    problem: str
    kinds: str  # which GPUs it has, and how many of each
    free: int
    width: int
    height: int
    cell: int
    cells: tuple[Cell, ...]
    outlines: tuple[Outline, ...]


def node_map(node: NodeView, colours: Mapping[str, str], *, cell: int) -> NodeMap:
    places, outlines = _places(node, cell)
    cells = tuple(_cell(gpu, x, y, cell, colours) for gpu, (x, y) in zip(node.gpus, places, strict=True))
    return NodeMap(
        name=node.name,
        link=f"/map?{urlencode({'node': node.name})}#node",
        label=summary(node),
        problem=node.problem,
        kinds=kinds(node),
        free=node.free,
        width=max(x for x, _ in places) + cell + EDGE,
        height=max(y for _, y in places) + cell + EDGE,
        cell=cell,
        cells=cells,
        outlines=tuple(outlines),
    )


def summary(node: NodeView) -> str:
    counts = Counter(gpu.state for gpu in node.gpus)
    counted = dict.fromkeys(STATES, 0) | counts | {"free": node.free, "fragmented": 0}
    within = f" ({counts['fragmented']} fragmented)" if counts["fragmented"] else ""
    said = ", ".join(
        f"{number} {state}" + (within if state == "free" else "") for state, number in counted.items() if number
    )
    return f"{node.name}: {len(node.gpus)} GPUs, {said}" + (f"; {node.problem}" if node.problem else "")


def kinds(node: NodeView) -> str:
    """The kinds of GPUs, as "8 × H100 80GB HBM3", in the order of the devices. The maker's name tells none apart and is left out."""
    found = Counter(gpu.product.removeprefix("NVIDIA ") or "GPU" for gpu in node.gpus)
    return ", ".join(f"{number} × {product}" for product, number in found.items())


def hold_text(hold: Hold) -> str:
    queue = f" (queue {hold.queue})" if hold.queue else ""
    load = "" if hold.utilization_percent is None else f", load {hold.utilization_percent} %"
    if hold.elsewhere:
        return f"{hold.state}, {ELSEWHERE}{queue}{load}"
    who = f"gang {hold.gang}" if hold.gang else "no gang"
    share = f", {hold.share}" if hold.share else ""
    return f"{hold.state}, {who}{queue}, claim {hold.claim}{load}{share}"


def _cell(gpu: GpuView, x: int, y: int, size: int, colours: Mapping[str, str]) -> Cell:
    colour = colours.get(gpu.holds[0].queue, "") if gpu.holds else ""
    parts = tuple(
        _part(part, x, y, size, gpu.slices, place, len(gpu.parts), colours) for place, part in enumerate(gpu.parts)
    )
    state = gpu.rest if gpu.parts else gpu.state
    return Cell(
        box=_box(x, y, size, size),
        css=_css(colour, state),
        pattern="broken" if gpu.note and state != "drained" else "" if state in {"held", "free"} else state,
        title=_title(gpu),
        parts=parts,
    )


def _part(
    part: PartView, x: int, y: int, size: int, slices: int, place: int, of: int, colours: Mapping[str, str]
) -> Cell:
    """Where it lies is not always published: then all parts are equally wide."""
    start, width = (part.start / slices, part.size / slices) if part.size else (place / of, 1 / of)
    return Cell(
        box=_box(round(x + size * start, 1), y, round(size * width, 1), size),
        css=_css(colours.get(part.holds[0].queue, "") if part.holds else "", part.state),
        pattern="" if part.state in {"held", "free"} else part.state,
        title=f"{part.name}: " + ("; ".join(map(hold_text, part.holds)) or part.state),
    )


@lru_cache(maxsize=4096)
def _box(x: float, y: int, width: float, height: int) -> Markup:
    return Markup('x="{}" y="{}" width="{}" height="{}"').format(x, y, width, height)


@lru_cache(maxsize=256)
def _css(colour: str, state: str) -> Markup:
    return Markup("{}").format(f"{colour} {state}".strip())


def _title(gpu: GpuView) -> str:
    said = "; ".join(map(hold_text, gpu.holds)) or gpu.state
    if gpu.note:
        said += f"; {gpu.note}" if gpu.holds else f", {gpu.note}"
    elif gpu.parts:
        said = f"{len(gpu.parts)} MIG devices"
    elif gpu.state == "nominated":
        said = f"free, its node is kept for {gang_text(gpu.kept_for)}"
    return f"{gpu.name}: {said}"


def _places(node: NodeView, cell: int) -> tuple[list[tuple[int, int]], list[Outline]]:
    """Where each cell is, row by row, a wider gap between islands; and a rectangle around the GPUs of each island, a row each."""
    found: list[tuple[int, int]] = []
    outlines: list[Outline] = []
    x = y = EDGE
    in_row = 0
    for island, gpus in node.islands:
        begun = x
        for number, _ in enumerate(gpus):
            if in_row == ROW_MAX:
                x, y, in_row = EDGE, y + cell + 2 * GAP, 0
                begun = x
            found.append((x, y))
            x, in_row = x + cell + GAP, in_row + 1
            ends = number == len(gpus) - 1 or in_row == ROW_MAX
            if island and len(gpus) > 1 and ends:
                outlines.append(Outline(x=begun - 2, y=y - 2, width=x - GAP - begun + 4))
        x += GAP
    return found, outlines


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
