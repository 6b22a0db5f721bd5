"""What is too old goes from a ledger with everything that only it referred to, and a copy is a whole ledger; the same on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.history.ledger.entries import Batch, Gap, Held, Wait
from fairlead.history.ledger.store.copying import backup
from fairlead.history.ledger.store.place import LedgerError
from fairlead.history.ledger.store.writer import Writer, prune
from fairlead.kube.timestamps import DAY_US
from tests.support.ledger import MONDAY_US, allocation, interval, reading, writing

TABLES = ("intervals", "allocations", "gangs", "owners", "series", "measures", "places", "units", "gaps", "waits")


def rows(writer: Writer) -> dict[str, int]:
    with writer._database.transaction() as connection:
        return {name: connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one() for name in TABLES}


def three_weeks(writer: Writer) -> None:
    """A claim a day, each on a GPU and of a user of its own; one GPU is free all the time."""
    for day in range(21):
        begin_us = MONDAY_US + day * DAY_US
        held = allocation(day, user=f"user-{day}", gang=f"gang-{day}", allocated_us=begin_us)
        used = interval("used", begin_us, begin_us + DAY_US, of=held, number=day + 1)
        made = [(day + 2, used)] if day else [(1, interval("free", begin_us)), (2, used)]
        wait = Wait(queue="research", namespace="ml", gang=held.gang, queued_us=begin_us - 1, admitted_us=begin_us)
        gap = Gap(start_us=begin_us - 1, end_us=begin_us, reason="no leader")
        writer.commit(Batch(as_of_us=begin_us + DAY_US, intervals=tuple(made), waits=(wait,), gaps=(gap,)))


def test_retention_removes_what_ended_before_with_everything_that_only_it_referred_to(where: str) -> None:
    before_us = MONDAY_US + 14 * DAY_US
    with writing(where) as writer, reading(where) as reader:
        three_weeks(writer)
        kept = reader.sums(before_us, 2**62, ("user", "unit"))
        removed = 0
        while step := writer.prune(before_us):
            removed += step
        assert removed == 14 + 14 + 14
        assert reader.sums(before_us, 2**62, ("user", "unit")) == kept
        # Of places and series it is known to the day when they were used: those of two days more stay.
        left = rows(writer)
        assert {name: left[name] for name in ("intervals", "allocations", "gangs", "gaps", "waits")} == {"intervals": 8, "allocations": 7, "gangs": 7, "gaps": 7, "waits": 7}  # fmt: skip
        assert {name: left[name] for name in ("owners", "series", "places", "units")} == {"owners": 9, "series": 10, "places": 10, "units": 10}  # fmt: skip
        while writer.prune(2**62):
            pass
        assert rows(writer) == dict.fromkeys(TABLES, 0) | dict.fromkeys(
            ("intervals", "series", "measures", "places", "units"), 1
        )
        three_weeks(writer)
        assert rows(writer)["allocations"] == 21, "numbers of what is gone are not used again"
        assert len(list(reader.held(0, 2**62))) == 21


@pytest.mark.slow
def test_retention_beside_the_leader_leaves_it_its_term_and_makes_it_look_again(where: str) -> None:
    with writing(where) as writer, reading(where) as reader:
        three_weeks(writer)
        assert list(prune(where, 2**62)) == [21 + 21 + 21, 0]
        three_weeks(writer)
        assert [held.allocation.user for held in reader.held(0, 2**62)] == [f"user-{day}" for day in range(21)]


def test_a_step_of_retention_is_bounded(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.history.ledger.store.writer.remove_some.__defaults__", (4,))
    with writing(where) as writer:
        three_weeks(writer)
        assert writer.prune(2**62) == 4 + 4 + 4
        assert list(prune(where, 2**62)) == [12] * 4 + [3, 0]


def everything(where: str) -> list[object]:
    with reading(where) as reader:
        return [
            reader.known(), reader.sums(0, 2**62, ("gang", "user", "unit")), list(reader.held(0, 2**62)),
            list(reader.waits(0, 2**62)), list(reader.gaps(0, 2**62)),
        ]  # fmt: skip


@pytest.mark.slow
def test_a_backup_is_a_whole_ledger_and_is_made_while_the_writer_writes(where: str, tmp_path: Path) -> None:
    target = str(tmp_path / "backups" / "monday.sqlite")
    with writing(where) as writer:
        three_weeks(writer)
        before = everything(where)
        backup(where, target)
        writer.commit(Batch(as_of_us=2**50))
        assert everything(target) == before
        assert sorted(path.name for path in (tmp_path / "backups").iterdir()) == ["monday.sqlite"], (
            "one file, no log beside it"
        )
        with pytest.raises(LedgerError, match="there is something already"):
            backup(where, target)


def test_a_copy_goes_to_an_empty_place_and_goes_on_there(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with writing(where) as writer:
        three_weeks(writer)
    copy = str(tmp_path / "copy.sqlite")
    backup(where, copy)
    to = request.getfixturevalue("postgres").new_database()
    backup(copy, to)
    assert everything(to) == everything(where)
    with writing(to) as writer:
        three_weeks(writer)  # again: the same rows
        writer.commit(
            Batch(as_of_us=2**50, intervals=((99, interval("used", 2**49, of=allocation(99, user="new"), number=99)),))
        )
        assert len(list(reading_held(to))) == 22
    with pytest.raises(LedgerError, match="it is in use: name an empty place"):
        backup(copy, to)


def reading_held(where: str) -> list[Held]:
    with reading(where) as reader:
        return list(reader.held(0, 2**62))
