"""Where a ledger is: a directory with `ledger.sqlite`, that file itself, or a PostgreSQL database by URL. Names it without its password."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from fairlead.history.ledger.store.errors import LedgerError

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
