"""The map of nodes as SVG; pure.

A node is a row of cells (at most `ROW_MAX`), islands outlined, MIG devices inside their cell, in the SVG's own units. Where nodes are many,
neighbouring cells that look the same are one, and have no words of their own. A group of nodes is a bar with a part for each colour.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup

from fairlead.ui.model.cluster import STATES, GpuView, Hold, NodeView, PartView, State
from fairlead.ui.model.facts import ELSEWHERE, gang_text
from fairlead.ui.model.node_groups import MapChoice
from fairlead.ui.pages.colours import NONE, wanted

ROW_MAX = 8
GAP, EDGE, SMALL, LARGE = 3, 3, 8, 20  # the edge is room for outlines
MARKS = ("broken", "drained", "evicting")
LOADS = 5  # steps of the load's colours
LETTER = 6.2  # of a label, about


@dataclass(frozen=True)
class Look:
    """What cells look like: `colours` of queues, cells `dense` or with words, and the choice that links keep."""

    choice: MapChoice
    colours: Mapping[str, str]
    dense: bool

    @property
    def cell(self) -> int:
        return SMALL if self.dense else LARGE

    def colour(self, hold: Hold | None) -> str:
        """The class of what is held; "" of what is not."""
        if hold is None:
            return ""
        if self.choice.by == "queue":
            return self.colours.get(hold.queue, NONE)
        if self.choice.by == "gang":
            return f"q{wanted(hold.gang)[0]}" if hold.gang else NONE
        return load_class(hold.utilization_percent)


def load_class(percent: int | None) -> str:
    return NONE if percent is None else f"load{min(LOADS - 1, percent * LOADS // 100)}"


@dataclass(frozen=True, slots=True)
class Cell:
    """`css`: the colour's class and the state; `pattern`: what lies over it, "" for nothing; `title`: for hovering; `gang`: a key of the gang
    that holds it, by which its cells are found, "" for none.

    A cross lies over whatever takes no new claim: over the colour where a claim still holds it.
    """

    box: Markup  # place and size, as attributes
    css: Markup
    pattern: str
    title: str
    gang: str = ""
    parts: tuple[Cell, ...] = ()


@dataclass(frozen=True, slots=True)
class Outline:
    x: int
    y: int
    width: int


class Label(NamedTuple):
    """A gang's name across its cells."""

    box: Markup
    css: Markup
    gang: str
    text: str
    width: int  # of the text, about


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
    dense: bool
    cells: tuple[Cell, ...]
    outlines: tuple[Outline, ...]
    labels: tuple[Label, ...]


def node_map(node: NodeView, look: Look) -> NodeMap:
    cell, gap = look.cell, 1 if look.dense else GAP
    places, outlines = _places(node, cell, gap)
    cells = [_cell(gpu, x, y, look) for gpu, (x, y) in zip(node.gpus, places, strict=True)]
    return NodeMap(
        name=node.name,
        link=f"/map{look.choice.query(node=node.name)}#node",
        label=summary(node),
        problem=node.problem,
        kinds=kinds(node),
        free=node.of("free"),
        width=max(x for x, _ in places) + cell + EDGE,
        height=max(y for _, y in places) + cell + EDGE,
        cell=cell,
        dense=look.dense,
        cells=tuple(_merged(cells, places, cell) if look.dense else cells),
        outlines=() if look.dense else tuple(outlines),
        labels=() if look.dense else tuple(_labels(node, cells, places, cell)),
    )


def _merged(cells: Sequence[Cell], places: Sequence[tuple[int, int]], size: int) -> Iterable[Cell]:
    """One for neighbours in a row that look the same, but for those whose pattern is a mark of each."""

    def alike(at: int) -> tuple[int, str, str, str, int]:
        each = cells[at]
        return places[at][1], each.css, each.pattern, each.gang, at if each.pattern in MARKS else -1

    for (y, css, pattern, gang, _), run in groupby(range(len(cells)), key=alike):
        first, *rest = run
        x, last = places[first][0], places[rest[-1] if rest else first][0]
        yield Cell(box=_box(x, y, last + size - x, size), css=Markup(css), pattern=pattern, title="", gang=gang)  # noqa: S704 - of a cell


def _labels(node: NodeView, cells: Sequence[Cell], places: Sequence[tuple[int, int]], size: int) -> Iterable[Label]:
    """Across two or more cells of one row that one gang holds whole."""

    def gang(at: int) -> tuple[int, str]:
        return places[at][1], node.gpus[at].holds[0].gang if node.gpus[at].holds else ""

    for (y, name), run in groupby(range(len(cells)), key=gang):
        found = list(run)
        if name and len(found) > 1:
            x = places[found[0]][0]
            wide = places[found[-1]][0] + size - x
            text = name.partition("/")[2]
            most = int(wide / LETTER)
            yield Label(
                box=_box(x, y, wide, size),
                css=cells[found[0]].css,
                gang=cells[found[0]].gang,
                text=text if len(text) <= most else f"{text[: most - 1]}…",
                width=min(wide, round(LETTER * len(text)) + 7),
            )


def summary(node: NodeView) -> str:
    counts = Counter(gpu.state for gpu in node.gpus)
    counted = dict.fromkeys(STATES, 0) | counts | {"free": node.of("free"), "fragmented": 0, "nominated": 0}
    apart = ", ".join(f"{counts[state]} {state}" for state in ("fragmented", "nominated") if counts[state])
    within = f" ({apart})" if apart else ""
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
    evicting = ", is being evicted" if hold.evicting else ""
    return f"{hold.state}, {who}{queue}, claim {hold.claim}{load}{share}{evicting}"


def gang_key(gang: str) -> str:
    """By which a page finds all cells of a gang; "" where its name may not be seen."""
    return hashlib.blake2s(gang.encode("utf-8", "replace"), digest_size=4).hexdigest() if gang else ""


def bar(nodes: Iterable[NodeView], look: Look) -> tuple[tuple[Markup, float], ...]:
    """The parts of a group's bar: class and percent, what is held first, of equal colours in the order of their names."""
    counts: Counter[tuple[bool, str]] = Counter()
    for node in nodes:
        for gpu in node.gpus:
            hold = _hold(gpu)
            counts[hold is None, f"{look.colour(hold)} held" if hold is not None else gpu.state] += 1
    total = sum(counts.values()) or 1
    return tuple((_css("", css), round(100 * counts[key, css] / total, 2)) for key, css in sorted(counts))


def _hold(gpu: GpuView) -> Hold | None:
    """What holds it, or a part of it."""
    return next((hold for hold in (*gpu.holds, *(hold for part in gpu.parts for hold in part.holds))), None)


def _cell(gpu: GpuView, x: int, y: int, look: Look) -> Cell:
    held = _hold(gpu) if look.dense else gpu.holds[0] if gpu.holds else None
    drawn = () if look.dense else gpu.parts
    parts = tuple(
        _part(part, x, y, gpu.slices, place, len(gpu.parts), look) for place, part in enumerate(drawn)
    )  # fmt: skip
    state = gpu.rest if drawn else gpu.state
    return Cell(
        box=_box(x, y, look.cell, look.cell),
        css=_css(look.colour(held), state),
        pattern="broken" if gpu.note and state != "drained" else _pattern(state, held),
        title=_title(gpu),
        gang=gang_key(held.gang) if held is not None else "",
        parts=parts,
    )


def _pattern(state: State, held: Hold | None) -> str:
    if held is not None and held.evicting:
        return "evicting"
    return "" if state in {"held", "free"} else state


def _part(part: PartView, x: int, y: int, slices: int, place: int, of: int, look: Look) -> Cell:
    """Where it lies is not always published: then all parts are equally wide."""
    start, width = (part.start / slices, part.size / slices) if part.size else (place / of, 1 / of)
    held = part.holds[0] if part.holds else None
    return Cell(
        box=_box(round(x + look.cell * start, 1), y, round(look.cell * width, 1), look.cell),
        css=_css(look.colour(held), part.state),
        pattern=_pattern(part.state, held),
        title=f"{part.name}: " + ("; ".join(map(hold_text, part.holds)) or part.state),
        gang=gang_key(held.gang) if held is not None else "",
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


def _places(node: NodeView, cell: int, gap: int) -> tuple[list[tuple[int, int]], list[Outline]]:
    """Where each cell is, row by row, a wider gap between islands; and a rectangle around the GPUs of each island, a row each."""
    found: list[tuple[int, int]] = []
    outlines: list[Outline] = []
    x = y = EDGE
    in_row = 0
    for island, gpus in node.islands:
        begun = x
        for number, _ in enumerate(gpus):
            if in_row == ROW_MAX:
                x, y, in_row = EDGE, y + cell + 2 * gap, 0
                begun = x
            found.append((x, y))
            x, in_row = x + cell + gap, in_row + 1
            ends = number == len(gpus) - 1 or in_row == ROW_MAX
            if island and len(gpus) > 1 and ends:
                outlines.append(Outline(x=begun - 2, y=y - 2, width=x - gap - begun + 4))
        x += gap
    return found, outlines
