"""`fairlead ledger`: what an operator sees, exit codes included."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.history.ledger.entries import Batch
from fairlead.history.ledger.store.schema import VERSION
from fairlead.history.ledger.store.writer import open_writer
from tests.support.ledger import MONDAY_US, a_day, interval


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    where = str(tmp_path / "ledger")
    with closing(open_writer(where, writer="controller-0")) as writer:
        writer.commit(a_day())
    return where


def fairlead(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["ledger", *words])
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


def test_where_there_is_none_every_command_says_so(tmp_path: Path) -> None:
    where = str(tmp_path / "nothing")
    for words in (
        ("info", where),
        ("check", where),
        ("prune", where, "--older-than", "1d"),
        ("backup", where, where + ".sqlite"),
    ):
        said = fairlead(*words, code=2)
        assert where in said
        assert "Traceback" not in said
    assert not (tmp_path / "nothing").exists()
