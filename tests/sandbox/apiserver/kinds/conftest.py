"""A listening-free apiserver with its real kinds and admission, and one namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from tests.support.apiserver.served import Served

NOON = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Served]:
    """`await api.post(path, body)` → (status, body), as admin or as a user."""
    served = Served(tmp_path, now=NOON, random=Random(7))
    await served.post("/api/v1/namespaces", {"metadata": {"name": "ml"}})
    yield served
    await served.close()
