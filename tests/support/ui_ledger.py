"""A ledger of the day before `NOW`, as the page of time and the page of costs read it: gangs that ran, one evicted, and what was free."""

from __future__ import annotations

from typing import Any

from fairlead.history.ledger.entries import Interval
from fairlead.ui.reading.ledger import Ledger
from tests.support.ledger_in_memory import Ledger as InMemory
from tests.support.ledger_in_memory import allocation, interval
from tests.support.pasts import us
from tests.support.ui import NOW

PRICE: dict[str, Any] = {
    "apiVersion": "fairlead.dev/v1alpha1",
    "kind": "Flavor",
    "metadata": {"name": "h100"},
    "spec": {"deviceSelector": "true", "price": [{"perHour": "3.00", "currency": "EUR"}]},
}


async def _flavors() -> list[dict[str, Any]]:
    return [PRICE]


def day(*, queues: int = 5) -> list[Interval]:
    """GPU 0 and 1 of each queue's node: two gangs one after the other, the second evicted; in between they are free."""
    found: list[Interval] = []
    for team in range(queues):
        node = f"node-{team:03}"
        gangs = ((f"past-{team}", 20 - team, 14 - team, "Completed"), (f"cut-{team}", 10, 7, "Evicted"))
        for gpu in range(2):
            since = 24.0
            for gang, first, last, ended in gangs:
                held = allocation(
                    f"{gang}-{gpu}", at=us(first), gang=gang, queue=f"queue-{team}", namespace=f"team-{team}"
                )
                half, lost = (first + last) / 2, ended == "Evicted"
                if since > first:
                    found.append(interval(gpu, "free", us(since), us(first), node=node))
                found.append(interval(gpu, "used", us(first), us(half), claim=held, busy=0.8, node=node))
                found.append(
                    interval(
                        gpu, "idle", us(half), us(last), claim=held, busy=0.0, node=node, ended_by=ended, lost=lost
                    )
                )
                since = last
            found.append(interval(gpu, "free", us(since), us(0), node=node))
    return found


def ledger(**options: Any) -> Ledger:
    return Ledger("day", open_=lambda where: InMemory(day(**options)), flavors=_flavors, wall=lambda: NOW)
