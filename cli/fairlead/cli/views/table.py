"""Tables that fit the terminal: texts are shortened and columns left out where the width is not enough.

Figures are never shortened. A column says how far it may be shortened and when it may be left out; the result lists the
columns that were. Without a width, as for a pipe, nothing is shortened. Pure.

Example: columns QUEUE (least 10) and USED (right), a width of 16 and a queue `research/vision`: `resear…ion     8`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

GAP = 2


@dataclass(frozen=True, kw_only=True)
class Column:
    """`least`: to how many characters it may be shortened (0: never), `most`: beyond how many it is in any case where there is
    a width (0: never); `dispensable`: left out first, from 1 up (0: never).
    """

    title: str
    right: bool = False
    least: int = 0
    most: int = 0
    dispensable: int = 0
    sentence: bool = False  # shortened at its end, not in its middle


class Cell(NamedTuple):
    text: str
    colour: str = ""


class Fitted(NamedTuple):
    lines: tuple[tuple[Cell, ...], ...]  # the title first; padded
    missing: tuple[str, ...]  # titles of columns that had no room


def fit(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> Fitted:
    natural = [
        max([len(column.title), *(len(row[place].text) for row in rows)]) for place, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    if width is not None:
        natural = [min(wide, column.most or wide) for column, wide in zip(columns, natural, strict=True)]
    needed = [
        max(len(column.title), min(wide, column.least or wide)) for column, wide in zip(columns, natural, strict=True)
    ]
    going = sorted(
        (place for place in shown if columns[place].dispensable), key=lambda place: columns[place].dispensable
    )
    while width is not None and going and _total(needed, shown) > width:
        shown.remove(going.pop(0))
    sizes = natural if width is None else _grown(needed, natural, shown, width - _total(needed, shown))
    titles = [Cell(column.title, "bold") for column in columns]
    last = shown[-1]
    lines = tuple(
        tuple(_padded(row[place], columns[place], sizes[place], last=place == last) for place in shown)
        for row in (titles, *rows)
    )
    return Fitted(lines, tuple(column.title for place, column in enumerate(columns) if place not in shown))


def _total(sizes: Sequence[int], shown: Sequence[int]) -> int:
    return sum(sizes[place] for place in shown) + GAP * (len(shown) - 1)


def _grown(needed: Sequence[int], natural: Sequence[int], shown: Sequence[int], spare: int) -> list[int]:
    """Sizes after the spare characters were given, one each in turn, to the smallest columns that need more."""
    sizes = list(needed)
    while spare > 0:
        short = [place for place in shown if sizes[place] < natural[place]]
        if not short:
            break
        smallest = min(sizes[place] for place in short)
        for place in short:
            if sizes[place] == smallest and spare > 0:
                sizes[place] += 1
                spare -= 1
    return sizes


def _padded(cell: Cell, column: Column, size: int, *, last: bool) -> Cell:
    text = shortened(cell.text, size, sentence=column.sentence)
    if column.right:
        return Cell(text.rjust(size), cell.colour)
    return Cell(text if last else text.ljust(size), cell.colour)


def shortened(text: str, size: int, *, sentence: bool = False) -> str:
    """A sentence keeps its beginning, a name both ends: the names of one Job's pods differ at the end."""
    if len(text) <= size:
        return text
    if sentence or size < 8:
        return text[: max(0, size - 1)] + "…"
    end = (size - 1) // 3
    return f"{text[: size - 1 - end]}…{text[-end:]}"
