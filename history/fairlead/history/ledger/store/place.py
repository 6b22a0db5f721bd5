"""Where a ledger is, and what can be wrong with it: errors of SQLite and PostgreSQL as errors of the ledger, with the next step.

A place is a directory with `ledger.sqlite`, that file itself, or a PostgreSQL database by URL. Every message names it without its password.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

FILE: Final = "ledger.sqlite"
_SCHEMES: Final = ("postgresql://", "postgres://")
_SECRET_WORDS: Final = frozenset({"password", "sslpassword", "passfile"})


@dataclass(frozen=True, slots=True)
class Place:
    """`path` None: PostgreSQL at `url`. `text` is for people and logs."""

    text: str
    path: Path | None = None
    url: URL | None = None

    def hide(self, words: str) -> str:
        """The words of a database's error, without what is secret in the URL."""
        if self.url is None:
            return words
        query = [value for name, value in self.url.query.items() if name in _SECRET_WORDS]
        for secret in (self.url.password, *query):
            if isinstance(secret, str) and secret:
                words = words.replace(secret, "***")
        return words


def place_of(where: str) -> Place:
    """Raises LedgerError for a URL that is none, or of another kind of database."""
    if where.startswith(_SCHEMES):
        return _database(where)
    scheme, colon, _ = where.partition("://")
    if colon:
        raise LedgerError(
            f"ledger: {scheme}://…: not a kind of ledger: give a directory, or postgresql://USER@HOST/DATABASE"
        )
    if not where:
        raise LedgerError("ledger: the place is empty: give a directory, or postgresql://USER@HOST/DATABASE")
    path = Path(where)
    path = path if path.is_file() or path.suffix == ".sqlite" else path / FILE
    return Place(str(path), path=path)


def _database(where: str) -> Place:
    try:
        url = make_url(where).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        # The cause would show the URL, with its password.
        raise LedgerError(
            "ledger: postgresql://…: the URL cannot be read: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with "
            "%-escapes for characters like @ and / in the password"
        ) from None
    if not url.database:
        raise LedgerError(f"ledger: postgresql://{url.host or ''}: names no database: add /DATABASE at its end")
    port = f":{url.port}" if url.port else ""
    return Place(f"postgresql://{url.host or ''}{port}/{url.database}", url=url)


class LedgerError(Exception):
    """The ledger cannot be used as asked."""


class UnavailableError(LedgerError):
    """It cannot be used now: locked, no room, no connection, not there. Nothing was written; the same call may work later."""


class LedgerTakenError(LedgerError):
    """A later writer opened the ledger; this one may not commit any more."""


class NewerLedgerError(LedgerError):
    """A later version of Fairlead wrote the ledger."""


class CorruptLedgerError(LedgerError):
    """The file, or the table, is damaged or no ledger."""


_RESTORE: Final = "move it away and restore a backup (`fairlead ledger backup` makes them), or let a new one begin"
_PRIMARY: Final = 0xFF  # the part of an extended result code that says what; https://sqlite.org/rescode.html
_SQLITE: Final[dict[int, tuple[type[LedgerError], str]]] = {
    sqlite3.SQLITE_BUSY: (UnavailableError, "another process holds its lock; try again, or end what holds it (`fuser FILE`)"),
    sqlite3.SQLITE_LOCKED: (UnavailableError, "another process holds its lock; try again, or end what holds it (`fuser FILE`)"),
    sqlite3.SQLITE_FULL: (UnavailableError, "the disk is full; make room, or let less be kept (`fairlead ledger prune`)"),
    sqlite3.SQLITE_IOERR: (UnavailableError, "the disk failed; see the kernel's log, and that the volume is mounted"),
    sqlite3.SQLITE_CANTOPEN: (UnavailableError, "it cannot be opened; see that the directory exists and that this user may write into it"),
    sqlite3.SQLITE_READONLY: (UnavailableError, "it is read-only; see that this user may write the file and its directory"),
    sqlite3.SQLITE_PERM: (UnavailableError, "access is denied; see that this user may read and write it"),
    sqlite3.SQLITE_NOMEM: (UnavailableError, "there is no memory left; give the program more"),
    sqlite3.SQLITE_CORRUPT: (CorruptLedgerError, f"the file is damaged; {_RESTORE}"),
    sqlite3.SQLITE_NOTADB: (CorruptLedgerError, f"the file is no SQLite database; {_RESTORE}"),
}  # fmt: skip
# By the first characters of SQLSTATE; https://www.postgresql.org/docs/current/errcodes-appendix.html
_POSTGRES: Final[tuple[tuple[str, type[LedgerError], str], ...]] = (
    ("28", UnavailableError, "the server refuses the login; see user and password in the URL, and pg_hba.conf"),
    ("3D", UnavailableError, "the server has no such database; create it (`createdb`)"),
    (
        "42501",
        UnavailableError,
        "the user may not do that; grant it the database's schema (GRANT ALL ON SCHEMA public TO …)",
    ),
    (
        "53100",
        UnavailableError,
        "the server's disk is full; make room there, or let less be kept (`fairlead ledger prune`)",
    ),
    ("53", UnavailableError, "the server lacks memory or connections; try again, or give it more"),
    ("40", UnavailableError, "another transaction was in the way; try again"),
    ("55P03", UnavailableError, "another process holds its lock; try again, or see pg_locks for what holds it"),
    ("57", UnavailableError, "the server is stopping, or ended the statement; try again"),
    ("25006", UnavailableError, "the server is read-only; name the primary in the URL"),
    ("58", UnavailableError, "the server's disk failed; see the server's log"),
    ("XX001", CorruptLedgerError, f"a table is damaged; {_RESTORE}"),
    ("XX002", CorruptLedgerError, f"an index is damaged; REINDEX DATABASE, or {_RESTORE}"),
)


@contextlib.contextmanager
def translated(place: Place) -> Iterator[None]:
    """Raises LedgerErrors for what the database raises within."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, (SQLAlchemyError, sqlite3.Error, *_psycopg("Error"))):
            raise
        # Not chained: the cause of a failed login may show the URL, and a statement shows its values.
        raise failure(place, error) from None


def failure(place: Place, error: Exception) -> LedgerError:
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    words = place.hide(str(original).strip().partition("\n")[0])
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", 0)
        kind, step = _SQLITE.get(
            code & _PRIMARY, (LedgerError, "see whether this is a ledger of this version (`fairlead ledger info`)")
        )
        return kind(f"ledger {place.text}: {words}: {step}")
    if isinstance(original, _psycopg("Error")):
        state = getattr(original, "sqlstate", None) or ""
        for begin, kind, step in _POSTGRES:
            if state.startswith(begin):
                return kind(f"ledger {place.text}: {words}: {step}")
        if state.startswith("08") or (
            not state and isinstance(original, _psycopg("OperationalError", "InterfaceError"))
        ):
            return UnavailableError(
                f"ledger {place.text}: {words}: no connection; see that the server runs and can be reached from here"
            )
        return LedgerError(
            f"ledger {place.text}: {words}: see whether this is a ledger of this version (`fairlead ledger info`)"
        )
    return UnavailableError(f"ledger {place.text}: {words}: try again")


def _psycopg(*names: str) -> tuple[type[Exception], ...]:
    """These errors of psycopg, which only a ledger in PostgreSQL needs: none where nothing has imported it."""
    module = sys.modules.get("psycopg")
    return () if module is None else tuple(getattr(module, name) for name in names)
