"""What goes wrong is said by name, loses nothing that was committed, and passes when its cause does."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection

from fairlead.history.ledger.entries import Batch
from fairlead.history.ledger.store.database import Database, Step, create_or_migrate, version
from fairlead.history.ledger.store.place import (
    CorruptLedgerError,
    LedgerError,
    NewerLedgerError,
    UnavailableError,
    place_of,
)
from fairlead.history.ledger.store.reader import open_reader
from fairlead.history.ledger.store.schema import INTERVALS, LEDGER, VERSION
from fairlead.history.ledger.store.writer import Writer, open_writer
from tests.support.ledger import MONDAY_US, a_day, allocation, interval
from tests.support.postgres import Server

ROOT = Path(__file__).resolve().parents[3]


def batch(first: int, count: int) -> Batch:
    """So many intervals, each of a claim of its own."""
    rows = [
        (
            number,
            interval("used", MONDAY_US + number, MONDAY_US + number + 1, of=allocation(number), number=number % 64),
        )
        for number in range(first, first + count)
    ]
    return Batch(as_of_us=MONDAY_US + first + count, intervals=tuple(rows))


def intervals(where: str) -> int:
    with closing(open_reader(where)) as reader:
        return reader.info().intervals


# -- versions --------------------------------------------------------------------------------------------------------


def test_a_ledger_of_a_newer_version_is_refused_and_left_as_it_is(where: str) -> None:
    with closing(open_writer(where, writer="new")) as writer, writer._database.transaction() as connection:
        connection.execute(LEDGER.update().values(version=VERSION + 1))
    for opened in (lambda: open_writer(where, writer="old"), lambda: open_reader(where)):
        with pytest.raises(
            NewerLedgerError, match=f"version {VERSION + 1}, this fairlead reads {VERSION}: update this program"
        ):
            opened()


def steps(*, fails: bool) -> dict[int, Step]:
    def coloured(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE gaps ADD COLUMN colour TEXT"))
        connection.execute(text("UPDATE gaps SET colour = 'grey'"))

    def broken(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE gaps DROP COLUMN colour"))
        raise RuntimeError("the power failed")

    return {VERSION + 1: coloured, VERSION + 2: broken if fails else coloured_again}


def coloured_again(connection: Connection) -> None:
    connection.execute(text("UPDATE gaps SET colour = 'green'"))


def test_migrations_go_on_from_the_last_whole_one(where: str) -> None:
    open_writer(where, writer="before").close()
    database = Database(place_of(where), writable=True)
    with pytest.raises(RuntimeError):
        create_or_migrate(database, newest=VERSION + 2, steps=steps(fails=True))
    with database.transaction() as connection:
        assert version(connection) == VERSION + 1, "the first step is kept, and the second as if it had not begun"
        connection.execute(text("INSERT INTO gaps (start_us, end_us, reason) VALUES (1, 2, 'none')"))
    create_or_migrate(database, newest=VERSION + 2, steps=steps(fails=False))
    create_or_migrate(database, newest=VERSION + 2, steps={})
    with database.transaction() as connection:
        assert version(connection) == VERSION + 2
        assert connection.execute(text("SELECT colour FROM gaps")).scalars().all() == ["green"]
    database.close()


def test_time_that_an_older_program_called_stranded_is_fragmented(where: str) -> None:
    with closing(open_writer(where, writer="old")) as writer:
        until = MONDAY_US + 10
        life = [interval("fragmented", MONDAY_US, until), interval("free", MONDAY_US, until, number=1)]
        writer.commit(Batch(as_of_us=until, intervals=tuple(enumerate(life, 1))))
        with writer._database.transaction() as connection:
            connection.execute(text("UPDATE series SET bucket = 'stranded' WHERE bucket = 'fragmented'"))
            connection.execute(LEDGER.update().values(version=2))
    open_writer(where, writer="new").close()
    with closing(open_reader(where)) as reader:
        assert sorted(each.bucket for each in reader.sums(MONDAY_US, until, ("unit",))) == ["fragmented", "free"]


def test_a_reader_migrates_nothing(where: str) -> None:
    with closing(open_writer(where, writer="old")) as writer, writer._database.transaction() as connection:
        connection.execute(LEDGER.update().values(version=VERSION - 1))
    with pytest.raises(LedgerError, match="start a controller of this version, which migrates it"):
        open_reader(where)


# -- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("", "the place is empty"),
        ("mysql://u:hunter2@host/db", "mysql://…: not a kind of ledger"),
        ("postgresql://u:hunter2@host", "names no database"),
        ("postgresql://u:hunter2@host:port/db", "the URL cannot be read"),
        ("postgresql://u:hunter2@127.0.0.1:1/db", "no connection"),
        ("postgresql://u@127.0.0.1:1/db?password=hunter2", "no connection"),
    ],
)
def test_a_place_that_is_none_is_named_without_its_password(place: str, said: str) -> None:
    with pytest.raises(LedgerError) as raised:
        open_writer(place, writer="a leader", patience_s=1.0)
    shown = "".join(str(each) for each in (raised.value, raised.value.__cause__, raised.value.args))
    assert said in shown
    assert "hunter2" not in shown


# -- SQLite ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A ledger of a day, closed."""
    with closing(open_writer(str(tmp_path / "ledger"), writer="before")) as writer:
        writer.commit(a_day())
    return tmp_path / "ledger"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"nonsense" * 4096)
    for opened in (lambda: open_writer(str(tmp_path), writer="a leader"), lambda: open_reader(str(tmp_path))):
        with pytest.raises(
            CorruptLedgerError,
            match=r"ledger.sqlite: .*: the file is no SQLite database; move it away and restore a backup",
        ):
            opened()
    assert (tmp_path / "ledger.sqlite").read_bytes() == b"nonsense" * 4096


def test_a_damaged_file_is_refused_when_the_damage_is_met(directory: Path) -> None:
    with closing(open_writer(str(directory), writer="more")) as writer:
        writer.commit(batch(10, 2000))
    path = directory / "ledger.sqlite"
    data = bytearray(path.read_bytes())
    for page in range(8192 * 4, len(data), 8192):
        data[page : page + 512] = os.urandom(512)
    path.write_bytes(data)
    with (
        pytest.raises(CorruptLedgerError, match="the file is damaged; move it away"),
        closing(open_reader(str(directory))) as reader,
    ):
        list(reader.held(0, 2**62))


def test_a_lock_of_another_process_is_waited_for_and_then_named(directory: Path) -> None:
    with closing(open_writer(str(directory), writer="a leader", patience_s=0.1)) as writer:
        with closing(sqlite3.connect(directory / "ledger.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(UnavailableError, match="another process holds its lock"):
                writer.commit(batch(10, 1))
            assert intervals(str(directory)) == 6, "readers do not wait"
            other.execute("ROLLBACK")
        writer.commit(batch(10, 1))
    assert intervals(str(directory)) == 7


def test_a_full_disk_takes_nothing_of_a_commit_and_the_next_one_works_when_there_is_room(directory: Path) -> None:
    """As SQLite sees it: a file that may not grow."""
    with closing(open_writer(str(directory), writer="a leader")) as writer:
        limit(writer, 40)
        with pytest.raises(UnavailableError, match="the disk is full; make room"):
            writer.commit(batch(10, 5000))
        assert intervals(str(directory)) == 6
        limit(writer, 2**30)
        writer.commit(batch(10, 5000))
    assert intervals(str(directory)) == 5006


def limit(writer: Writer, pages: int) -> None:
    """Of the one connection that the writer has."""
    with writer._database.engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_that_crashes_takes_nothing_of_a_commit_and_is_found_again(postgres: Server) -> None:
    where = postgres.new_database()
    with closing(open_writer(where, writer="a leader")) as writer:
        writer.commit(batch(1, 10))
        postgres.stop()
        with pytest.raises(UnavailableError):
            writer.commit(batch(11, 10))
        postgres.start()
        writer.commit(batch(11, 10))
    assert intervals(where) == 20


# -- kills -----------------------------------------------------------------------------------------------------------

COMMITS = """
import sys
from fairlead.history.ledger.store.writer import open_writer
from tests.history.ledger.test_store_failures import batch
writer = open_writer(sys.argv[1], writer="to be killed")
first = writer.kept().next_number
while True:
    print("committing", flush=True)
    writer.commit(batch(first, 400))
    print("committed", flush=True)
    first += 400
"""


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_commit_leaves_all_of_it_or_nothing(where: str) -> None:
    open_writer(where, writer="before").close()
    inside = 0
    for attempt in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", COMMITS, where], cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )  # fmt: skip
        assert process.stdout is not None
        with process, process.stdout:
            process.stdout.readline()
            time.sleep(0.005 + 0.02 * attempt)
            process.send_signal(signal.SIGKILL)
            inside += process.stdout.read().split()[-1:] != ["committed"]
        with closing(open_writer(where, writer="after")) as writer:
            kept = writer.kept()
            with writer._database.transaction() as connection:
                numbers = connection.execute(INTERVALS.select().order_by(INTERVALS.c.number)).all()
            assert len(numbers) % 400 == 0
            assert kept.next_number == len(numbers) + 1
    assert inside, "no kill met a commit"
    with closing(open_reader(where)) as reader:
        assert sum(1 for _ in reader.held(0, 2**62)) == reader.info().intervals, "every allocation is there"
