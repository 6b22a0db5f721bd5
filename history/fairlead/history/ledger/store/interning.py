"""Numbers of values that many rows share, from the tables of `schema`: looked up, remembered, inserted where they are missing.

What a transaction found is remembered when it is committed (`keep`), and forgotten when it is not, for then a number may belong to
something else later. Caches are emptied when they are full, and when another program has removed rows (retention).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Table, UniqueConstraint, bindparam, select, tuple_, update
from sqlalchemy.engine import Connection

from fairlead.kube.timestamps import DAY_US

Values = tuple[Any, ...]
ENTRIES_MAX: Final = 100_000  # of one table: some 30 MB of allocations
_ROWS: Final = 200  # of one statement: SQLite takes 32,766 parameters, PostgreSQL 65,535


class Interning:
    def __init__(self) -> None:
        self._kept: dict[str, dict[Values, int]] = {}
        self._found: dict[str, dict[Values, int]] = {}
        self._seen: dict[str, dict[int, int]] = {}  # by table: when `seen_us` of a row was written

    def keep(self) -> None:
        """The transaction was committed."""
        for name, found in self._found.items():
            kept = self._kept.setdefault(name, {})
            if len(kept) + len(found) > ENTRIES_MAX:
                kept.clear()
                self._seen.pop(name, None)
            kept.update(found)
        self._found = {}

    def undo(self) -> None:
        """The transaction was not committed: `seen_us` was not written either."""
        self._found = {}
        self._seen = {}

    def forget(self) -> None:
        self._kept = {}
        self.undo()

    def numbers(
        self,
        connection: Connection,
        table: Table,
        rows: Mapping[Values, Mapping[str, Any]] | Iterable[Values],
    ) -> dict[Values, int]:
        """The numbers of rows by their unique values, which are inserted where they are missing.

        `rows`: the values, in the order of the table's unique columns; a mapping where a row has other columns too.
        """
        columns = unique_columns(table)
        others = rows if isinstance(rows, Mapping) else {}
        kept, found = self._kept.get(table.name, {}), self._found.setdefault(table.name, {})
        wanted = dict.fromkeys(rows)
        missing = [value for value in wanted if value not in kept and value not in found]
        if missing:
            found.update(_look_up(connection, table, columns, missing))
            absent = [value for value in missing if value not in found]
            if absent:
                new = [{**dict(zip(columns, value, strict=True)), **others.get(value, {})} for value in absent]
                connection.execute(table.insert(), new)
                found.update(_look_up(connection, table, columns, absent))
        return {value: found[value] if value in found else kept[value] for value in wanted}

    def touch(self, connection: Connection, table: Table, used: Mapping[int, int]) -> None:
        """Notes when rows were last used, by number, to the day."""
        seen = self._seen.setdefault(table.name, {})
        due = {number: time_us for number, time_us in used.items() if seen.get(number, -DAY_US) + DAY_US <= time_us}
        if due:
            later = update(table).where(table.c.id == bindparam("number"), table.c.seen_us < bindparam("time_us"))
            moments = [{"number": number, "time_us": time_us} for number, time_us in due.items()]
            connection.execute(later.values(seen_us=bindparam("time_us")), moments)
            seen.update(due)


def unique_columns(table: Table) -> list[str]:
    constraint = next(each for each in table.constraints if isinstance(each, UniqueConstraint))
    return [column.name for column in constraint.columns]


def _look_up(
    connection: Connection, table: Table, columns: Sequence[str], values: Sequence[Values]
) -> dict[Values, int]:
    key = [table.c[name] for name in columns]
    found: dict[Values, int] = {}
    for first in range(0, len(values), _ROWS):
        chunk = values[first : first + _ROWS]
        for number, *value in connection.execute(select(table.c.id, *key).where(tuple_(*key).in_(chunk))):
            found[tuple(value)] = int(number)
    return found
