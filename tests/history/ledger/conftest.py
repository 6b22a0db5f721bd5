"""Each test of the store runs on SQLite and on PostgreSQL; on the latter where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import NoServerError, Server, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    try:
        with server() as running:
            yield running
    except NoServerError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be opened; there is none yet."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger")
    running: Server = request.getfixturevalue("postgres")
    return running.new_database()
