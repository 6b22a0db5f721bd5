"""Two lives of one day as a picture: the part of the devices in use, and the gangs that wait, over time. SVG, no dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP = 760, 420, 60, 20, 34
PANEL = 150  # height of one plot
COLOURS = ("#1f77b4", "#d62728")
POINTS_MAX = 2_000
Curve = Sequence[tuple[float, float, int]]  # seconds, part in use, gangs that wait


def draw(curves: Sequence[tuple[str, Curve]]) -> str:
    """One line per policy in each of two plots."""
    last_s = max((curve[-1][0] for _, curve in curves if curve), default=0.0) or 1.0
    most = max((point[2] for _, curve in curves for point in curve), default=0) or 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for number, (name, _) in enumerate(curves):
        parts.append(f'<text x="{LEFT + 200 * number}" y="16" fill="{COLOURS[number % 2]}">{escape(name)}</text>')
    for place, (title, scale) in enumerate((("devices in use, %", 1.0), ("gangs that wait", float(most)))):
        top = TOP + place * (PANEL + 40)
        parts += _frame(title, top, 100.0 if place == 0 else scale, last_s)
        for number, (_, curve) in enumerate(curves):
            points = " ".join(
                f"{LEFT + seconds / last_s * (WIDTH - LEFT - RIGHT):.1f},{top + PANEL * (1 - value / scale):.1f}"
                for seconds, value in _steps([(point[0], float(point[1 + place])) for point in curve])
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[number % 2]}" stroke-width="1.5"/>')
    return "\n".join([*parts, "</svg>", ""])


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A value holds until the next one; of very many points only some are drawn."""
    thinned = points[:: max(1, len(points) // POINTS_MAX)]
    found: list[tuple[float, float]] = []
    for seconds, value in thinned:
        if found:
            found.append((seconds, found[-1][1]))
        found.append((seconds, value))
    return found


def _frame(title: str, top: float, most: float, last_s: float) -> list[str]:
    right, bottom = WIDTH - RIGHT, top + PANEL
    parts = [f'<text x="{LEFT}" y="{top - 5}">{title}</text>']
    for part in (0.0, 0.5, 1.0):
        y = f"{bottom - PANEL * part:.1f}"
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y}" text-anchor="end">{most * part:g}</text>')
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + part * (right - LEFT)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{last_s * part / 3600:.1f} h</text>')
    return parts
