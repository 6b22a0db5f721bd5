"""An apiserver without sockets, one namespace, and a webhook in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from tests.support.apiserver.served import Served
from tests.support.apiserver.webhooks import TestWebhook

NOON = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Served]:
    served = Served(tmp_path, now=NOON, random=Random(7))
    await served.post("/api/v1/namespaces", {"metadata": {"name": "ml", "labels": {"team": "a"}}})
    yield served
    await served.close()


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[TestWebhook]:
    (tmp_path / "hook").mkdir()
    async with TestWebhook(tmp_path / "hook") as webhook:
        yield webhook
