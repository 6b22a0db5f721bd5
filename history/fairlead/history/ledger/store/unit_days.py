"""Each unit's time of each day by bucket, weighed by share: what the conservation law is about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from fairlead.history.ledger.entries import BUCKETS, Bucket, Unit, UnitDay
from fairlead.history.ledger.store.lookups import Lookups
from fairlead.history.ledger.store.schema import INTERVALS
from fairlead.history.ledger.store.sums import days
from fairlead.history.ledger.store.windows import Window, crossing, part, whole


@dataclass(slots=True)
class _Day:
    first_us: int
    last_us: int
    node: str
    weighed: dict[Bucket, int] = field(default_factory=dict)


def unit_days(connection: Connection, window: Window) -> Iterator[UnitDay]:
    """Day by day; within one by unit."""
    lookups = Lookups(connection)
    for day_us, piece in days(window):
        units: dict[Unit, _Day] = {}
        rows = list(_parts(connection, piece))
        series, spots = lookups.series(row[1] for row in rows), lookups.spots(row[0] for row in rows)
        for place, number, first_us, last_us, time_us in rows:
            spot, one = spots[place], series[number]
            day = units.setdefault(spot.unit, _Day(first_us, last_us, spot.node))
            if (last_us, spot.node) > (day.last_us, day.node):
                day.node = spot.node  # the one that it was on last
            day.first_us, day.last_us = min(day.first_us, first_us), max(day.last_us, last_us)
            day.weighed[one.bucket] = day.weighed.get(one.bucket, 0) + one.measure.share_ppm * time_us
        for unit, day in sorted(units.items()):
            yield UnitDay(
                unit=unit,
                node=day.node,
                day_us=day_us,
                present_us=day.last_us - day.first_us,
                weighed=tuple((bucket, day.weighed[bucket]) for bucket in BUCKETS if bucket in day.weighed),
            )


def _parts(connection: Connection, window: Window) -> Iterator[tuple[int, int, int, int, int]]:
    """Place, series, first and last moment, and time of those together."""
    start_us, end_us = INTERVALS.c.start_us, INTERVALS.c.end_us
    keys = (INTERVALS.c.place, INTERVALS.c.series)
    added = (
        select(*keys, func.min(start_us), func.max(end_us), func.sum(end_us - start_us))
        .where(whole(window))
        .group_by(*keys)
    )
    for place, series, first_us, last_us, time_us in connection.execute(added):
        yield int(place), int(series), int(first_us), int(last_us), int(time_us)
    columns = [*keys, start_us, end_us, INTERVALS.c.sampled_us, INTERVALS.c.busy_us]
    for row in connection.execute(crossing(window, columns)):
        cut = part(row, window)
        if cut is not None:
            yield int(row.place), int(row.series), cut.start_us, cut.end_us, cut.end_us - cut.start_us
