"""Apiservers of each release, without sockets, with their real kinds, admission and RBAC."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from fairlead.kube.releases import Minor
from fairlead.sandbox.release import Release
from tests.support.apiserver.served import Served

Of = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def of(tmp_path: Path) -> Of:
    """`async with of((1, 34)) as api`; feature gates as a mapping."""

    @contextlib.asynccontextmanager
    async def made(minor: Minor, gates: Mapping[str, bool] | None = None) -> AsyncIterator[Served]:
        served = Served(tmp_path, release=Release.of(minor, gates))
        await served.post("/api/v1/namespaces", {"metadata": {"name": "ml"}})
        yield served
        await served.close()

    return made
