"""A bench of two nodes of eight GPUs, whose controller is the real one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.controller.conftest import Bench, benches


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with benches(tmp_path) as made:
        yield made
