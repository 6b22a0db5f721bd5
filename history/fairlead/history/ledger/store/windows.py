"""Which intervals overlap a window, which part of one lies in it, and the values that the numbers in its row stand for.

Most lie in a window whole, and the database adds those up. The others are read one by one and cut here, in exact integers: what the
samples say of an interval is spread evenly over it, and the part until a moment is rounded down. So the parts of adjacent windows add up
to the whole. An open interval ends where the ledger's knowledge ends (`as_of_us`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import ColumnElement, FromClause, Select, and_, or_, select, union_all
from sqlalchemy.engine import Connection, Row
from sqlalchemy.sql import CompoundSelect

from fairlead.history.ledger.entries import Allocation, Bucket, Measure, Unit
from fairlead.history.ledger.store.rows import labels_of, uid_text
from fairlead.history.ledger.store.schema import (
    ALLOCATIONS,
    ENDS,
    GANGS,
    INTERVALS,
    IS_LONG,
    IS_OPEN,
    MEASURES,
    OWNERS,
    PLACES,
    SERIES,
    START_HOUR,
    UNITS,
)
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


_IDS: Final = 500  # of one statement


class Owner(NamedTuple):
    queue: str = ""
    namespace: str = ""
    user: str = ""
    labels: tuple[tuple[str, str], ...] = ()


class Series(NamedTuple):
    owner: Owner
    measure: Measure
    bucket: Bucket
    lost: bool


class Spot(NamedTuple):
    """A row of `places`."""

    unit: Unit
    node: str
    device: str


class Lookups:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._owners: dict[int, Owner] = {}
        self._measures: dict[int, Measure] = {}
        self._series: dict[int, Series] = {}
        self._spots: dict[int, Spot] = {}

    def series(self, numbers: Iterable[int]) -> dict[int, Series]:
        """At least those; each is read once."""
        owner = (OWNERS.c.queue, OWNERS.c.namespace, OWNERS.c.username, OWNERS.c.labels)
        measure = (MEASURES.c.share_ppm, MEASURES.c.flavor, MEASURES.c.amount, MEASURES.c.capacity_type)
        rows = (
            select(SERIES.c.id, SERIES.c.owner, SERIES.c.measure, SERIES.c.bucket, SERIES.c.lost, *measure, *owner)
            .join(MEASURES, MEASURES.c.id == SERIES.c.measure)
            .outerjoin(OWNERS, OWNERS.c.id == SERIES.c.owner)
        )
        for row in self._by_id(rows, SERIES.c.id, set(numbers) - self._series.keys()):
            (
                number,
                owned,
                measured,
                bucket,
                lost,
                share_ppm,
                flavor,
                amount,
                capacity,
                queue,
                namespace,
                user,
                labels,
            ) = row
            # One object for one row: sums compare them some thousand times.
            if measured not in self._measures:
                self._measures[measured] = Measure(
                    share_ppm=int(share_ppm), flavor=flavor, amount=Fraction(amount), capacity_type=capacity or None
                )
            if owned not in self._owners:
                self._owners[owned] = Owner() if queue is None else Owner(queue, namespace, user, labels_of(labels))
            self._series[int(number)] = Series(
                self._owners[owned], self._measures[measured], cast("Bucket", bucket), bool(lost)
            )
        return self._series

    def spots(self, numbers: Iterable[int]) -> dict[int, Spot]:
        """At least those; each is read once."""
        rows = select(PLACES.c.id, UNITS.c.driver, UNITS.c.pool, UNITS.c.name, PLACES.c.node, PLACES.c.device).join(
            UNITS, UNITS.c.id == PLACES.c.unit
        )
        for row in self._by_id(rows, PLACES.c.id, set(numbers) - self._spots.keys()):
            number, driver, pool, name, node, device = row
            self._spots[int(number)] = Spot(Unit(driver, pool, name), node, device)
        return self._spots

    def gang_names(self, numbers: Iterable[int]) -> dict[int, str]:
        rows = select(GANGS.c.id, GANGS.c.name)
        return {int(number): name for number, name in self._by_id(rows, GANGS.c.id, numbers)}

    def ends(self) -> dict[int, str]:
        """The few words of `ended_by`."""
        return {
            0: "",
            **{int(number): word for number, word in self._connection.execute(select(ENDS.c.id, ENDS.c.word))},
        }

    def allocations(self, numbers: Iterable[int]) -> dict[int, Allocation]:
        rows = (
            select(
                ALLOCATIONS.c.id, ALLOCATIONS.c.claim_uid, ALLOCATIONS.c.allocated_us, ALLOCATIONS.c.claim, GANGS.c.name,
                OWNERS.c.queue, OWNERS.c.namespace, OWNERS.c.username, OWNERS.c.labels,
            )
            .join(GANGS, GANGS.c.id == ALLOCATIONS.c.gang)
            .join(OWNERS, OWNERS.c.id == GANGS.c.owner)
        )  # fmt: skip
        return {
            int(number): Allocation(
                claim_uid=uid_text(bytes(uid)), namespace=namespace, claim=claim, allocated_us=int(allocated_us), gang=gang, queue=queue, user=user, labels=labels_of(labels)
            )
            for number, uid, allocated_us, claim, gang, queue, namespace, user, labels in self._by_id(rows, ALLOCATIONS.c.id, numbers)
        }  # fmt: skip

    def _by_id(self, rows: Select[Any], column: Any, numbers: Iterable[int]) -> Iterator[Any]:
        wanted = sorted(set(numbers))
        for first in range(0, len(wanted), _IDS):
            yield from self._connection.execute(rows.where(column.in_(wanted[first : first + _IDS])))
