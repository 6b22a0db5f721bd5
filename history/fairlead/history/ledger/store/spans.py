"""What each claim held within a window, and from when to when: one pass over its intervals, added up by allocation and place; and those of
one gang as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Integer, and_, case, desc, func, select
from sqlalchemy.engine import Connection, Row

from fairlead.history.ledger.entries import BUCKETS, Allocation, Bucket, Held, Sampled, Span, Stretch
from fairlead.history.ledger.store.schema import ALLOCATIONS, ENDS, GANGS, INTERVALS, MEASURES, OWNERS, PLACES, SERIES
from fairlead.history.ledger.store.windows import Lookups, Part, Series, Spot, Window, overlapping, part

_ROWS: Final = 5_000  # of the database at a time


def spans(connection: Connection, window: Window) -> Iterator[Span]:
    """Cut to the window; in order of allocation and place, as the ledger numbers them."""
    columns = [
        getattr(INTERVALS.c, name) for name in ("allocation", "place", "series", "start_us", "end_us", "ended_by")
    ]
    every = overlapping(window, columns, INTERVALS.c.allocation.is_not(None)).subquery()
    end_us = func.coalesce(every.c.end_us, window.as_of_us)
    held = (
        select(
            every.c.allocation,
            every.c.place,
            func.max(SERIES.c.measure).label("measure"),
            func.max(SERIES.c.lost.cast(Integer)).label("lost"),
            func.min(every.c.start_us).label("start_us"),
            func.max(end_us).label("end_us"),
            func.max(case((every.c.end_us.is_(None), 1), else_=0)).label("goes_on"),
            func.max(every.c.ended_by).label("ended_by"),
        )
        .join(SERIES, SERIES.c.id == every.c.series)
        .where(and_(every.c.start_us < window.until_us, end_us > window.since_us, end_us > every.c.start_us))
        .group_by(every.c.allocation, every.c.place)
        .subquery()
    )
    asked = (
        select(
            OWNERS.c.namespace, OWNERS.c.queue, GANGS.c.name, ALLOCATIONS.c.claim, ALLOCATIONS.c.allocated_us, PLACES.c.node,
            MEASURES.c.flavor, MEASURES.c.amount, MEASURES.c.share_ppm, held.c.start_us, held.c.end_us, held.c.goes_on, held.c.lost, ENDS.c.word, PLACES.c.device,
        )
        .select_from(held)
        .join(ALLOCATIONS, ALLOCATIONS.c.id == held.c.allocation)
        .join(GANGS, GANGS.c.id == ALLOCATIONS.c.gang)
        .join(OWNERS, OWNERS.c.id == GANGS.c.owner)
        .join(PLACES, PLACES.c.id == held.c.place)
        .join(MEASURES, MEASURES.c.id == held.c.measure)
        .outerjoin(ENDS, ENDS.c.id == held.c.ended_by)
        .order_by(held.c.allocation, held.c.place)
        .execution_options(yield_per=_ROWS)
    )  # fmt: skip
    for (
        namespace, queue, gang, claim, allocated_us, node, flavor, amount, share_ppm, start_us, end, goes_on, lost, word, device,
    ) in connection.execute(asked):  # fmt: skip
        goes_on_then = bool(goes_on) or int(end) > window.until_us
        yield Span(
            namespace=namespace,
            queue=queue,
            gang=gang,
            claim=claim,
            allocated_us=int(allocated_us),
            node=node,
            flavor=flavor,
            amount=_fraction(amount),
            share_ppm=int(share_ppm),
            start_us=max(int(start_us), window.since_us),
            end_us=min(int(end), window.until_us),
            goes_on=goes_on_then,
            # Of an end that lies beyond the window nothing is said.
            ended_by="" if goes_on_then else word or "",
            lost=bool(lost),
            device=device,
        )


@lru_cache(maxsize=1024)
def _fraction(text: str) -> Fraction:
    return Fraction(text)


def stretches(connection: Connection, window: Window, namespace: str, gang: str, most: int) -> list[Stretch]:
    """In order of time, the newest `most`."""
    own = (
        select(ALLOCATIONS.c.id)
        .join(GANGS, GANGS.c.id == ALLOCATIONS.c.gang)
        .join(OWNERS, OWNERS.c.id == GANGS.c.owner)
        .where(OWNERS.c.namespace == namespace, GANGS.c.name == gang)
    )
    rows = overlapping(window, list(INTERVALS.c), INTERVALS.c.allocation.in_(own))
    newest = connection.execute(rows.order_by(desc("start_us"), "number").limit(most)).all()
    lookups = Lookups(connection)
    spots, series = lookups.spots(row.place for row in newest), lookups.series(row.series for row in newest)
    return [
        Stretch(spots[row.place].node, spots[row.place].device, series[row.series].bucket, *cut)
        for row in reversed(newest)
        if (cut := part(row, window)) is not None
    ]


_HELD_ROWS: Final = 2_000  # of the database at a time
_DEVICES: Final = 500  # whose names are looked up together


def held(connection: Connection, window: Window) -> Iterator[Held]:
    """In order of allocation, as the ledger numbers them, and place."""
    rows = overlapping(window, list(INTERVALS.c), INTERVALS.c.allocation.is_not(None))
    ordered = rows.order_by("allocation", "place", "start_us", "number").execution_options(yield_per=_HELD_ROWS)
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
