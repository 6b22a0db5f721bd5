"""`fairlead ledger`: what an operator sees, exit codes included."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.history.ledger.entries import Batch
from fairlead.history.ledger.store.schema import VERSION
from fairlead.history.ledger.store.writer import open_writer
from fairlead.kube.timestamps import DAY_US, HOUR_US
from tests.support.commands import invoke
from tests.support.ledger import MONDAY_US, a_day, allocation, interval


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    where = str(tmp_path / "ledger")
    with closing(open_writer(where, writer="controller-0")) as writer:
        writer.commit(a_day())
    return where


def fairlead(*words: str, code: int = 0) -> str:
    done = invoke(["ledger", *words])
    assert done.exit_code == code, done.output
    return done.output


def test_info_says_what_it_covers_and_who_writes_it(ledger: str) -> None:
    said = fairlead("info", ledger)
    assert f"sqlite, version {VERSION}" in said
    assert "6 intervals" in said
    assert "controller-0" in said
    assert "2026-09-21T00:00:00.000000Z" in said
    found = json.loads(fairlead("info", ledger, "-o", "json"))
    assert (found["intervals"], found["known_us"][0]) == (6, MONDAY_US)


def test_a_backup_is_made_once_and_can_be_looked_at(ledger: str, tmp_path: Path) -> None:
    target = str(tmp_path / "copy.sqlite")
    assert "copied 6 intervals" in fairlead("backup", ledger, target)
    assert "6 intervals" in fairlead("info", target)
    assert "there is something already" in fairlead("backup", ledger, target, code=2)


def test_the_environment_names_the_ledger_so_that_no_password_is_in_the_list_of_processes(
    ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_LEDGER", ledger)
    assert "6 intervals" in fairlead("info")


def test_prune_removes_what_is_older(ledger: str) -> None:
    assert "removed 0 rows" in fairlead("prune", ledger, "--older-than", "100000d")
    with closing(open_writer(ledger, writer="controller-0")) as writer:
        writer.commit(Batch(as_of_us=20, intervals=((9, interval("free", 10, 20, number=5)),)))
    assert "removed 1 rows" in fairlead("prune", ledger, "--older-than", "18000d")
    assert "--older-than" in fairlead("prune", ledger, "--older-than", "soon", code=2)


def test_check_passes_on_a_whole_day_and_names_the_first_unit_and_day_that_breaks_the_law(ledger: str) -> None:
    assert "every moment of every device is counted once" in fairlead("check", ledger)
    with closing(sqlite3.connect(Path(ledger) / "ledger.sqlite")) as connection, connection:
        connection.execute("UPDATE intervals SET start_us = start_us + 1 WHERE number = 4")
    said = fairlead("check", ledger, code=1)
    assert "gpu.fairlead.dev/node-0/gpu-0 on 2026-09-21: 0.0000% of it is accounted for" in said
    assert "2026-09-21T09:00:00.000000Z to 2026-09-21T09:00:00.000001Z" in said
    assert "counted once" in fairlead("check", ledger, "--since", "2026-09-22")


def test_claims_are_listed_with_device_times_and_why_they_ended(ledger: str) -> None:
    day = ("--window", "2026-09-21..2026-09-22")
    said = fairlead("claims", ledger, *day).splitlines()
    assert said[0] == "2026-09-21T00:00:00Z to 2026-09-22T00:00:00Z: 1 times that a claim held a device"
    assert (
        " ".join(said[1].split())
        == "NAMESPACE CLAIM GANG QUEUE FLAVOR NODE DEVICE SHARE FROM UNTIL GPU-HOURS ENDED LOST"
    )
    assert (
        " ".join(said[2].split())
        == "ml train-0 train research h100 node-0 gpu-0 1 2026-09-21T02:00:00Z 2026-09-21T20:00:00Z 18 Completed"
    )
    (row,) = json.loads(fairlead("claims", ledger, *day, "-o", "json"))["claims"]
    assert (row["device"], row["gpuHours"], row["ended"], row["lost"]) == ("gpu-0", "18", "Completed", False)
    cut = fairlead("claims", ledger, "--window", "2026-09-21T00:00:00Z..2026-09-21T12:00:00Z", "-o", "csv").splitlines()
    assert cut[0].startswith("namespace,claim,gang,queue,")
    assert cut[1].endswith("2026-09-21T02:00:00Z,2026-09-21T12:00:00Z,10,later,")
    for only, listed in (("--queue=research", 1), ("--queue=other", 0), ("--namespace=ml", 1), ("--gang=other", 0)):
        assert f": {listed} times" in fairlead("claims", ledger, *day, only)


def test_a_claim_that_goes_on_says_so_and_names_run_as_no_formula(ledger: str) -> None:
    held = allocation(1, claim="=cmd|x", allocated_us=MONDAY_US)
    with closing(open_writer(ledger, writer="controller-0")) as writer:
        until_us = MONDAY_US + DAY_US + HOUR_US
        writer.commit(
            Batch(as_of_us=until_us, intervals=((9, interval("used", until_us - HOUR_US, of=held, number=1)),))
        )
    said = fairlead("claims", ledger, "--window", "2026-09-21..2026-09-23", "-o", "csv")
    assert "ml,'=cmd|x,train,research,h100,node-0,gpu-1,1,2026-09-22T00:00:00Z,2026-09-22T01:00:00Z,1,goes on," in said


@pytest.mark.parametrize("window", ["yesterday", "2026-09-22..2026-09-21", "2001-01-01..2001-01-02"])
def test_a_window_that_is_none_or_not_known_lists_nothing(ledger: str, window: str) -> None:
    said = fairlead("claims", ledger, "--window", window, code=2)
    assert "Traceback" not in said
    assert "window" in said


def test_where_there_is_none_every_command_says_so(tmp_path: Path) -> None:
    where = str(tmp_path / "nothing")
    for words in (
        ("info", where),
        ("check", where),
        ("claims", where),
        ("prune", where, "--older-than", "1d"),
        ("backup", where, where + ".sqlite"),
    ):
        said = fairlead(*words, code=2)
        assert where in said
        assert "Traceback" not in said
    assert not (tmp_path / "nothing").exists()
