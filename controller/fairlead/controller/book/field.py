"""A field of every gang's state, as a column: a gang without an entry has None, and the book can tell which gangs have one.

So most gangs, which have few of the fields, cost little, and "which gangs back off" costs what these cost. Setting None drops the
entry. The order of a column is that in which its gangs got their entry.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

from fairlead.controller.gangs.membership.gangs import GangId

T = TypeVar("T")
Columns = dict["Field[Any]", dict[GangId, Any]]


class Row:
    """One gang in the columns of a book. Holds nothing itself: it is current whenever it is read."""

    __slots__ = ("columns", "id")

    def __init__(self, gang_id: GangId, columns: Columns) -> None:
        self.id = gang_id
        self.columns = columns


class Field(Generic[T]):
    """`outlives`: kept when the gang's members are gone (`Book.forget`); who sets it says when it ends."""

    def __init__(self, *, outlives: bool = False) -> None:
        self.outlives = outlives

    @overload
    def __get__(self, row: None, owner: type) -> Field[T]: ...
    @overload
    def __get__(self, row: Row, owner: type) -> T | None: ...
    def __get__(self, row: Row | None, owner: type) -> Field[T] | T | None:
        return self if row is None else row.columns[self].get(row.id)

    def __set__(self, row: Row, value: T | None) -> None:
        if value is None:
            row.columns[self].pop(row.id, None)
        else:
            row.columns[self][row.id] = value
