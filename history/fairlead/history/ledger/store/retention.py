"""What is older than the ledger is kept for is removed, some rows a transaction, so that no commit waits for seconds.

First intervals that ended before, with the allocations and gangs that they leave without any; when none is left, the places, series,
owners and measures that nothing refers to any more. Decisions about gangs are kept for a week at most. The file of SQLite does not shrink; its free pages are used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from sqlalchemy import Table, delete, exists, select, update
from sqlalchemy.engine import Connection

from fairlead.history.ledger.store.database import PATIENCE_S, Database
from fairlead.history.ledger.store.migrations import check_version
from fairlead.history.ledger.store.place import place_of
from fairlead.history.ledger.store.schema import (
    ALLOCATIONS,
    DECISIONS,
    GANGS,
    GAPS,
    INTERVALS,
    LEDGER,
    MEASURES,
    OWNERS,
    PLACES,
    SERIES,
    START_HOUR,
    UNITS,
    WAITS,
)
from fairlead.history.ledger.store.windows import began_within
from fairlead.kube.timestamps import DAY_US

DECISIONS_KEPT_US: Final = 7 * DAY_US
ROWS_MAX: Final = 5_000  # of one transaction: some 50 ms
_IDS: Final = 500  # of one statement


def prune(where: str, before_us: int, *, patience_s: float = PATIENCE_S) -> Iterator[int]:
    """Beside the leader, which keeps its term: the rows of each transaction, until none is left. Raises LedgerErrors."""
    database = Database(place_of(where), writable=True, create=False, patience_s=patience_s)
    try:
        removed = 1
        while removed:
            with database.transaction() as connection:
                check_version(connection, database.place)
                removed = remove_some(connection, before_us)
            yield removed
    finally:
        database.close()


def remove_some(connection: Connection, before_us: int, rows_max: int = ROWS_MAX) -> int:
    """At most so many intervals, gaps, waits and decisions each. How many; 0: nothing from before is left."""
    # Writers forget what they know of other tables, and a commit that runs meanwhile is waited for.
    connection.execute(update(LEDGER).values(pruned=LEDGER.c.pruned + 1))
    removed = _intervals(connection, before_us, rows_max)
    if removed < rows_max:
        _unused(connection, before_us)
    as_of_us = connection.execute(select(LEDGER.c.as_of_us)).scalar_one() or 0
    for time_us, end_us in (
        (GAPS.c.end_us, before_us),
        (WAITS.c.admitted_us, before_us),
        (DECISIONS.c.at_us, max(before_us, as_of_us - DECISIONS_KEPT_US)),
    ):
        later = select(time_us).where(time_us < end_us).order_by(time_us).offset(rows_max).limit(1)
        until_us = connection.execute(later).scalar_one_or_none()
        old = time_us < (end_us if until_us is None else until_us)
        removed += connection.execute(delete(time_us.table).where(old)).rowcount
    return removed


def _intervals(connection: Connection, before_us: int, rows_max: int) -> int:
    ended = (
        select(INTERVALS.c.number, INTERVALS.c.allocation)
        .where(*began_within(None, before_us), INTERVALS.c.end_us <= before_us)
        .order_by(START_HOUR)
        .limit(rows_max)
    )
    rows = connection.execute(ended).all()
    _delete(connection, INTERVALS, INTERVALS.c.number, (row.number for row in rows))
    gangs: set[int] = set()
    for chunk in _chunks({row.allocation for row in rows if row.allocation is not None}):
        # Not EXISTS, which PostgreSQL turns into a join that reads the whole table.
        left = select(INTERVALS.c.number).where(
            INTERVALS.c.number.between(ALLOCATIONS.c.first_number, ALLOCATIONS.c.last_number),
            INTERVALS.c.allocation == ALLOCATIONS.c.id,
        )
        held = left.order_by(INTERVALS.c.number).limit(1).correlate(ALLOCATIONS).scalar_subquery()
        gone = delete(ALLOCATIONS).where(ALLOCATIONS.c.id.in_(chunk), held.is_(None)).returning(ALLOCATIONS.c.gang)
        gangs.update(connection.execute(gone).scalars())
    for chunk in _chunks(gangs):
        used = exists().where(ALLOCATIONS.c.gang == GANGS.c.id)
        connection.execute(delete(GANGS).where(GANGS.c.id.in_(chunk), ~used))
    return len(rows)


def _unused(connection: Connection, before_us: int) -> None:
    """`seen_us` of a row that an ended interval refers to is at most a day before that interval's end."""
    for table, column in ((PLACES, INTERVALS.c.place), (SERIES, INTERVALS.c.series)):
        still = select(column).where(INTERVALS.c.end_us.is_(None))
        connection.execute(delete(table).where(table.c.seen_us < before_us - DAY_US, table.c.id.not_in(still)))
    for table, users in (
        (UNITS, [PLACES.c.unit]),
        (MEASURES, [SERIES.c.measure]),
        (OWNERS, [SERIES.c.owner, GANGS.c.owner]),
    ):
        unused = [~exists().where(user == table.c.id) for user in users]
        connection.execute(delete(table).where(*unused))


def _delete(connection: Connection, table: Table, key: Any, numbers: Iterable[int]) -> None:
    for chunk in _chunks(numbers):
        connection.execute(delete(table).where(key.in_(chunk)))


def _chunks(numbers: Iterable[int]) -> Iterator[list[int]]:
    found = sorted(numbers)
    for first in range(0, len(found), _IDS):
        yield found[first : first + _IDS]
