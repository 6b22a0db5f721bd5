"""A node's GPUs as rectangles of an SVG: a row of cells, islands outlined, MIG devices inside their cell. Pure.

Measures are in the SVG's own units. A row has at most `ROW_MAX` cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlencode

from markupsafe import Markup

from fairlead.ui.model.cluster import STATES, GpuView, Hold, NodeView, PartView
from fairlead.ui.model.facts import ELSEWHERE, gang_text

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
        link=f"/?{urlencode({'node': node.name})}#node",
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
