"""Intervals as rows of `intervals`: their words interned, so that a row has integers only."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, bindparam, select, update
from sqlalchemy.engine import Connection

from fairlead.history.ledger.entries import Allocation, Interval
from fairlead.history.ledger.store.interning import Interning, Values
from fairlead.history.ledger.store.schema import (
    ALLOCATIONS,
    ENDS,
    GANGS,
    INTERVALS,
    MEASURES,
    OWNERS,
    PLACES,
    SERIES,
    UNITS,
)
from fairlead.history.ledger.store.words import labels_text, measure_values, uid_bytes

NONE = 0  # as a reference
_NO_NUMBERS = {"first_number": 2**62, "last_number": 0}  # of an allocation whose intervals are about to be written


def rows_of(
    connection: Connection, interning: Interning, as_of_us: int, intervals: Sequence[tuple[int, Interval]]
) -> list[dict[str, Any]]:
    """One row for each, in order; rows of other tables are written where they are missing."""
    each = [interval for _, interval in intervals]
    units = interning.numbers(connection, UNITS, (tuple(one.unit) for one in each))
    places = interning.numbers(
        connection, PLACES, {(units[tuple(one.unit)], one.node, one.device): {"seen_us": as_of_us} for one in each}
    )
    measures = interning.numbers(connection, MEASURES, (measure_values(one.measure) for one in each))
    ends = interning.numbers(connection, ENDS, ((one.ended_by,) for one in each if one.ended_by))
    allocations = {one.allocation for one in each if one.allocation is not None}
    owners, numbers = _allocation_numbers(connection, interning, sorted(allocations, key=_claim_values))
    series_values = [
        (
            NONE if one.allocation is None else owners[one.allocation],
            measures[measure_values(one.measure)],
            one.bucket,
            one.lost,
        )
        for one in each
    ]
    series = interning.numbers(connection, SERIES, {values: {"seen_us": as_of_us} for values in series_values})
    rows: list[dict[str, Any]] = [
        {
            "number": number,
            "start_us": one.start_us,
            "end_us": one.end_us,
            "place": places[units[tuple(one.unit)], one.node, one.device],
            "series": series[values],
            "allocation": None if one.allocation is None else numbers[_claim_values(one.allocation)],
            "sampled_us": one.sampled.sampled_us,
            "busy_us": one.sampled.busy_us,
            "memory_peak_bytes": one.sampled.memory_peak_bytes,
            "memory_bytes": one.sampled.memory_bytes,
            "ended_by": ends[one.ended_by,] if one.ended_by else NONE,
        }
        for (number, one), values in zip(intervals, series_values, strict=True)
    ]
    for table, column in ((PLACES, "place"), (SERIES, "series")):
        used: dict[int, int] = {}
        for row in rows:
            used[row[column]] = max(used.get(row[column], as_of_us), row["end_us"] or as_of_us)
        interning.touch(connection, table, used)
    _note_numbers(connection, rows)
    return rows


def mark_lost(connection: Connection, interning: Interning, as_of_us: int, claims: Sequence[tuple[str, int]]) -> None:
    """All intervals of these allocations: each moves to the series that differs from its own in `lost` alone."""
    for uid, allocated_us in claims:
        is_claim = (ALLOCATIONS.c.claim_uid == uid_bytes(uid)) & (ALLOCATIONS.c.allocated_us == allocated_us)
        found = connection.execute(
            select(ALLOCATIONS.c.id, ALLOCATIONS.c.first_number, ALLOCATIONS.c.last_number).where(is_claim)
        ).one_or_none()
        if found is None:
            continue  # its intervals are beyond retention
        number, first, last = found
        of_claim = and_(INTERVALS.c.number.between(first, last), INTERVALS.c.allocation == number)
        held = select(INTERVALS.c.series).where(of_claim)
        columns = (SERIES.c.id, SERIES.c.owner, SERIES.c.measure, SERIES.c.bucket)
        kept = connection.execute(select(*columns).where(SERIES.c.id.in_(held), ~SERIES.c.lost)).all()
        for series, owner, measure, bucket in kept:
            values: Values = (int(owner), int(measure), bucket, True)
            twin = interning.numbers(connection, SERIES, {values: {"seen_us": as_of_us}})[values]
            interning.touch(connection, SERIES, {twin: as_of_us})
            connection.execute(update(INTERVALS).where(of_claim, INTERVALS.c.series == series).values(series=twin))


def _note_numbers(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Write each allocation's new numbers."""
    spans: dict[int, tuple[int, int]] = {}
    for row in rows:
        number, allocation = row["number"], row["allocation"]
        if allocation is not None:
            first, last = spans.get(allocation, (number, number))
            spans[allocation] = min(first, number), max(last, number)
    of_one = ALLOCATIONS.c.id == bindparam("allocation")
    for column, place, beyond in (
        (ALLOCATIONS.c.first_number, 0, operator.gt),
        (ALLOCATIONS.c.last_number, 1, operator.lt),
    ):
        changed = (
            update(ALLOCATIONS).where(of_one, beyond(column, bindparam("number"))).values({column: bindparam("number")})
        )
        if spans:
            connection.execute(
                changed, [{"allocation": allocation, "number": span[place]} for allocation, span in spans.items()]
            )


def _allocation_numbers(
    connection: Connection, interning: Interning, allocations: Sequence[Allocation]
) -> tuple[dict[Allocation, int], dict[Values, int]]:
    """The owner of each, and the number of each by its claim."""
    owner_values = {one: (one.queue, one.namespace, one.user, labels_text(one.labels)) for one in allocations}
    owners = interning.numbers(connection, OWNERS, owner_values.values())
    gangs = interning.numbers(connection, GANGS, ((owners[owner_values[one]], one.gang) for one in allocations))
    numbers = interning.numbers(
        connection,
        ALLOCATIONS,
        {
            _claim_values(one): {"gang": gangs[owners[owner_values[one]], one.gang], "claim": one.claim, **_NO_NUMBERS}
            for one in allocations
        },
    )
    return {one: owners[values] for one, values in owner_values.items()}, numbers


def _claim_values(allocation: Allocation) -> Values:
    return uid_bytes(allocation.claim_uid), allocation.allocated_us
