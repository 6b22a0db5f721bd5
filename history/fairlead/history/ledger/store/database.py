"""Connections to a place, transactions on them, and the version of the ledger there: created, migrated step by step, or refused.

SQLite: WAL, so readers and the writer do not wait for one another, and synchronous FULL, so what was committed survives a power
failure; a commit every few seconds can pay for the sync. A writer begins with the lock, so no transaction fails half way for want of it.
PostgreSQL: readers have one snapshot for a whole call (REPEATABLE READ), which SQLite's readers have anyway.
A new ledger gets the tables of `schema`. One that is there gets each step between its version and this one, each in a transaction that
also writes the version: a program that is killed midway goes on from there.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import create_engine, event, inspect, select, text, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import QueuePool

from fairlead.history.ledger.store.place import LedgerError, NewerLedgerError, Place, UnavailableError, translated
from fairlead.history.ledger.store.schema import DECISIONS, LEDGER, METADATA, POD_AMOUNTS, PODS, SERIES, VERSION

PATIENCE_S: Final = 5.0
_CACHE_KIB: Final = 16_384
_PAGE_BYTES: Final = 8_192
_VALUE_BYTES: Final = 16 * 2**20  # of a row or a value; what is written has kilobytes
_WAL_KEPT_BYTES: Final = 64 * 2**20  # what is left of the log after a checkpoint, where a reader had made it long


_COMPUTES: Final = """
SELECT type || ' ' || name FROM sqlite_schema
WHERE type NOT IN ('table', 'index') OR upper(ltrim(sql)) LIKE 'CREATE VIRTUAL%'
UNION ALL
SELECT 'generated column ' || item.name || '.' || field.name
FROM sqlite_schema AS item, pragma_table_xinfo(item.name) AS field
WHERE item.type = 'table' AND upper(ltrim(item.sql)) NOT LIKE 'CREATE VIRTUAL%' AND field.hidden IN (2, 3)
LIMIT 1
"""


def check_schema(connection: sqlite3.Connection, place: Place) -> None:
    """Raises LedgerError where reading the file would run what somebody else wrote into it: a view can be endless."""
    found = connection.execute(_COMPUTES).fetchone()
    if found is not None:
        raise LedgerError(
            f"ledger {place.text}: it holds the {found[0]}, and a ledger has plain tables only: take the file from its source again"
        )


class Database:
    def __init__(self, place: Place, *, writable: bool, create: bool = True, patience_s: float = PATIENCE_S) -> None:
        """`writable`: transactions begin with the right to write. `create`: a file that is not there, where writable.

        `patience_s`: how long a lock of another process, or a connection, is waited for.
        """
        self.place = place
        self.writable = writable
        self._mode = ("rwc" if create else "rw") if writable else "ro"
        self._patience_s = patience_s
        with translated(place):
            self.engine = self._sqlite() if place.path is not None else self._postgres()

    @property
    def is_sqlite(self) -> bool:
        return self.place.path is not None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """All or nothing. Raises LedgerErrors."""
        with translated(self.place), self.engine.begin() as connection:
            yield connection

    def size_bytes(self, connection: Connection) -> int:
        """On disk, free pages included; of SQLite without its log."""
        if self.is_sqlite:
            pages, each = (
                connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "page_size")
            )
            return int(pages) * int(each)
        names = [table.name for table in METADATA.sorted_tables]
        size = text(
            "SELECT sum(pg_total_relation_size(CAST(name AS regclass))) FROM unnest(CAST(:names AS text[])) AS name"
        )
        return int(connection.execute(size, {"names": names}).scalar_one())

    def close(self) -> None:
        self.engine.dispose()

    def _sqlite(self) -> Engine:
        path = self.place.path
        assert path is not None

        def connect() -> sqlite3.Connection:
            return sqlite3.connect(
                f"file:{quote(str(path.absolute()))}?mode={self._mode}", uri=True, timeout=self._patience_s, isolation_level=None, check_same_thread=False
            )  # fmt: skip

        engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=QueuePool)
        place = self.place

        @event.listens_for(engine, "connect")
        def prepare(connection: sqlite3.Connection, record: Any) -> None:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
            connection.execute("PRAGMA trusted_schema=OFF")
            check_schema(connection, place)
            connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            connection.execute("PRAGMA temp_store=MEMORY")
            if self.writable:
                connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")  # of a new file
                connection.execute("PRAGMA journal_mode=WAL").fetchone()
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute(f"PRAGMA journal_size_limit={_WAL_KEPT_BYTES}")

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE" if self.writable else "BEGIN")

        return engine

    def _postgres(self) -> Engine:
        assert self.place.url is not None
        try:
            import psycopg  # noqa: F401 - a ledger in a directory needs neither it nor libpq
        except ImportError as error:
            raise LedgerError(
                f"ledger {self.place.text}: PostgreSQL needs psycopg and libpq ({error}): install psycopg[binary], or give a "
                "directory"
            ) from None
        engine = create_engine(
            self.place.url,
            pool_pre_ping=True,  # the server restarts more often than this program
            isolation_level="READ COMMITTED" if self.writable else "REPEATABLE READ",
            connect_args={"connect_timeout": max(1, round(self._patience_s)), "application_name": "fairlead-ledger"},
        )

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, record: Any) -> None:
            with connection.cursor() as cursor:
                cursor.execute(f"SET lock_timeout = {round(self._patience_s * 1000)}")
                if not self.writable:
                    cursor.execute("SET default_transaction_read_only = on")
            connection.commit()

        return engine


Step = Callable[[Connection], None]


def _fragmented(connection: Connection) -> None:
    connection.execute(update(SERIES).where(SERIES.c.bucket == "stranded").values(bucket="fragmented"))


def _pods(connection: Connection) -> None:
    for table in (POD_AMOUNTS, PODS):
        table.create(connection, checkfirst=True)


STEPS: Final[Mapping[int, Step]] = {2: DECISIONS.create, 3: _fragmented, 4: _pods}
"""By the version that a step makes of the one before."""
_LOCK: Final = 7_305_430_818  # of PostgreSQL's advisory locks: two programs that start at once do not both create


def version(connection: Connection) -> int | None:
    """None: there is no ledger."""
    if not inspect(connection).has_table(LEDGER.name):
        return None
    found = connection.execute(select(LEDGER.c.version)).scalar_one_or_none()
    return None if found is None else int(found)


def create_or_migrate(database: Database, *, newest: int = VERSION, steps: Mapping[int, Step] = STEPS) -> None:
    """Brings the ledger to version `newest`. Raises LedgerErrors."""
    while True:
        with database.transaction() as connection:
            if not database.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            found = version(connection)
            if found is None:
                METADATA.create_all(connection)
                new = {
                    "id": 1,
                    "version": newest,
                    "term": 0,
                    "writer": "",
                    "as_of_us": None,
                    "next_number": 1,
                    "lease_transitions": None,
                    "pruned": 0,
                }
                connection.execute(LEDGER.insert(), new)
                return
            _refuse_newer(database.place, found, newest)
            if found == newest:
                return
            steps[found + 1](connection)
            connection.execute(update(LEDGER).values(version=found + 1))


def check_version(connection: Connection, place: Place) -> None:
    """Refuse a version that a reader, which migrates nothing, cannot read. Raises LedgerErrors."""
    found = version(connection)
    if found is None:
        raise UnavailableError(
            f"ledger {place.text}: there is none yet: the leading controller makes it (controller --ledger …)"
        )
    _refuse_newer(place, found, VERSION)
    if found < VERSION:
        raise LedgerError(f"ledger {place.text}: version {found}, this fairlead reads {VERSION}: start a controller of this version, which migrates it")  # fmt: skip


def _refuse_newer(place: Place, found: int, newest: int) -> None:
    if found > newest:
        raise NewerLedgerError(
            f"ledger {place.text}: version {found}, this fairlead reads {newest}: update this program, or restore the backup "
            "that was made before the other version wrote it"
        )
