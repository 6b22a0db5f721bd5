"""Time by what the caller asks for: intervals added up by series in the database, series added up by keys here.

SQLite sorts for GROUP BY, 1.5 s for 700,000 intervals; adding each to a row of a temporary table takes 0.4 s. PostgreSQL hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Integer, MetaData, Select, Table, delete, func, literal, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection

from fairlead.history.ledger.entries import BUCKETS, GROUPS, Bucket, Measure, Sum
from fairlead.history.ledger.store.lookups import Lookups, Series, Spot
from fairlead.history.ledger.store.schema import ALLOCATIONS, DAY_US, INTERVALS
from fairlead.history.ledger.store.windows import Window, crossing, part, whole

LABEL: Final = "label="
Group = tuple[int, int, int]  # series, place, gang; 0: does not matter
Totals = list[int]  # time_us, sampled_us, busy_us

_TEMPORARY: Final = Table(
    "added",
    MetaData(),
    *(Column(name, Integer, primary_key=True, autoincrement=False) for name in ("series", "place", "gang")),
    *(Column(name, BigInteger, nullable=False) for name in ("time_us", "sampled_us", "busy_us")),
    prefixes=["TEMPORARY"],
)


def sums(connection: Connection, window: Window, by: Sequence[str]) -> list[Sum]:
    """Ordered by keys, bucket, lost and measure. Raises ValueError for a name that is none of GROUPS and no label."""
    for name in by:
        if name not in GROUPS and not (name.startswith(LABEL) and name != LABEL):
            raise ValueError(f"by: {name!r} is nothing to sum by: give {', '.join(GROUPS)}, or {LABEL}NAME")
    lookups = Lookups(connection)
    found: dict[tuple[tuple[str, ...], Bucket, bool, Measure], Totals] = {}
    for piece, day in _pieces(window, by_day="day" in by):
        groups = _groups(connection, piece, by_place=bool({"node", "unit"} & set(by)), by_gang="gang" in by)
        series = lookups.series(group[0] for group in groups)
        spots = lookups.spots(group[1] for group in groups if group[1])
        gangs = lookups.gang_names(group[2] for group in groups if group[2])
        for (number, place, gang), totals in groups.items():
            one = series[number]
            keys = tuple(_key(name, one, spots.get(place), gangs.get(gang, ""), day) for name in by)
            _add(found.setdefault((keys, one.bucket, one.lost, one.measure), [0, 0, 0]), totals)
    made = [
        Sum(keys=keys, bucket=bucket, lost=lost, measure=measure, time_us=time_us, sampled_us=sampled_us, busy_us=busy_us)
        for (keys, bucket, lost, measure), (time_us, sampled_us, busy_us) in found.items()
    ]  # fmt: skip
    return sorted(made, key=lambda one: (one.keys, BUCKETS.index(one.bucket), one.lost, *_measure_order(one.measure)))


def days(window: Window) -> Iterator[tuple[int, Window]]:
    """Midnight (UTC) of each day that the window touches, and its part of that day."""
    day_us = window.since_us // DAY_US * DAY_US
    until_us = min(window.until_us, window.as_of_us)
    while day_us < until_us:
        yield (
            day_us,
            window._replace(since_us=max(day_us, window.since_us), until_us=min(day_us + DAY_US, window.until_us)),
        )
        day_us += DAY_US


def _pieces(window: Window, *, by_day: bool) -> Iterator[tuple[Window, str]]:
    if not by_day:
        yield window, ""
        return
    for day_us, piece in days(window):
        yield piece, datetime.fromtimestamp(day_us // 1_000_000, UTC).date().isoformat()


def _key(name: str, series: Series, spot: Spot | None, gang: str, day: str) -> str:
    if name.startswith(LABEL):
        return dict(series.owner.labels).get(name.removeprefix(LABEL), "")
    match name:
        case "queue" | "namespace" | "user":
            return str(getattr(series.owner, name))
        case "flavor":
            return series.measure.flavor
        case "bucket":
            return series.bucket
        case "gang":
            return gang
        case "day":
            return day
        case _:
            return "" if spot is None else str(getattr(spot, name))


def _groups(connection: Connection, window: Window, *, by_place: bool, by_gang: bool) -> dict[Group, Totals]:
    keys = [
        INTERVALS.c.series.label("series"),
        INTERVALS.c.place.label("place") if by_place else literal(0).label("place"),
        func.coalesce(ALLOCATIONS.c.gang, 0).label("gang") if by_gang else literal(0).label("gang"),
    ]
    source = INTERVALS.outerjoin(ALLOCATIONS, ALLOCATIONS.c.id == INTERVALS.c.allocation) if by_gang else INTERVALS
    found: dict[Group, Totals] = {}
    for series, place, gang, *totals in _whole(connection, select(*keys).select_from(source), window):
        found[int(series), int(place), int(gang)] = [int(total) for total in totals]
    columns = [*keys, INTERVALS.c.start_us, INTERVALS.c.end_us, INTERVALS.c.sampled_us, INTERVALS.c.busy_us]
    # One select with a FROM of its own for each part of the union.
    for row in connection.execute(crossing(window, columns, source=source)):
        cut = part(row, window)
        if cut is not None:
            group = (int(row.series), int(row.place), int(row.gang))
            _add(found.setdefault(group, [0, 0, 0]), [cut.end_us - cut.start_us, cut.sampled_us, cut.busy_us])
    return found


def _whole(connection: Connection, keys: Select[Any], window: Window) -> Iterator[Sequence[Any]]:
    """The keys of each group and its totals."""
    length_us = INTERVALS.c.end_us - INTERVALS.c.start_us
    if connection.dialect.name != "sqlite":
        totals = [func.sum(each) for each in (length_us, INTERVALS.c.sampled_us, INTERVALS.c.busy_us)]
        asked = keys.add_columns(*totals).where(whole(window)).group_by("series", "place", "gang")
        return iter(connection.execute(asked))
    _TEMPORARY.create(connection, checkfirst=True)
    connection.execute(delete(_TEMPORARY))
    asked = keys.add_columns(length_us, INTERVALS.c.sampled_us, INTERVALS.c.busy_us).where(whole(window))
    insert = sqlite.insert(_TEMPORARY).from_select([column.name for column in _TEMPORARY.c], asked)
    summed = {name: _TEMPORARY.c[name] + insert.excluded[name] for name in ("time_us", "sampled_us", "busy_us")}
    connection.execute(insert.on_conflict_do_update(index_elements=["series", "place", "gang"], set_=summed))
    return iter(connection.execute(select(_TEMPORARY)))


def _add(to: Totals, totals: Sequence[int]) -> None:
    for place, value in enumerate(totals):
        to[place] += value


def _measure_order(measure: Measure) -> tuple[Any, ...]:
    return measure.flavor, measure.share_ppm, measure.amount, measure.capacity_type or ""
