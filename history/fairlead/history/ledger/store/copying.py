"""Copies of a ledger, consistent while the leader writes.

SQLite to a file: VACUUM INTO, which reads one snapshot and leaves out free pages. All other ways, from and to PostgreSQL, row by row
in one transaction on each side: that is how a ledger moves, too.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy import func, select, text
from sqlalchemy.engine import Connection

from fairlead.history.ledger.store.database import PATIENCE_S, Database, check_version, create_or_migrate
from fairlead.history.ledger.store.place import LedgerError, Place, UnavailableError, place_of, translated
from fairlead.history.ledger.store.schema import INTERVALS, LEDGER, METADATA

_ROWS: Final = 5_000  # at a time


def backup(where: str, target: str) -> None:
    """Copies the ledger at `where` to a file that is not there yet, or an empty database (postgresql://…). Raises LedgerErrors.

    A file appears under its name when it is whole and synced.
    """
    source, to = place_of(where), place_of(target)
    if to.path is None:
        _copy(source, to)
        return
    path = Path(target)  # the file itself, whatever its name
    if path.exists():
        raise LedgerError(f"backup {target}: there is something already: name a file that is not there")
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        if source.path is None:
            _copy(source, Place(str(part), path=part))
            _plain(part)
        else:
            _vacuum(source, part)
        _sync(part)
        part.rename(path)
        _sync(path.parent)
    except OSError as error:
        raise UnavailableError(f"backup {target}: {error.strerror}: see that this user may write there, and that there is room") from None  # fmt: skip
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _vacuum(source: Place, part: Path) -> None:
    database = Database(source, writable=False)
    try:
        with database.transaction() as connection:
            check_version(connection, source)
    finally:
        database.close()
    assert source.path is not None
    uri = f"file:{quote(str(source.path.absolute()))}?mode=ro"
    with (
        translated(source),
        closing(sqlite3.connect(uri, uri=True, timeout=PATIENCE_S, isolation_level=None)) as connection,
    ):
        connection.execute("VACUUM INTO ?", (str(part),))


def _copy(source: Place, to: Place) -> None:
    reading, writing = Database(source, writable=False), Database(to, writable=True)
    try:
        create_or_migrate(writing)
        with reading.transaction() as rows, writing.transaction() as connection:
            check_version(rows, source)
            if (
                connection.execute(select(LEDGER.c.term)).scalar_one()
                or connection.execute(select(INTERVALS.c.number).limit(1)).first()
            ):
                raise LedgerError(f"ledger {to.text}: it is in use: name an empty place")
            connection.execute(LEDGER.delete())
            for table in METADATA.sorted_tables:
                for chunk in rows.execute(select(table).execution_options(yield_per=_ROWS)).mappings().partitions():
                    connection.execute(table.insert(), [dict(row) for row in chunk])
            if not writing.is_sqlite:
                _continue_numbers(connection)
    finally:
        reading.close()
        writing.close()


def _continue_numbers(connection: Connection) -> None:
    """PostgreSQL numbers rows from sequences, which know nothing of rows that came with a number."""
    for table in METADATA.sorted_tables:
        if "id" in table.c and table is not LEDGER:
            last = connection.execute(select(func.max(table.c.id))).scalar_one()
            if last is not None:
                connection.execute(
                    text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :last)"),
                    {"name": table.name, "last": last},
                )


def _plain(path: Path) -> None:
    """One file, without a log beside it: readable from a read-only disk."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchone()


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
