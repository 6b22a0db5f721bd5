"""Tables of facts in parts, so that a whole state is never in memory as text, nor twice as values.

Of 10,000 nodes with MIG-capable GPUs a state is 2.6 GB of JSON. A part has some `PART_WEIGHT` devices, pods and other entries, which is about
a megabyte. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead.history.facts import form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

PART_WEIGHT = 1_000
Tables = dict[str, Any]  # table to entries by key
_MANY = {"slices": "devices", "gangs": "members", "running": "members"}  # what an entry has many of


def weight(tables: Mapping[str, Mapping[str, Any]]) -> int:
    """Devices, pods and other entries."""
    return sum(_weight(table, value) for table, entries in tables.items() for value in entries.values())


def parts(
    tables: Mapping[str, Mapping[str, Any]], write: Callable[[str, Any], Any], *, most: int = PART_WEIGHT
) -> Iterator[form.Facts]:
    """In order. `write` makes of a table's entry what the format has; each part is made when it is asked for."""
    part: Tables = {}
    full = 0
    for table, entries in tables.items():
        for key, value in entries.items():
            if full >= most:
                yield form.Facts(**part)
                part, full = {}, 0
            part.setdefault(table, {})[key] = None if value is None else write(table, value)
            full += _weight(table, value)
    if part:
        yield form.Facts(**part)


def tables_of(facts: form.Facts) -> Tables:
    """Those that have entries."""
    return {table: entries for table in TABLES if (entries := getattr(facts, table))}


def joined(several: Iterable[form.Facts]) -> Tables:
    """The tables of all of them, in their order."""
    found: Tables = {}
    for facts in several:
        for table, entries in tables_of(facts).items():
            found.setdefault(table, {}).update(entries)
    return found


def _weight(table: str, value: Any) -> int:
    return 1 + (len(getattr(value, many)) if value is not None and (many := _MANY.get(table)) else 0)


TABLES = tuple(name for name in form.Facts.__struct_fields__ if name not in {"order", "workload", "mix", "settings"})
