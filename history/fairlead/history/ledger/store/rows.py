"""Intervals as rows of `intervals`: their words interned in tables of their own, so that a row has integers only.

What a transaction found is remembered when it is committed (`keep`), and forgotten when it is not, for then a number may belong to
something else later. Caches are emptied when they are full, and when another program has removed rows (retention).
"""

from __future__ import annotations

import json
import operator
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Table, UniqueConstraint, and_, bindparam, select, tuple_, update
from sqlalchemy.engine import Connection

from fairlead.history.ledger.entries import Allocation, Interval, Measure
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
from fairlead.kube.timestamps import DAY_US

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


Values = tuple[Any, ...]
ENTRIES_MAX: Final = 100_000  # of one table: some 30 MB of allocations
_ROWS: Final = 200  # of one statement: SQLite takes 32,766 parameters, PostgreSQL 65,535


class Interning:
    def __init__(self) -> None:
        self._kept: dict[str, dict[Values, int]] = {}
        self._found: dict[str, dict[Values, int]] = {}
        self._seen: dict[str, dict[int, int]] = {}  # by table: when `seen_us` of a row was written

    def keep(self) -> None:
        """The transaction was committed."""
        for name, found in self._found.items():
            kept = self._kept.setdefault(name, {})
            if len(kept) + len(found) > ENTRIES_MAX:
                kept.clear()
                self._seen.pop(name, None)
            kept.update(found)
        self._found = {}

    def undo(self) -> None:
        """The transaction was not committed: `seen_us` was not written either."""
        self._found = {}
        self._seen = {}

    def forget(self) -> None:
        self._kept = {}
        self.undo()

    def numbers(
        self,
        connection: Connection,
        table: Table,
        rows: Mapping[Values, Mapping[str, Any]] | Iterable[Values],
    ) -> dict[Values, int]:
        """The numbers of rows by their unique values, which are inserted where they are missing.

        `rows`: the values, in the order of the table's unique columns; a mapping where a row has other columns too.
        """
        columns = unique_columns(table)
        others = rows if isinstance(rows, Mapping) else {}
        kept, found = self._kept.get(table.name, {}), self._found.setdefault(table.name, {})
        wanted = dict.fromkeys(rows)
        missing = [value for value in wanted if value not in kept and value not in found]
        if missing:
            found.update(_look_up(connection, table, columns, missing))
            absent = [value for value in missing if value not in found]
            if absent:
                new = [{**dict(zip(columns, value, strict=True)), **others.get(value, {})} for value in absent]
                connection.execute(table.insert(), new)
                found.update(_look_up(connection, table, columns, absent))
        return {value: found[value] if value in found else kept[value] for value in wanted}

    def touch(self, connection: Connection, table: Table, used: Mapping[int, int]) -> None:
        """Notes when rows were last used, by number, to the day."""
        seen = self._seen.setdefault(table.name, {})
        due = {number: time_us for number, time_us in used.items() if seen.get(number, -DAY_US) + DAY_US <= time_us}
        if due:
            later = update(table).where(table.c.id == bindparam("number"), table.c.seen_us < bindparam("time_us"))
            moments = [{"number": number, "time_us": time_us} for number, time_us in due.items()]
            connection.execute(later.values(seen_us=bindparam("time_us")), moments)
            seen.update(due)


def unique_columns(table: Table) -> list[str]:
    constraint = next(each for each in table.constraints if isinstance(each, UniqueConstraint))
    return [column.name for column in constraint.columns]


def _look_up(
    connection: Connection, table: Table, columns: Sequence[str], values: Sequence[Values]
) -> dict[Values, int]:
    key = [table.c[name] for name in columns]
    found: dict[Values, int] = {}
    for first in range(0, len(values), _ROWS):
        chunk = values[first : first + _ROWS]
        for number, *value in connection.execute(select(table.c.id, *key).where(tuple_(*key).in_(chunk))):
            found[tuple(value)] = int(number)
    return found


_TEXT = b"\0text:"  # before a UID that is no UUID in its usual form; no UUID is that long


def uid_bytes(uid: str) -> bytes:
    """16 bytes instead of 36, in the table and in its index, for the UIDs that Kubernetes writes."""
    try:
        found = uuid.UUID(uid)
    except ValueError:
        found = None
    return found.bytes if found is not None and str(found) == uid else _TEXT + uid.encode().ljust(16)


def uid_text(stored: bytes) -> str:
    return str(uuid.UUID(bytes=stored)) if len(stored) == 16 else stored.removeprefix(_TEXT).rstrip().decode()


def labels_text(labels: tuple[tuple[str, str], ...]) -> str:
    return json.dumps(dict(labels), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def labels_of(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(json.loads(text).items()))


def measure_values(measure: Measure) -> tuple[int, str, str, str]:
    return measure.share_ppm, measure.flavor, str(measure.amount), measure.capacity_type or ""
