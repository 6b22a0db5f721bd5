"""The conservation law: at each moment from a unit's first to its last of a day the shares of its intervals add up to the whole.

So a unit's weighed time of a day is WHOLE_PPM × the time that it was there, and no overlap makes up for a hole elsewhere. A unit that
goes in one day and comes back in another was not there between; that is no hole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from fairlead.history.ledger.entries import WHOLE_PPM, Unit
from fairlead.history.ledger.store.lookups import Lookups
from fairlead.history.ledger.store.schema import INTERVALS
from fairlead.history.ledger.store.sums import days
from fairlead.history.ledger.store.windows import Window, overlapping, part


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """From `start_us` to `end_us` the unit's shares add up to `share_ppm` instead of the whole: first time of that day."""

    unit: Unit
    day_us: int
    start_us: int
    end_us: int
    share_ppm: int
    weighed: int  # of the whole day
    present_us: int


def broken_days(connection: Connection, window: Window) -> Iterator[Broken]:
    """Day by day; within one by unit."""
    lookups = Lookups(connection)
    columns = [INTERVALS.c[name] for name in ("place", "series", "start_us", "end_us", "sampled_us", "busy_us")]
    for day_us, piece in days(window):
        parts = [
            (int(row.place), int(row.series), cut.start_us, cut.end_us)
            for row in connection.execute(overlapping(piece, columns))
            if (cut := part(row, piece)) is not None
        ]
        spots, series = lookups.spots(one[0] for one in parts), lookups.series(one[1] for one in parts)
        units: dict[Unit, list[tuple[int, int]]] = {}
        for place, number, start_us, end_us in parts:
            share_ppm = series[number].measure.share_ppm
            units.setdefault(spots[place].unit, []).extend(((start_us, share_ppm), (end_us, -share_ppm)))
        for unit, changes in sorted(units.items()):
            found = _first(unit, day_us, changes)
            if found is not None:
                yield found


def _first(unit: Unit, day_us: int, changes: Sequence[tuple[int, int]]) -> Broken | None:
    """`changes`: when shares begin, and, negative, end."""
    by_moment: dict[int, int] = {}
    for moment_us, share_ppm in changes:
        by_moment[moment_us] = by_moment.get(moment_us, 0) + share_ppm
    moments = sorted(by_moment)
    share_ppm = weighed = 0
    first: tuple[int, int, int] | None = None
    for begin_us, end_us in itertools.pairwise(moments):
        share_ppm += by_moment[begin_us]
        weighed += share_ppm * (end_us - begin_us)
        if share_ppm != WHOLE_PPM and first is None:
            first = begin_us, end_us, share_ppm
    if first is None:
        return None
    return Broken(
        unit=unit,
        day_us=day_us,
        start_us=first[0],
        end_us=first[1],
        share_ppm=first[2],
        weighed=weighed,
        present_us=moments[-1] - moments[0],
    )
