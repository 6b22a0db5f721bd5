"""A node of eight H100s, whose MIG devices are created on demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from tests.support.driver.node import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, SimulatedBackend(profiles.load("hgx-h100"), node="n1"), dynamic=True)
