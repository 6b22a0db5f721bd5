"""The apiserver's inside, with open kinds and two namespaces."""

from collections.abc import AsyncIterator

import pytest

from tests.support.apiserver.inside import Inside


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    found = Inside()
    for name in ("ml", "ops"):
        await found.post("/api/v1/namespaces", {"metadata": {"name": name}})
    yield found
    found.state.stop()
