"""Decisions about gangs in the ledger: by gang, for a week, and in ledgers that were made before there were any."""

from __future__ import annotations

from contextlib import closing

from fairlead.history.ledger.account import Account
from fairlead.history.ledger.entries import Batch, Decision, Kept, Observation
from fairlead.history.ledger.store.reader import open_reader
from fairlead.history.ledger.store.schema import DECISIONS, LEDGER
from fairlead.history.ledger.store.writer import open_writer, prune
from fairlead.kube.timestamps import DAY_US, HOUR_US
from tests.support.ledger import MONDAY_US


def decision(at_us: int, *, gang: str = "train", what: str = "NoDevices", text: str = "8 wanted") -> Decision:
    return Decision(namespace="vision", gang=gang, at_us=at_us, what=what, text=text, warning=what == "Evicting")


def test_they_are_read_by_gang_newest_first_and_written_twice_are_one(where: str) -> None:
    mine = [decision(MONDAY_US), decision(MONDAY_US + 1, what="Evicting"), decision(MONDAY_US + 2)]
    batch = Batch(as_of_us=MONDAY_US + HOUR_US, decisions=(*mine, decision(MONDAY_US, gang="other")))
    with closing(open_writer(where, writer="a leader")) as writer:
        writer.commit(batch)
        writer.commit(batch)
    with closing(open_reader(where)) as reader:
        assert reader.decisions("vision", "train", 10) == mine[::-1]
        assert reader.decisions("vision", "train", 2) == mine[:0:-1]
        assert reader.decisions("other", "train", 2) == []


def test_they_are_kept_for_a_week_and_no_longer_than_the_ledger(where: str) -> None:
    days = [decision(MONDAY_US + number * DAY_US) for number in range(10)]
    with closing(open_writer(where, writer="a leader")) as writer:
        writer.commit(Batch(as_of_us=MONDAY_US + 9 * DAY_US, decisions=tuple(days)))
        assert writer.prune(MONDAY_US) == 2
        assert writer.prune(MONDAY_US) == 0
        with closing(open_reader(where)) as reader:
            assert reader.decisions("vision", "train", 20) == days[:1:-1]
            assert list(prune(where, MONDAY_US + 8 * DAY_US)) == [6, 0]
            assert reader.decisions("vision", "train", 20) == days[:7:-1]


def test_a_ledger_of_the_version_before_gets_the_table(where: str) -> None:
    with closing(open_writer(where, writer="old")) as writer, writer._database.transaction() as connection:
        DECISIONS.drop(connection)
        connection.execute(LEDGER.update().values(version=1))
    with closing(open_writer(where, writer="new")) as writer:
        writer.commit(Batch(as_of_us=MONDAY_US, decisions=(decision(MONDAY_US),)))
    with closing(open_reader(where)) as reader:
        assert reader.decisions("vision", "train", 20) == [decision(MONDAY_US)]


def test_an_account_hands_each_on_once() -> None:
    account = Account(Kept(as_of_us=None, next_number=1, open={}))
    account.resume(Observation(now_us=MONDAY_US), sole=True, reason="")
    account.observe(Observation(now_us=MONDAY_US + 1, decisions=(decision(MONDAY_US),)))
    assert account.take().decisions == (decision(MONDAY_US),)
    assert account.take().decisions == ()
