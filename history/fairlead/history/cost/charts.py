"""Small charts as inline SVG: no script, no font and no file of others. Colours are classes of the page, so that it can be dark or printed.

All texts are escaped. Coordinates are in units of the viewBox; the page decides how wide it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH = 720
ROW = 26
LABEL = 190
BAR = 12


class Bar(NamedTuple):
    """A row of `bars`: values from 0 to 1 with their classes, and texts before and behind."""

    label: str
    parts: Sequence[tuple[str, float]]
    text: str
    mark: float | None = None


def stacked(title: str, columns: Sequence[tuple[str, Mapping[str, float]]], height: int = 160) -> str:
    """One column per entry, of parts of 1 from below in the order given; `columns` has labels and parts by class."""
    top, left, bottom = 8, 48, height - 22
    slot = (WIDTH - left - 4) / max(1, len(columns))
    body = [
        f'<line class="grid" x1="{left}" x2="{WIDTH}" y1="{_y(part, top, bottom)}" y2="{_y(part, top, bottom)}"/>'
        f'<text class="axis" x="{left - 6}" y="{_y(part, top, bottom)}" text-anchor="end" dy="4">{round(part * 100)} %</text>'
        for part in (0.0, 0.5, 1.0)
    ]
    every = max(1, -(-len(columns) // 10))
    for place, (label, parts) in enumerate(columns):
        x, y = left + place * slot, float(bottom)
        shown = [f"{name} {part:.1%}" for name, part in parts.items() if part]
        body.append(f"<g><title>{escape(f'{label}: ' + ', '.join(shown))}</title>")
        for name, part in parts.items():
            high = part * (bottom - top)
            y -= high
            if part:
                body.append(
                    f'<rect class="{escape(name)}" x="{x + slot * 0.08:.2f}" y="{y:.2f}" width="{slot * 0.84:.2f}" height="{high:.2f}"/>'
                )
        body.append("</g>")
        if place % every == 0:
            body.append(
                f'<text class="axis" x="{x + slot / 2:.2f}" y="{height - 6}" text-anchor="middle">{escape(label)}</text>'
            )
    return _svg(title, height, body)


def bars(title: str, rows: Sequence[Bar], band: tuple[float, float] | None = None) -> str:
    """A row per bar, from left to right; `mark` is a line across it, `band` a range behind all of them."""
    height = ROW * len(rows) + 6
    span = WIDTH - LABEL - 150
    body: list[str] = []
    if band is not None:
        body.append(
            f'<rect class="band" x="{LABEL + band[0] * span:.2f}" y="0" width="{(band[1] - band[0]) * span:.2f}" height="{height}"/>'
        )
    for place, row in enumerate(rows):
        y, x = place * ROW + 6, float(LABEL)
        label = row.label if len(row.label) <= 28 else row.label[:27] + "…"
        body.append(
            f'<text x="{LABEL - 8}" y="{y + BAR - 2}" text-anchor="end">{escape(label)}<title>{escape(row.label)}</title></text>'
            f'<rect class="track" x="{LABEL}" y="{y}" width="{span}" height="{BAR}"/>'
        )
        for name, part in row.parts:
            wide = max(0.0, min(1.0, part)) * span
            body.append(f'<rect class="{escape(name)}" x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{BAR}"/>')
            x += wide
        if row.mark is not None:
            at = LABEL + max(0.0, min(1.0, row.mark)) * span
            body.append(f'<line class="mark" x1="{at:.2f}" x2="{at:.2f}" y1="{y - 3}" y2="{y + BAR + 3}"/>')
        body.append(f'<text x="{LABEL + span + 8}" y="{y + BAR - 2}">{escape(row.text)}</text>')
    return _svg(title, height, body)


def _svg(title: str, height: int, body: Sequence[str]) -> str:
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg">'
        f"{''.join(body)}</svg>"
    )


def _y(part: float, top: int, bottom: int) -> str:
    return f"{bottom - part * (bottom - top):.2f}"
