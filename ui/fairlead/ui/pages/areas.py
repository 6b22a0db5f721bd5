"""A day of all devices as stacked areas in steps; pure. Across, a unit is a part of the day; down, `TALL` units are the most devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from fairlead.ui.model.day import BIN_S, BINS, GROUPS, Day, Group

TALL = 1000
HOURS = 6  # between two times below it


@dataclass(frozen=True, slots=True)
class Areas:
    """`paths`: what each group's area is, as an attribute. `titles`: of each part, in words. `most`: devices at the top. `hours`: unix seconds."""

    paths: tuple[tuple[Group, Markup], ...]
    titles: tuple[str, ...]
    most: int
    label: str
    hours: tuple[float, ...]


def areas(day: Day) -> Areas:
    """Of a day with parts."""
    rows = {group: day.of(group) for group in GROUPS}
    totals = [sum(values) for values in zip(*rows.values(), strict=True)]
    most = max(totals, default=0.0) or 1.0
    floor = [0.0] * len(totals)
    paths: list[tuple[Group, Markup]] = []
    for group, values in rows.items():
        top = [low + value for low, value in zip(floor, values, strict=True)]
        if any(values):
            paths.append((group, _path(floor, top, most)))
        floor = top
    last = next((place for place in reversed(range(len(totals))) if totals[place]), 0)
    return Areas(
        paths=tuple(paths),
        titles=tuple(_title(day, rows, place) for place in range(len(totals))),
        most=round(most),
        label=f"GPUs over the last day, {_said(rows, last)} at its end",
        hours=tuple(day.since + place * BIN_S for place in range(0, BINS, HOURS * 3600 // BIN_S)),
    )


def _path(floor: Sequence[float], top: Sequence[float], most: float) -> Markup:
    """There along the top, back along the floor."""

    def y(value: float) -> int:
        return round(TALL * (1 - value / most))

    there = "".join(f"V{y(value)}H{place + 1}" for place, value in enumerate(top))
    back = "".join(f"V{y(floor[place])}H{place}" for place in reversed(range(len(floor))))
    return Markup(f'd="M0 {y(top[0])}{there}{back}Z"')  # noqa: S704 - numbers alone


def _said(rows: dict[Group, tuple[float, ...]], place: int) -> str:
    return (
        ", ".join(f"{values[place]:.3g} {group}" for group, values in rows.items() if values[place] >= 0.05)
        or "none known"
    )


def _title(day: Day, rows: dict[Group, tuple[float, ...]], place: int) -> str:
    at = datetime.fromtimestamp(day.since + place * BIN_S, UTC)
    return f"{at:%H:%M} UTC: {_said(rows, place)}"
