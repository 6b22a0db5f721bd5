"""The tables, the same in SQLite and PostgreSQL. A row of `intervals` has integers only; words are in tables of their own.

`series` is what many intervals share: bucket, measure, lost, and the owner (queue, namespace, user, labels). There are some
thousands, so sums read one narrow table and look up a few names. `places` are a unit, its node and the device that is held.
0 as a reference: none. Times are unix microseconds. `seen_us` of a place or series: an interval with it was written at that time or
up to a day later, so retention knows what no interval refers to without an index on it.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
    text,
)

from fairlead.kube.timestamps import DAY_US

VERSION: Final = 4
METADATA: Final = MetaData()
_BIG: Final = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows itself only where the type is INTEGER


def _table(
    name: str, *columns: Column[str] | Column[int] | Column[bool] | Column[bytes], unique: tuple[str, ...]
) -> Table:
    constraint = UniqueConstraint(*unique, name=f"{name}_values")
    return Table(name, METADATA, Column("id", _BIG, primary_key=True), *columns, constraint)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _number(name: str, *, optional: bool = False) -> Column[int]:
    return Column(name, _BIG, nullable=optional)


# One row. `term`: of the writer that may commit; `lease_transitions`: of the leader that committed last. `pruned`: how often rows of other tables were removed, so that a writer's caches are void.
LEDGER: Final = Table(
    "fairlead_ledger",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    _number("version"),
    _number("term"),
    _text("writer"),
    _number("as_of_us", optional=True),
    _number("next_number"),
    _number("lease_transitions", optional=True),
    _number("pruned"),
)
UNITS: Final = _table("units", _text("driver"), _text("pool"), _text("name"), unique=("driver", "pool", "name"))
PLACES: Final = _table(
    "places", _number("unit"), _text("node"), _text("device"), _number("seen_us"), unique=("unit", "node", "device")
)
# `amount`: an exact fraction, as "3/7". `capacity_type` "": none.
MEASURES: Final = _table(
    "measures", _number("share_ppm"), _text("flavor"), _text("amount"), _text("capacity_type"),
    unique=("share_ppm", "flavor", "amount", "capacity_type"),
)  # fmt: skip
# `labels`: a JSON object, sorted by name. `user` is a word of SQL.
OWNERS: Final = _table(
    "owners", _text("queue"), _text("namespace"), _text("username"), _text("labels"),
    unique=("queue", "namespace", "username", "labels"),
)  # fmt: skip
SERIES: Final = _table(
    "series", _number("owner"), _number("measure"), _text("bucket"), Column("lost", Boolean, nullable=False), _number("seen_us"),
    unique=("owner", "measure", "bucket", "lost"),
)  # fmt: skip
GANGS: Final = _table("gangs", _number("owner"), _text("name"), unique=("owner", "name"))
# `claim_uid`: as of rows.uid_bytes. `first_number`, `last_number`: between them are the numbers of all of its intervals; this takes a
# tenth of what an index of intervals by allocation would.
ALLOCATIONS: Final = _table(
    "allocations", Column("claim_uid", LargeBinary, nullable=False), _number("allocated_us"), _number("gang"), _text("claim"),
    _number("first_number"), _number("last_number"),
    unique=("claim_uid", "allocated_us"),
)  # fmt: skip
ENDS: Final = _table("ends", _text("word"), unique=("word",))
INTERVALS: Final = Table(
    "intervals",
    METADATA,
    Column("number", _BIG, primary_key=True, autoincrement=False),
    _number("start_us"),
    _number("end_us", optional=True),
    _number("place"),
    _number("series"),
    _number("allocation", optional=True),
    _number("sampled_us"),
    _number("busy_us"),
    _number("memory_peak_bytes", optional=True),
    _number("memory_bytes", optional=True),
    _number("ended_by"),
)
# What pods of gangs request, by flavor; `amount`: an exact fraction, in the unit that is charged.
POD_AMOUNTS: Final = _table(
    "pod_amounts", _text("flavor"), _text("resource"), _text("amount"), _text("capacity_type"),
    unique=("flavor", "resource", "amount", "capacity_type"),
)  # fmt: skip
PODS: Final = Table(
    "pods",
    METADATA,
    Column("pod_uid", LargeBinary, primary_key=True),
    Column("amount", _BIG, primary_key=True, autoincrement=False),
    Column("start_us", _BIG, primary_key=True, autoincrement=False),
    _number("end_us", optional=True),
    _number("gang"),
)
GAPS: Final = Table("gaps", METADATA, *(Column(name, _BIG, primary_key=True, autoincrement=False) for name in ("start_us", "end_us")), Column("reason", Text, primary_key=True))  # fmt: skip
WAITS: Final = Table(
    "waits",
    METADATA,
    Column("admitted_us", _BIG, primary_key=True, autoincrement=False),
    Column("namespace", Text, primary_key=True),
    Column("gang", Text, primary_key=True),
    _text("queue"),
    _number("queued_us"),
)
DECISIONS: Final = Table(
    "decisions",
    METADATA,
    Column("namespace", Text, primary_key=True),
    Column("gang", Text, primary_key=True),
    Column("at_us", _BIG, primary_key=True, autoincrement=False),
    Column("what", Text, primary_key=True),
    _text("text"),
    Column("warning", Boolean, nullable=False),
)

# An interval that overlaps a window began in it or less than a day before, or it is open, or among the few that are longer than a day.
IS_OPEN: Final = text("end_us IS NULL")
IS_LONG: Final = text(f"end_us - start_us > {DAY_US}")
# In hours, which take 5 bytes less a row than microseconds.
START_HOUR: Final = literal_column("(start_us / 3600000000)", BigInteger)
Index("intervals_start", START_HOUR, _table=INTERVALS)
Index("intervals_open", INTERVALS.c.place, sqlite_where=IS_OPEN, postgresql_where=IS_OPEN)
Index("intervals_long", INTERVALS.c.end_us, sqlite_where=IS_LONG, postgresql_where=IS_LONG)
Index("allocations_gang", ALLOCATIONS.c.gang)
Index("decisions_at", DECISIONS.c.at_us)
# Those that overlap a window have ended after its beginning, or are open.
Index("pods_end", PODS.c.end_us)
Index("pods_gang", PODS.c.gang)
