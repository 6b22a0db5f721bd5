"""The book of gangs of one term of leadership.

    book[gang_id].backoff            what is known of one gang; None: nothing
    book.all(GangState.backoff)      of those that have one, by id
    book.forget(gang_id)             its members are gone: what is theirs goes with them

Decides nothing, reads no clock.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TypeVar

from fairlead.controller.book.field import Columns, Field
from fairlead.controller.book.gang_state import GangState
from fairlead.controller.gangs.membership.gangs import GangId

T = TypeVar("T")
FIELDS = tuple(each for each in vars(GangState).values() if isinstance(each, Field))
LAPSE = tuple(each for each in FIELDS if not each.outlives)


class Book:
    def __init__(self) -> None:
        self._columns: Columns = {each: {} for each in FIELDS}

    def __getitem__(self, gang_id: GangId) -> GangState:
        return GangState(gang_id, self._columns)

    def all(self, field: Field[T]) -> Mapping[GangId, T]:
        """Of the gangs that have one, in the order in which they got it. Follows every change."""
        return self._columns[field]

    def take(self, gang_id: GangId, field: Field[T]) -> T | None:
        """What the gang has; afterwards it has none."""
        found: T | None = self._columns[field].pop(gang_id, None)
        return found

    def replace(self, field: Field[T], found: Mapping[GangId, T]) -> None:
        """These gangs have one, and no others."""
        self._columns[field].clear()
        self._columns[field].update(found)

    def keep(self, field: Field[T], gangs: Container[GangId]) -> None:
        """Only these gangs go on having one."""
        column = self._columns[field]
        for gang_id in [gang_id for gang_id in column if gang_id not in gangs]:
            del column[gang_id]

    def forget(self, gang_id: GangId) -> None:
        """The gang has no members left."""
        for field in LAPSE:
            self._columns[field].pop(gang_id, None)
