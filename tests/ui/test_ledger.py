"""How pages read the ledger: once for many, bounded, and with words for what prevents it."""

import asyncio
import threading
from pathlib import Path

import pytest

from fairlead.history.cost.bill import Asked
from fairlead.history.cost.window import CostError
from fairlead.history.ledger.entries import Batch
from fairlead.history.ledger.store.place import UnavailableError
from fairlead.history.ledger.store.writer import open_writer
from fairlead.kube.timestamps import DAY_US
from fairlead.ui.reading import ledger as ledgers
from fairlead.ui.reading.cluster import NotReadError
from fairlead.ui.reading.ledger import Ledger
from tests.support import ui
from tests.support.costs import D1, DAY, at
from tests.support.ledger_in_memory import Ledger as InMemory
from tests.support.ledger_in_memory import allocation, interval

END = (D1 + DAY_US) / 1e6


class Opened(InMemory):
    """Counts how often it is opened and closed."""

    def __init__(self, intervals=DAY):
        super().__init__(intervals)
        self.opened = self.closed = 0
        self.gate = threading.Event()
        self.gate.set()

    def open(self, where):
        self.opened += 1
        return self

    def known(self):
        self.gate.wait(10)
        return super().known()

    def close(self):
        self.closed += 1


def ledger(store, clock=None, wall=END, **options):
    return Ledger("here", open_=store.open, clock=clock or ui.Times(), wall=lambda: wall, **options)


async def test_the_past_is_read_once_for_a_while_and_closed():
    store, clock = Opened(), ui.Times()
    made = ledger(store, clock)
    first, second = await asyncio.gather(made.past(86400.0), made.past(86400.0))
    assert first is second
    assert (store.opened, store.closed) == (1, 1)
    assert {(each.gang, each.goes_on) for each in first.spans} == {("train", False), ("serve", False)}
    assert first.missing == ""
    clock.now += 100
    assert await made.past(86400.0) is not first
    assert (await made.past(3600.0)).spans != first.spans
    assert store.opened == store.closed == 3


async def test_a_real_ledger_is_read_while_its_writer_writes(tmp_path: Path):
    writer = open_writer(str(tmp_path), writer="test")
    held = interval(0, "used", at(0), at(24), claim=allocation("a"))
    writer.commit(Batch(as_of_us=at(24), intervals=((1, held),)))
    made = Ledger(str(tmp_path), wall=lambda: END)
    assert [each.gang for each in (await made.past(86400.0)).spans] == ["train"]
    assert [line.keys for line in (await made.bill(Asked(), "1d")).lines] == [("ml",)]
    writer.close()


async def test_what_prevents_it_is_said(tmp_path: Path):
    assert "no ledger is named" in (await Ledger("").past(60.0)).missing
    with pytest.raises(CostError, match="no ledger is named"):
        await Ledger("").bill(Asked(), "1d")
    none = Ledger(str(tmp_path / "none"), wall=lambda: END)
    assert "of the past nothing is known: " in (await none.past(60.0)).missing
    with pytest.raises(CostError, match="the ledger cannot be read: "):
        await none.bill(Asked(), "1d")
    empty = Opened([])
    assert "holds nothing yet" in (await ledger(empty).past(60.0)).missing
    late = await ledger(Opened(), wall=END + 7200).past(86400.0)
    assert "the ledger covers 2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z" in late.missing
    assert late.spans
    with pytest.raises(CostError, match="--window 5x"):
        await ledger(Opened()).bill(Asked(), "5x")


async def test_an_error_is_not_kept():
    store = Opened()
    failing = [UnavailableError("locked")]

    def open_(where):
        if failing:
            raise failing.pop()
        return store

    made = Ledger("here", open_=open_, wall=lambda: END)
    assert "locked" in (await made.past(60.0)).missing
    assert (await made.past(86400.0)).missing == ""


async def test_many_questions_are_refused_with_a_sentence(monkeypatch):
    store = Opened()
    store.gate.clear()
    made = ledger(store)
    asked = [asyncio.create_task(made.past(60.0 + number)) for number in range(ledgers.WAITING_MAX)]
    await asyncio.sleep(0)
    assert "16 questions to the ledger wait already" in (await made.past(9999.0)).missing
    with pytest.raises(NotReadError, match="16 questions"):
        await made.bill(Asked(), "1d")
    store.gate.set()
    assert all([not (await each).spans or True for each in asked])
    assert (await made.past(86400.0)).spans


async def test_a_time_with_too_many_spans_is_not_shown_in_part(monkeypatch):
    monkeypatch.setattr(ledgers, "SPANS_MAX", 1)
    past = await ledger(Opened()).past(86400.0)
    assert past.spans == ()
    assert "choose a shorter one" in past.missing


async def test_prices_are_those_of_the_cluster_and_what_is_wrong_with_them_is_said():
    async def flavors():
        return [
            {
                "kind": "Flavor",
                "metadata": {"name": "h100"},
                "spec": {"deviceSelector": "true", "price": [{"perHour": "2.00", "currency": "EUR"}]},
            }
        ]

    bill = await ledger(Opened(), flavors=flavors).bill(Asked(), "1d")
    assert (bill.charged, bill.uncharged) == ({"EUR": 68}, {"EUR": 28})

    async def wrong():
        return [{"kind": "Flavor", "metadata": {"name": "h100"}, "spec": {"deviceSelector": 5}}]

    with pytest.raises(NotReadError, match="prices cannot be read"):
        await ledger(Opened(), flavors=wrong).bill(Asked(), "1d")
