"""What each claim held within a window: one entry for each of its devices, read in one pass over the intervals in order of claims."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy.engine import Connection, Row

from fairlead.history.ledger.entries import BUCKETS, Allocation, Bucket, Held, Sampled
from fairlead.history.ledger.store.lookups import Lookups, Series, Spot
from fairlead.history.ledger.store.schema import INTERVALS
from fairlead.history.ledger.store.windows import Part, Window, overlapping, part

_ROWS: Final = 2_000  # of the database at a time
_DEVICES: Final = 500  # whose names are looked up together


def held(connection: Connection, window: Window) -> Iterator[Held]:
    """In order of allocation, as the ledger numbers them, and place."""
    rows = overlapping(window, list(INTERVALS.c), INTERVALS.c.allocation.is_not(None))
    ordered = rows.order_by("allocation", "place", "start_us", "number").execution_options(yield_per=_ROWS)
    lookups = Lookups(connection)
    ends = lookups.ends()
    grouped = itertools.groupby(connection.execute(ordered), key=lambda row: (row.allocation, row.place))
    devices = ([(row, cut) for row in rows if (cut := part(row, window)) is not None] for _, rows in grouped)
    while chunk := list(itertools.islice(devices, _DEVICES)):
        rows_of_all = [row for device in chunk for row, _ in device]
        allocations = lookups.allocations(row.allocation for row in rows_of_all)
        spots = lookups.spots(row.place for row in rows_of_all)
        series = lookups.series(row.series for row in rows_of_all)
        for device in chunk:
            if device:
                first = device[0][0]
                yield _held(device, window, allocations[first.allocation], spots[first.place], series, ends)


def _held(
    parts: Sequence[tuple[Row[Any], Part]],
    window: Window,
    allocation: Allocation,
    spot: Spot,
    series: dict[int, Series],
    ends: dict[int, str],
) -> Held:
    times: dict[Bucket, int] = {}
    sampled_us = busy_us = 0
    for row, cut in parts:
        bucket = series[row.series].bucket
        times[bucket] = times.get(bucket, 0) + cut.end_us - cut.start_us
        sampled_us += cut.sampled_us
        busy_us += cut.busy_us
    last = parts[-1][0]
    return Held(
        allocation=allocation,
        unit=spot.unit,
        node=spot.node,
        device=spot.device,
        measure=series[last.series].measure,
        times_us=tuple((bucket, times[bucket]) for bucket in BUCKETS if bucket in times),
        sampled=Sampled(
            sampled_us=sampled_us,
            busy_us=busy_us,
            memory_peak_bytes=_largest(row.memory_peak_bytes for row, _ in parts),
            memory_bytes=_largest(row.memory_bytes for row, _ in parts),
        ),
        # Of an end that lies beyond the window nothing is said.
        ended_by=ends[last.ended_by] if last.end_us is not None and last.end_us <= window.until_us else "",
        lost=any(series[row.series].lost for row, _ in parts),
    )


def _largest(values: Iterator[int | None]) -> int | None:
    return max((int(value) for value in values if value is not None), default=None)
