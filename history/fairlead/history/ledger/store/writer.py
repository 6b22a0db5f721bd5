"""The leader's end of the store: one transaction a commit, by the latest opener alone; and retention, which anyone may run.

Each opener gets the next term. A commit first writes into the ledger's one row where the term is its own; where it is not, nothing is
written (`LedgerTakenError`). So a leader that lost its Lease without noticing cannot write beside its successor.
A commit whose outcome is not known (the connection broke) may be repeated: what it wrote is written again to the same rows.

Retention removes some rows a transaction, so that no commit waits for seconds: first intervals that ended before, with the allocations and
gangs that they leave without any; when none is left, the places, series, owners and measures that nothing refers to any more. Decisions
about gangs are kept for a week at most. The file of SQLite does not shrink; its free pages are used again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

from sqlalchemy import Table, case, delete, exists, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from fairlead.history.ledger.entries import Batch, Interval, Kept, Sampled
from fairlead.history.ledger.store.database import PATIENCE_S, Database, check_version, create_or_migrate
from fairlead.history.ledger.store.place import LedgerTakenError, Place, UnavailableError, place_of
from fairlead.history.ledger.store.pods import open_pods, pod_rows, remove_pods
from fairlead.history.ledger.store.rows import Interning, mark_lost, rows_of
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
    PODS,
    SERIES,
    START_HOUR,
    UNITS,
    WAITS,
)
from fairlead.history.ledger.store.windows import Lookups, began_within
from fairlead.kube.timestamps import DAY_US


def open_writer(where: str, *, writer: str, patience_s: float = PATIENCE_S) -> Writer:
    """Creates or migrates the ledger at `where` (a directory or a postgresql:// URL), and takes it from the writer before.

    `writer`: who this is, for the message that the one before gets. `patience_s`: how long a lock is waited for. Raises LedgerErrors.
    """
    place = place_of(where)
    _make_directory(place)
    database = Database(place, writable=True, patience_s=patience_s)
    try:
        create_or_migrate(database)
        with database.transaction() as connection:
            taken = update(LEDGER).values(term=LEDGER.c.term + 1, writer=writer).returning(LEDGER.c.term)
            term = int(connection.execute(taken).scalar_one())
    except BaseException:
        database.close()
        raise
    return Writer(database, term, writer)


class Writer:
    """Not for several threads at once."""

    def __init__(self, database: Database, term: int, name: str) -> None:
        self.place = database.place
        self.name = name
        self._database = database
        self._term = term
        self._interning = Interning()
        self._pruned: int | None = None

    def kept(self) -> Kept:
        """What the ledger holds now. Raises LedgerErrors."""
        with self._database.transaction() as connection:
            known = select(LEDGER.c.as_of_us, LEDGER.c.next_number, LEDGER.c.lease_transitions)
            as_of_us, next_number, transitions = connection.execute(known).one()
            return Kept(
                as_of_us=None if as_of_us is None else int(as_of_us),
                next_number=int(next_number),
                open=_open(connection),
                lease_transitions=None if transitions is None else int(transitions),
                pods=open_pods(connection),
            )

    def commit(self, batch: Batch) -> None:
        """All of it or nothing. Raises LedgerErrors; of UnavailableErrors the same batch may be committed again later.

        `as_of_us` and the next number never go back. An interval that was written before is replaced, `lost` included.
        Raises ValueError for an interval that ends before it starts.
        """
        for number, interval in batch.intervals:
            if interval.end_us is not None and interval.end_us < interval.start_us:
                raise ValueError(
                    f"interval {number} of {interval.unit}: end_us: {interval.end_us} is before start_us {interval.start_us}: "
                    "give the start first"
                )
        try:
            with self._database.transaction() as connection:
                self._begin(connection, batch)
                self._write(connection, batch)
        except BaseException:
            self._interning.undo()
            raise
        self._interning.keep()

    def prune(self, before_us: int) -> int:
        """Removes some of what ended before that time; how many rows. To be called until it is 0. Raises LedgerErrors."""
        try:
            with self._database.transaction() as connection:
                self._fence(connection, {})
                return remove_some(connection, before_us)
        finally:
            self._interning.forget()

    def close(self) -> None:
        self._database.close()

    def _begin(self, connection: Connection, batch: Batch) -> None:
        last = max((number for number, _ in batch.intervals), default=0)
        as_of_us, next_number = LEDGER.c.as_of_us, LEDGER.c.next_number
        pruned = self._fence(
            connection,
            {
                as_of_us.name: _larger(as_of_us, batch.as_of_us),
                next_number.name: _larger(next_number, last + 1),
                LEDGER.c.lease_transitions.name: batch.lease_transitions,
            },
        )
        if pruned != self._pruned:
            self._interning.forget()
            self._pruned = pruned

    def _fence(self, connection: Connection, values: dict[str, Any]) -> int:
        """Writes the ledger's row where the term is this writer's, which keeps every other writer out until the transaction ends."""
        mine = (
            update(LEDGER)
            .where(LEDGER.c.term == self._term)
            .values(term=self._term, **values)
            .returning(LEDGER.c.pruned)
        )
        pruned = connection.execute(mine).scalar_one_or_none()
        if pruned is None:
            self._taken(connection)
        return int(pruned)

    def _taken(self, connection: Connection) -> NoReturn:
        writer = connection.execute(select(LEDGER.c.writer)).scalar_one_or_none()
        raise LedgerTakenError(
            f"ledger {self.place.text}: {writer or 'another writer'} opened it after {self.name}, which may not write any more: "
            "let it be, or open it again where that is no leader"
        )

    def _write(self, connection: Connection, batch: Batch) -> None:
        rows = rows_of(connection, self._interning, batch.as_of_us, batch.intervals)
        if rows:
            _replace(connection, INTERVALS, rows)
        mark_lost(connection, self._interning, batch.as_of_us, batch.lost)
        gaps = [{"start_us": gap.start_us, "end_us": gap.end_us, "reason": gap.reason} for gap in batch.gaps]
        if gaps:
            _replace(connection, GAPS, gaps)
        waits = [
            {"admitted_us": wait.admitted_us, "namespace": wait.namespace, "gang": wait.gang, "queue": wait.queue, "queued_us": wait.queued_us}
            for wait in batch.waits
        ]  # fmt: skip
        if waits:
            _replace(connection, WAITS, waits)
        if batch.pods:
            _replace(connection, PODS, pod_rows(connection, self._interning, batch.pods))
        if batch.decisions:
            _replace(connection, DECISIONS, [dataclasses.asdict(each) for each in batch.decisions])


def _larger(column: Any, value: int) -> Any:
    return case((column > value, column), else_=value)


def _replace(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Inserts rows, or writes over those with the same key."""
    insert = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
    keys = [column.name for column in table.primary_key]
    changed = {column.name: insert.excluded[column.name] for column in table.columns if column.name not in keys}
    written = (
        insert.on_conflict_do_update(index_elements=keys, set_=changed) if changed else insert.on_conflict_do_nothing()
    )
    connection.execute(written, rows)


def _open(connection: Connection) -> dict[int, Interval]:
    rows = connection.execute(select(INTERVALS).where(INTERVALS.c.end_us.is_(None)).order_by(INTERVALS.c.number)).all()
    lookups = Lookups(connection)
    spots = lookups.spots(row.place for row in rows)
    series = lookups.series(row.series for row in rows)
    allocations = lookups.allocations(row.allocation for row in rows if row.allocation is not None)
    ends = lookups.ends()
    return {
        int(row.number): Interval(
            unit=spots[row.place].unit,
            node=spots[row.place].node,
            device=spots[row.place].device,
            bucket=series[row.series].bucket,
            measure=series[row.series].measure,
            lost=series[row.series].lost,
            start_us=int(row.start_us),
            allocation=None if row.allocation is None else allocations[row.allocation],
            sampled=Sampled(
                sampled_us=int(row.sampled_us),
                busy_us=int(row.busy_us),
                memory_peak_bytes=row.memory_peak_bytes,
                memory_bytes=row.memory_bytes,
            ),
            ended_by=ends[row.ended_by],
        )
        for row in rows
    }


def _make_directory(place: Place) -> None:
    if place.path is None:
        return
    try:
        place.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"ledger {place.text}: its directory cannot be made: {error.strerror}: give one that this user may write into"
        ) from None


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
    removed, gangs = _intervals(connection, before_us, rows_max)
    pods, of_pods = remove_pods(connection, before_us, rows_max)
    _unused_gangs(connection, gangs | of_pods)
    removed += pods
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


def _intervals(connection: Connection, before_us: int, rows_max: int) -> tuple[int, set[int]]:
    """How many, and the gangs of the allocations that they leave without any."""
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
    return len(rows), gangs


def _unused_gangs(connection: Connection, gangs: Iterable[int]) -> None:
    for chunk in _chunks(gangs):
        unused = [~exists().where(column == GANGS.c.id) for column in (ALLOCATIONS.c.gang, PODS.c.gang)]
        connection.execute(delete(GANGS).where(GANGS.c.id.in_(chunk), *unused))


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
