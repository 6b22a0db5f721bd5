"""A PostgreSQL server for tests, on a unix socket in a directory of its own, with a new database for each that asks.

PostgreSQL refuses to run as root; then it runs as the user `postgres`, else `nobody`. Without its programs `server` says why there is none.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.support import temporary

TIMEOUT_S = 60.0


class NoServerError(Exception):
    """Why."""


class Server:
    def __init__(self, programs: Path, directory: Path) -> None:
        self.programs = programs
        self.directory = directory
        self.data = directory / "data"
        self.user = _user()
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        return f"postgresql://tests@/{database}?host={self.directory}"

    def new_database(self) -> str:
        """Its URL."""
        name = f"ledger_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def create(self) -> None:
        if self.user is not None:
            os.chown(self.directory, self.user.pw_uid, self.user.pw_gid)
        words = ["--auth=trust", "--username=tests", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "--pgdata", str(self.data), *words)

    def start(self) -> None:
        words = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self.directory}", "-c", "fsync=off"]
        self._process = self._popen("postgres", "-D", str(self.data), *words)
        until = time.monotonic() + TIMEOUT_S
        while True:
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url("postgres")):
                return
            if self._process.poll() is not None or time.monotonic() > until:
                raise NoServerError(f"postgres does not start: {(self.directory / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """At once, as after a crash."""
        if self._process is not None:
            self._run("pg_ctl", "stop", "--pgdata", str(self.data), "--mode=immediate")
            self._process.wait(TIMEOUT_S)
            self._process = None

    def _run(self, program: str, *words: str) -> None:
        process = self._popen(program, *words)
        if process.wait(TIMEOUT_S):
            raise NoServerError(f"{program} failed: {(self.directory / 'log').read_text()[-2000:]}")

    def _popen(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        command = [str(self.programs / program), *words]
        with (self.directory / "log").open("ab") as log:
            if self.user is None:
                return subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd="/",
                user=self.user.pw_uid,
                group=self.user.pw_gid,
                extra_groups=[],
                env={**os.environ, "HOME": str(self.directory)},
            )


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Raises NoServerError."""
    programs = _programs()
    directory = Path(tempfile.mkdtemp(prefix="fairlead-pg-", dir=temporary.root()))
    made = Server(programs, directory)
    try:
        made.create()
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _programs() -> Path:
    """The folder that has them all, the newest where there are several."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name.split(".")[0]))
    on_path = shutil.which("initdb")
    folders = [*([Path(on_path).resolve().parent] if on_path else []), *reversed(debian)]
    for folder in folders:
        if all((folder / name).exists() for name in ("initdb", "postgres", "pg_ctl")):
            return folder
    raise NoServerError("PostgreSQL is not installed: no initdb on PATH or in /usr/lib/postgresql/*/bin")


def _user() -> pwd.struct_passwd | None:
    """None: this user will do."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoServerError("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
