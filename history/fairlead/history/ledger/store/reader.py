"""What the ledger says of a window, read beside the writer. Each call sees the ledger as of one commit.

Windows are unix microseconds, the end excluded. An open interval counts until the ledger's `as_of_us`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import func, literal, select
from sqlalchemy.engine import Connection

from fairlead.history.ledger.entries import Decision, Gap, Held, Span, Stretch, Sum, UnitDay, Wait
from fairlead.history.ledger.pod_entries import PodSum
from fairlead.history.ledger.store import spans, sums
from fairlead.history.ledger.store.database import PATIENCE_S, Database, check_version
from fairlead.history.ledger.store.place import place_of
from fairlead.history.ledger.store.pods import pod_sums
from fairlead.history.ledger.store.schema import DECISIONS, GAPS, INTERVALS, LEDGER, OWNERS, START_HOUR, WAITS
from fairlead.history.ledger.store.sums import Broken
from fairlead.history.ledger.store.windows import Window, overlapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """`place`: without password. `known_us`: first and last moment; None: nothing yet. `writer`: who opened it last."""

    place: str
    kind: str
    version: int
    writer: str
    known_us: tuple[int, int] | None
    intervals: int
    size_bytes: int


def open_reader(where: str, *, patience_s: float = PATIENCE_S) -> Reader:
    """`where`: as of `open_writer`, or an SQLite file. Raises LedgerErrors."""
    database = Database(place_of(where), writable=False, patience_s=patience_s)
    try:
        with database.transaction() as connection:
            check_version(connection, database.place)
    except BaseException:
        database.close()
        raise
    return Reader(database)


class Reader:
    """For several threads too. Every method raises LedgerErrors. An iterator holds a transaction until it ends or is closed."""

    def __init__(self, database: Database) -> None:
        self.place = database.place
        self._database = database

    def sums(self, since_us: int, until_us: int, by: tuple[str, ...]) -> list[Sum]:
        """`by`: names of entries.GROUPS, or `label=<name>`. Raises ValueError for others."""
        with self._database.transaction() as connection:
            return sums.sums(connection, _window(connection, since_us, until_us), by)

    def pod_sums(self, since_us: int, until_us: int, by: tuple[str, ...]) -> list[PodSum]:
        """What pods requested. `by`: as of `sums`; of groups that pods do not have the key is ""."""
        with self._database.transaction() as connection:
            return pod_sums(connection, _window(connection, since_us, until_us), by)

    def held(self, since_us: int, until_us: int) -> Iterator[Held]:
        with self._database.transaction() as connection:
            yield from spans.held(connection, _window(connection, since_us, until_us))

    def spans(self, since_us: int, until_us: int) -> Iterator[Span]:
        """From when to when each claim held each of its devices."""
        with self._database.transaction() as connection:
            yield from spans.spans(connection, _window(connection, since_us, until_us))

    def stretches(self, namespace: str, gang: str, since_us: int, until_us: int, most: int) -> list[Stretch]:
        """How busy each device of a gang was, in order of time; the newest `most`."""
        with self._database.transaction() as connection:
            return spans.stretches(connection, _window(connection, since_us, until_us), namespace, gang, most)

    def unit_days(self, since_us: int, until_us: int) -> Iterator[UnitDay]:
        with self._database.transaction() as connection:
            yield from sums.unit_days(connection, _window(connection, since_us, until_us))

    def broken_days(self, since_us: int, until_us: int) -> Iterator[Broken]:
        """Where the conservation law does not hold; the first of each unit and day."""
        with self._database.transaction() as connection:
            yield from sums.broken_days(connection, _window(connection, since_us, until_us))

    def waits(self, since_us: int, until_us: int) -> Iterator[Wait]:
        """The waits of gangs admitted in the window, in that order."""
        admitted = select(WAITS).where(WAITS.c.admitted_us >= since_us, WAITS.c.admitted_us < until_us)
        with self._database.transaction() as connection:
            for row in connection.execute(admitted.order_by(*WAITS.primary_key)):
                yield Wait(
                    queue=row.queue,
                    namespace=row.namespace,
                    gang=row.gang,
                    queued_us=int(row.queued_us),
                    admitted_us=int(row.admitted_us),
                )

    def decisions(self, namespace: str, gang: str, most: int) -> list[Decision]:
        """About one gang, the newest first; at most so many."""
        about = select(DECISIONS).where(DECISIONS.c.namespace == namespace, DECISIONS.c.gang == gang)
        newest = about.order_by(DECISIONS.c.at_us.desc(), DECISIONS.c.what).limit(most)
        with self._database.transaction() as connection:
            return [Decision(**row) for row in connection.execute(newest).mappings()]

    def gaps(self, since_us: int, until_us: int) -> Iterator[Gap]:
        """Those that overlap the window, whole, in order of their start."""
        overlap = select(GAPS).where(GAPS.c.start_us < until_us, GAPS.c.end_us > since_us)
        with self._database.transaction() as connection:
            for row in connection.execute(overlap.order_by(*GAPS.primary_key)):
                yield Gap(start_us=int(row.start_us), end_us=int(row.end_us), reason=row.reason)

    def overlapping(self, since_us: int, until_us: int, most: int) -> int:
        """How many overlap the window, counted up to one more than `most`; open ones count whenever they began."""
        with self._database.transaction() as connection:
            window = _window(connection, since_us, until_us)
            found = overlapping(window, [literal(1).label("one")]).limit(most + 1).subquery()
            return int(connection.execute(select(func.count()).select_from(found)).scalar_one())

    def known(self) -> tuple[int, int] | None:
        """The first and the last moment that the ledger knows of. None: nothing yet."""
        with self._database.transaction() as connection:
            return _known(connection)

    def namespaces(self) -> frozenset[str]:
        """The namespaces of all claims in the ledger."""
        with self._database.transaction() as connection:
            return frozenset(connection.execute(select(OWNERS.c.namespace).distinct()).scalars()) - {""}

    def version(self) -> int:
        with self._database.transaction() as connection:
            return int(connection.execute(select(LEDGER.c.version)).scalar_one())

    def info(self) -> Info:
        with self._database.transaction() as connection:
            version, writer = connection.execute(select(LEDGER.c.version, LEDGER.c.writer)).one()
            return Info(
                place=self.place.text,
                kind=connection.dialect.name,
                version=int(version),
                writer=writer,
                known_us=_known(connection),
                intervals=connection.execute(select(func.count()).select_from(INTERVALS)).scalar_one(),
                size_bytes=self._database.size_bytes(connection),
            )

    def close(self) -> None:
        self._database.close()


def _window(connection: Connection, since_us: int, until_us: int) -> Window:
    """Cut to what is known: a window of all time has days without end."""
    known = _known(connection)
    if known is None:
        return Window(since_us, since_us, since_us)
    first_us, as_of_us = known
    since_us = max(since_us, first_us)
    return Window(since_us, max(since_us, min(until_us, as_of_us)), as_of_us)


def _known(connection: Connection) -> tuple[int, int] | None:
    first_hour = select(START_HOUR).select_from(INTERVALS).order_by(START_HOUR).limit(1).scalar_subquery()
    first_us = connection.execute(select(func.min(INTERVALS.c.start_us)).where(first_hour == START_HOUR)).scalar_one()
    as_of_us = connection.execute(select(LEDGER.c.as_of_us)).scalar_one()
    if as_of_us is None:
        return None
    return int(as_of_us if first_us is None else first_us), int(as_of_us)
