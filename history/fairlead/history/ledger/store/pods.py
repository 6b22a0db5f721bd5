"""What pods requested: written by the leader, read back when a term begins, added up for bills and budgets, and removed with age.

Sums are exact: the database adds times, which are integers, by gang and amount; amounts, which are fractions, are multiplied here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from sqlalchemy import and_, delete, exists, func, or_, select
from sqlalchemy.engine import Connection

from fairlead.history.ledger.pod_entries import Holder, PodAmount, PodInterval, PodSum
from fairlead.history.ledger.store.rows import Interning, labels_of, labels_text, uid_bytes, uid_text
from fairlead.history.ledger.store.schema import GANGS, OWNERS, POD_AMOUNTS, PODS
from fairlead.history.ledger.store.sums import LABEL, check_groups, pieces
from fairlead.history.ledger.store.windows import Window


def pod_rows(connection: Connection, interning: Interning, intervals: Sequence[PodInterval]) -> list[dict[str, Any]]:
    """One row for each, in order; rows of other tables are written where they are missing."""
    owners = interning.numbers(connection, OWNERS, (_owner(each.holder) for each in intervals))
    gangs = interning.numbers(
        connection, GANGS, ((owners[_owner(each.holder)], each.holder.gang) for each in intervals)
    )
    amounts = interning.numbers(connection, POD_AMOUNTS, (_amount(each.amount) for each in intervals))
    return [
        {
            "pod_uid": uid_bytes(each.pod_uid),
            "amount": amounts[_amount(each.amount)],
            "start_us": each.start_us,
            "end_us": each.end_us,
            "gang": gangs[owners[_owner(each.holder)], each.holder.gang],
        }
        for each in intervals
    ]


def _owner(holder: Holder) -> tuple[str, str, str, str]:
    return holder.queue, holder.namespace, holder.user, labels_text(holder.labels)


def _amount(amount: PodAmount) -> tuple[str, str, str, str]:
    return amount.flavor, amount.resource, str(amount.amount), amount.capacity_type or ""


def open_pods(connection: Connection) -> tuple[PodInterval, ...]:
    """Those that go on."""
    still = PODS.c.end_us.is_(None)
    columns = (PODS.c.pod_uid, PODS.c.amount, PODS.c.start_us, PODS.c.gang)
    rows = connection.execute(select(*columns).where(still).order_by(*PODS.primary_key)).all()
    amounts = _amounts(connection)
    holders = _holders(connection, {gang for _, _, _, gang in rows})
    return tuple(
        PodInterval(pod_uid=uid_text(bytes(uid)), holder=holders[gang], amount=amounts[amount], start_us=int(start_us))
        for uid, amount, start_us, gang in rows
    )


def pod_sums(connection: Connection, window: Window, by: Sequence[str]) -> list[PodSum]:
    """In the order of keys, flavor, resource and capacity type. Raises ValueError for a name that is none of GROUPS and no label."""
    check_groups(by)
    amounts = _amounts(connection)
    found: dict[_Alike, Fraction] = {}
    for piece, day in pieces(window, by_day="day" in by):
        times = _times(connection, piece)
        holders = _holders(connection, {gang for gang, _ in times})
        for (gang, number), time_us in times.items():
            amount = amounts[number]
            keys = tuple(_key(holders[gang], amount, name, day) for name in by)
            alike = _Alike(keys, amount.flavor, amount.resource, amount.capacity_type or "")
            found[alike] = found.get(alike, Fraction(0)) + amount.amount * time_us
    return [
        PodSum(keys=keys, flavor=flavor, resource=resource, capacity_type=capacity_type or None, weighed=weighed)
        for (keys, flavor, resource, capacity_type), weighed in sorted(found.items())
    ]


class _Alike(NamedTuple):
    keys: tuple[str, ...]
    flavor: str
    resource: str
    capacity_type: str


def _times(connection: Connection, window: Window) -> dict[tuple[int, int], int]:
    """By gang and amount. Rows that lie in the window are added by the database, the others are cut here."""
    start, end = PODS.c.start_us, PODS.c.end_us
    since_us, until_us = window.since_us, window.until_us
    whole = and_(end > since_us, until_us >= end, since_us <= start)
    added = select(PODS.c.gang, PODS.c.amount, func.sum(end - start)).where(whole).group_by(PODS.c.gang, PODS.c.amount)
    found = {(int(gang), int(amount)): int(time_us) for gang, amount, time_us in connection.execute(added)}
    rows = select(PODS.c.gang, PODS.c.amount, start, end)
    over = and_(end > since_us, until_us > start, or_(since_us > start, until_us < end))
    for asked in (rows.where(over), rows.where(end.is_(None), until_us > start)):
        for gang, amount, start_us, end_us in connection.execute(asked):
            begin_us = max(int(start_us), since_us)
            finish_us = min(window.as_of_us if end_us is None else int(end_us), until_us)
            if begin_us < finish_us:
                key = int(gang), int(amount)
                found[key] = found.get(key, 0) + finish_us - begin_us
    return found


def _key(holder: Holder, amount: PodAmount, name: str, day: str) -> str:
    if name.startswith(LABEL):
        return dict(holder.labels).get(name.removeprefix(LABEL), "")
    match name:
        case "queue" | "namespace" | "user" | "gang":
            return str(getattr(holder, name))
        case "flavor":
            return amount.flavor
        case "bucket":
            return "used"
        case "day":
            return day
        case _:
            return ""  # of devices alone


_IDS: Final = 500  # of one statement


def _holders(connection: Connection, gangs: Iterable[int]) -> dict[int, Holder]:
    columns = (GANGS.c.id, OWNERS.c.namespace, GANGS.c.name, OWNERS.c.queue, OWNERS.c.username, OWNERS.c.labels)
    rows = select(*columns).join(OWNERS, OWNERS.c.id == GANGS.c.owner)
    wanted = sorted(gangs)
    return {
        int(number): Holder(namespace, gang, queue, user, labels_of(labels))
        for first in range(0, len(wanted), _IDS)
        for number, namespace, gang, queue, user, labels in connection.execute(
            rows.where(GANGS.c.id.in_(wanted[first : first + _IDS]))
        )
    }


def _amounts(connection: Connection) -> dict[int, PodAmount]:
    """All that there are: some hundreds."""
    return {
        int(number): PodAmount(flavor, resource, Fraction(amount), capacity_type or None)
        for number, flavor, resource, amount, capacity_type in connection.execute(select(POD_AMOUNTS))
    }


def remove_pods(connection: Connection, before_us: int, rows_max: int) -> tuple[int, set[int]]:
    """At most so many that ended before; how many, and the gangs that they were of."""
    later = select(PODS.c.end_us).where(PODS.c.end_us < before_us).order_by(PODS.c.end_us).offset(rows_max).limit(1)
    until_us = connection.execute(later).scalar_one_or_none()
    old = before_us > PODS.c.end_us if until_us is None else until_us > PODS.c.end_us
    gangs = list(connection.execute(delete(PODS).where(old).returning(PODS.c.gang)).scalars())
    used = exists().where(PODS.c.amount == POD_AMOUNTS.c.id)
    if gangs:
        connection.execute(delete(POD_AMOUNTS).where(~used))
    return len(gangs), set(gangs)
