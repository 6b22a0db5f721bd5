"""A bench on each release of Kubernetes that a real control plane was tried of: the oldest and the newest always, others with the slow tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.kube.releases import OLDEST, TRIED, Minor, written
from fairlead.sandbox.release import NEWEST
from tests.controller.conftest import Bench, benches

EACH = [
    pytest.param(minor, id=written(minor), marks=() if minor in {OLDEST, NEWEST.minor} else pytest.mark.slow)
    for minor in sorted(TRIED)
]


@pytest.fixture(params=EACH)
def release(request: pytest.FixtureRequest) -> Minor:
    found: Minor = request.param
    return found


@pytest.fixture
async def bench(tmp_path: Path, release: Minor) -> AsyncIterator[Bench]:
    """Two nodes of eight H100s; pods without an owner, so that the claim controller makes their claims."""
    async with benches(tmp_path, release=release) as made:
        yield made
