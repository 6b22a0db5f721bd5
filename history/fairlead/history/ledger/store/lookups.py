"""Numbers of rows as the values they stand for: read when they are first asked for, within one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import Select, select
from sqlalchemy.engine import Connection

from fairlead.history.ledger.entries import Allocation, Bucket, Measure, Unit
from fairlead.history.ledger.store.schema import ALLOCATIONS, ENDS, GANGS, MEASURES, OWNERS, PLACES, SERIES, UNITS
from fairlead.history.ledger.store.words import labels_of, uid_text

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
