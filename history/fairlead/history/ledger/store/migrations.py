"""The version of a ledger: a new one is created, an older one migrated step by step, a newer one refused.

A new ledger gets the tables of `schema`. One that is there gets each step between its version and this one, each in a transaction that
also writes the version: a program that is killed midway goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlalchemy import inspect, select, text, update
from sqlalchemy.engine import Connection

from fairlead.history.ledger.store.database import Database
from fairlead.history.ledger.store.errors import LedgerError, NewerLedgerError, UnavailableError
from fairlead.history.ledger.store.place import Place
from fairlead.history.ledger.store.schema import DECISIONS, LEDGER, METADATA, SERIES, VERSION

Step = Callable[[Connection], None]


def _fragmented(connection: Connection) -> None:
    connection.execute(update(SERIES).where(SERIES.c.bucket == "stranded").values(bucket="fragmented"))


STEPS: Final[Mapping[int, Step]] = {2: DECISIONS.create, 3: _fragmented}
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
