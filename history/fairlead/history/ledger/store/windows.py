"""Which intervals overlap a window, and which part of one lies in it.

Most lie in a window whole, and the database adds those up. The others are read one by one and cut here, in exact integers: what the
samples say of an interval is spread evenly over it, and the part until a moment is rounded down. So the parts of adjacent windows add up
to the whole. An open interval ends where the ledger's knowledge ends (`as_of_us`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, FromClause, and_, select, union_all
from sqlalchemy.engine import Row
from sqlalchemy.sql import CompoundSelect

from fairlead.history.ledger.store.schema import DAY_US, INTERVALS, IS_LONG, IS_OPEN

START, END = INTERVALS.c.start_us, INTERVALS.c.end_us


class Window(NamedTuple):
    """The end excluded."""

    since_us: int
    until_us: int
    as_of_us: int


class Part(NamedTuple):
    """Of an interval within a window."""

    start_us: int
    end_us: int
    sampled_us: int
    busy_us: int


def whole(window: Window) -> ColumnElement[bool]:
    """Intervals that lie in the window and last at all."""
    return and_(window.since_us <= START, window.until_us > START, window.until_us >= END, END > START)


def crossing(window: Window, columns: Sequence[Any], source: FromClause = INTERVALS) -> CompoundSelect[Any]:
    """The others that overlap it: `columns` of them, from intervals or a join of them. Each part of the union has its index."""
    since_us, until_us = window.since_us, window.until_us
    return union_all(
        *(
            select(*columns).select_from(source).where(until_us > START, *conditions)
            for conditions in (
                (IS_OPEN,),
                (since_us <= START, until_us < END),
                (since_us > START, since_us - DAY_US < START, since_us < END),
                (since_us - DAY_US >= START, since_us < END, IS_LONG),
            )
        )
    )


def overlapping(window: Window, columns: Sequence[Any], *conditions: ColumnElement[bool]) -> CompoundSelect[Any]:
    """Both, of intervals, under further conditions."""
    since_us, until_us = window.since_us, window.until_us
    return union_all(
        *(
            select(*columns).where(until_us > START, *some, *conditions)
            for some in (
                (IS_OPEN,),
                (since_us - DAY_US < START, since_us < END),
                (since_us - DAY_US >= START, since_us < END, IS_LONG),
            )
        )
    )


def part(row: Row[Any], window: Window) -> Part | None:
    """None: nothing of it lies in the window. `row` has start_us, end_us, sampled_us, busy_us."""
    start_us, end_us = int(row.start_us), window.as_of_us if row.end_us is None else int(row.end_us)
    begin_us, finish_us = max(start_us, window.since_us), min(end_us, window.until_us)
    if begin_us >= finish_us:
        return None
    length_us = end_us - start_us
    sampled_us, busy_us = (
        value * (finish_us - start_us) // length_us - value * (begin_us - start_us) // length_us
        for value in (int(row.sampled_us), int(row.busy_us))
    )
    return Part(begin_us, finish_us, sampled_us, busy_us)
