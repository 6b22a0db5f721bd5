"""From when to when each device was held, and by which gang: one pass over the intervals of a window, added up by allocation and place."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Final

from sqlalchemy import Integer, and_, case, func, select
from sqlalchemy.engine import Connection

from fairlead.history.ledger.entries import Span
from fairlead.history.ledger.store.schema import ALLOCATIONS, ENDS, GANGS, INTERVALS, MEASURES, OWNERS, PLACES, SERIES
from fairlead.history.ledger.store.windows import Window, overlapping

_ROWS: Final = 5_000  # of the database at a time


def spans(connection: Connection, window: Window) -> Iterator[Span]:
    """Cut to the window; in order of allocation and place, as the ledger numbers them."""
    columns = [
        getattr(INTERVALS.c, name) for name in ("allocation", "place", "series", "start_us", "end_us", "ended_by")
    ]
    every = overlapping(window, columns, INTERVALS.c.allocation.is_not(None)).subquery()
    end_us = func.coalesce(every.c.end_us, window.as_of_us)
    held = (
        select(
            every.c.allocation,
            every.c.place,
            func.max(SERIES.c.measure).label("measure"),
            func.max(SERIES.c.lost.cast(Integer)).label("lost"),
            func.min(every.c.start_us).label("start_us"),
            func.max(end_us).label("end_us"),
            func.max(case((every.c.end_us.is_(None), 1), else_=0)).label("goes_on"),
            func.max(every.c.ended_by).label("ended_by"),
        )
        .join(SERIES, SERIES.c.id == every.c.series)
        .where(and_(every.c.start_us < window.until_us, end_us > window.since_us, end_us > every.c.start_us))
        .group_by(every.c.allocation, every.c.place)
        .subquery()
    )
    asked = (
        select(
            OWNERS.c.namespace, OWNERS.c.queue, GANGS.c.name, ALLOCATIONS.c.claim, ALLOCATIONS.c.allocated_us, PLACES.c.node,
            MEASURES.c.flavor, MEASURES.c.amount, MEASURES.c.share_ppm, held.c.start_us, held.c.end_us, held.c.goes_on, held.c.lost, ENDS.c.word, PLACES.c.device,
        )
        .select_from(held)
        .join(ALLOCATIONS, ALLOCATIONS.c.id == held.c.allocation)
        .join(GANGS, GANGS.c.id == ALLOCATIONS.c.gang)
        .join(OWNERS, OWNERS.c.id == GANGS.c.owner)
        .join(PLACES, PLACES.c.id == held.c.place)
        .join(MEASURES, MEASURES.c.id == held.c.measure)
        .outerjoin(ENDS, ENDS.c.id == held.c.ended_by)
        .order_by(held.c.allocation, held.c.place)
        .execution_options(yield_per=_ROWS)
    )  # fmt: skip
    for (
        namespace, queue, gang, claim, allocated_us, node, flavor, amount, share_ppm, start_us, end, goes_on, lost, word, device,
    ) in connection.execute(asked):  # fmt: skip
        goes_on_then = bool(goes_on) or int(end) > window.until_us
        yield Span(
            namespace=namespace,
            queue=queue,
            gang=gang,
            claim=claim,
            allocated_us=int(allocated_us),
            node=node,
            flavor=flavor,
            amount=_fraction(amount),
            share_ppm=int(share_ppm),
            start_us=max(int(start_us), window.since_us),
            end_us=min(int(end), window.until_us),
            goes_on=goes_on_then,
            # Of an end that lies beyond the window nothing is said.
            ended_by="" if goes_on_then else word or "",
            lost=bool(lost),
            device=device,
        )


@lru_cache(maxsize=1024)
def _fraction(text: str) -> Fraction:
    return Fraction(text)
