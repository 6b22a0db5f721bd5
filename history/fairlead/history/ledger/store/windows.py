"""Which intervals overlap a window, and which part of one lies in it.

Most lie in a window whole, and the database adds those up. The others are read one by one and cut here, in exact integers: what the
samples say of an interval is spread evenly over it, and the part until a moment is rounded down. So the parts of adjacent windows add up
to the whole. An open interval ends where the ledger's knowledge ends (`as_of_us`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, FromClause, Select, and_, or_, select, union_all
from sqlalchemy.engine import Row
from sqlalchemy.sql import CompoundSelect

from fairlead.history.ledger.store.schema import INTERVALS, IS_LONG, IS_OPEN, START_HOUR
from fairlead.kube.timestamps import DAY_US, HOUR_US

START, END = INTERVALS.c.start_us, INTERVALS.c.end_us


class Window(NamedTuple):
    """The end excluded."""

    since_us: int
    until_us: int
    as_of_us: int


class Part(NamedTuple):
    """The part of an interval within a window."""

    start_us: int
    end_us: int
    sampled_us: int
    busy_us: int


def began_within(since_us: int | None, until_us: int) -> tuple[ColumnElement[bool], ...]:
    """It began at that time or later, and before `until_us`: with the hours that the index has."""
    before = (until_us > START, until_us // HOUR_US >= START_HOUR)
    return before if since_us is None else (*before, since_us <= START, since_us // HOUR_US <= START_HOUR)


def whole(window: Window) -> ColumnElement[bool]:
    """Intervals that lie in the window and last at all."""
    return and_(*began_within(window.since_us, window.until_us), window.until_us >= END, END > START)


def crossing(window: Window, columns: Sequence[Any], source: FromClause = INTERVALS) -> CompoundSelect[Any]:
    """The others that overlap it, and open ones that may: `columns` of them, from intervals or a join of them."""
    since_us, until_us = window.since_us, window.until_us
    over_since = and_(since_us - DAY_US > START, since_us < END)
    over_until = and_(since_us <= START, until_us - DAY_US > START, until_us < END)
    return union_all(
        _indexed(columns, source, "open", IS_OPEN),
        _indexed(columns, source, "start", *began_within(max(since_us, until_us - DAY_US), until_us), until_us < END),
        _indexed(columns, source, "start", *began_within(since_us - DAY_US, min(since_us, until_us)), since_us < END),
        _indexed(columns, source, "long", IS_LONG, since_us < END, or_(over_since, over_until)),
    )


def overlapping(window: Window, columns: Sequence[Any], *conditions: ColumnElement[bool]) -> CompoundSelect[Any]:
    """All of them, and open ones that may, under further conditions."""
    since_us, until_us = window.since_us, window.until_us
    return union_all(
        _indexed(columns, INTERVALS, "open", IS_OPEN, *conditions),
        _indexed(columns, INTERVALS, "start", *began_within(since_us - DAY_US, until_us), since_us < END, *conditions),
        _indexed(
            columns, INTERVALS, "long", IS_LONG, since_us < END, min(until_us, since_us - DAY_US) > START, *conditions
        ),
    )


def part(row: Row[Any], window: Window) -> Part | None:
    """None: nothing of it lies in the window. `row` has start_us, end_us, sampled_us, busy_us."""
    start_us, end_us = int(row.start_us), window.as_of_us if row.end_us is None else int(row.end_us)
    if start_us >= window.since_us and end_us <= window.until_us:
        return Part(start_us, end_us, int(row.sampled_us), int(row.busy_us)) if start_us < end_us else None
    begin_us, finish_us = max(start_us, window.since_us), min(end_us, window.until_us)
    if begin_us >= finish_us:
        return None
    length_us = end_us - start_us
    sampled_us, busy_us = (
        value * (finish_us - start_us) // length_us - value * (begin_us - start_us) // length_us
        for value in (int(row.sampled_us), int(row.busy_us))
    )
    return Part(begin_us, finish_us, sampled_us, busy_us)


def _indexed(columns: Sequence[Any], source: FromClause, index: str, *conditions: Any) -> Select[Any]:
    """SQLite, which has no statistics of the table, is told the index: it would read all of `start_us < …` rather than the open few."""
    asked = select(*columns).select_from(source).where(*conditions)
    return asked.with_hint(INTERVALS, f"INDEXED BY intervals_{index}", "sqlite")
