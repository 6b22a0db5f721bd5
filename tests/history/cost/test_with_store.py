"""Bills from the store on disk are those from the naive ledger in memory, whatever they are grouped by."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.history.cost import focus
from fairlead.history.cost.bill import BASES, IDLES, Asked, Bill, make
from fairlead.history.cost.window import BY, CostError, Known, Window
from fairlead.history.ledger.entries import Allocation, Batch, Interval
from fairlead.history.ledger.store import reader, writer
from fairlead.kube.timestamps import DAY_US
from tests.support.costs import BOOK, WHOLE, accounted, lives
from tests.support.ledger_in_memory import Ledger

ASKED = st.builds(
    Asked,
    by=st.lists(st.sampled_from([*BY, "label=team"]), min_size=1, max_size=4, unique=True).map(tuple),
    basis=st.sampled_from(BASES),
    idle=st.sampled_from(IDLES),
)


def outcome(source: Any, asked: Asked) -> Any:
    try:
        return lines(make(source, BOOK, asked, Known(WHOLE)))
    except CostError as error:
        return str(error)


def lines(bill: Bill) -> Any:
    made = {(line.kind, line.queue, line.keys): (accounted(line), line.figures) for line in bill.lines}
    return made, bill.conservation.weighed, bill.conservation.days


def distinct(life: list[Interval]) -> list[Interval]:
    """Each allocation with a time of its own: a claim that is allocated at one time has one gang, one queue and one user."""
    numbers: dict[Allocation, int] = {}
    return [
        each
        if each.allocation is None
        else replace(
            each, allocation=replace(each.allocation, allocated_us=numbers.setdefault(each.allocation, len(numbers)))
        )
        for each in life
    ]


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(lives().map(distinct), st.lists(ASKED, min_size=1, max_size=4))
def test_a_bill_from_the_store_is_the_naive_one(life: list[Interval], questions: list[Asked]) -> None:
    with TemporaryDirectory() as directory:
        where = str(Path(directory) / "ledger")
        opened = writer.open_writer(where, writer="test")
        opened.commit(Batch(as_of_us=WHOLE.until_us + DAY_US, intervals=tuple(enumerate(life, start=1))))
        opened.close()
        stored = reader.open_reader(where)
        try:
            for asked in questions:
                assert outcome(stored, asked) == outcome(Ledger(life), asked)
            found, expected = (
                sorted(map(str, focus.rows(source, BOOK, Asked(), Known(WHOLE), "c", {})))
                for source in (stored, Ledger(life))
            )
            assert found == expected
            for window in (WHOLE, Window(WHOLE.since_us + DAY_US // 2, WHOLE.until_us - DAY_US)):
                found, expected = (
                    # Of a device that one claim holds in two shares, which no claim does, either may be named.
                    sorted(map(str, (each._replace(amount=Fraction(0), share_ppm=0) for each in source.spans(*window))))
                    for source in (stored, Ledger(life))
                )
                assert found == expected
        finally:
            stored.close()
