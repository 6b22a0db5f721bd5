"""Short directories: a unix socket's path may have 107 bytes, pytest's own are longer."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fl-") as path:
        yield Path(path)
