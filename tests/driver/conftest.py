"""What the driver's tests share: a node with simulated hardware, claims as the controller writes them, a kubelet."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fairlead.driver.backend import profiles
from fairlead.driver.backend.interface import Backend
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.common.threads import Threads
from tests.support.driver.backends import Case, nvml, simulated
from tests.support.driver.cluster import DriverCluster
from tests.support.driver.node import Node


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
async def cluster(short_path: Path) -> AsyncIterator[DriverCluster]:
    async with DriverCluster.start(short_path) as started:
        yield started


@pytest.fixture(scope="session")
def valid_cdi() -> Callable[[dict[str, Any]], None]:
    """Fails on what is no CDI spec."""
    schema = json.loads((Path(__file__).parent / "cdi-0.6.0.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema).validate


@pytest.fixture
def dgx() -> SimulatedBackend:
    return SimulatedBackend(profiles.load("dgx-a100"), node="n1")


@pytest.fixture
def hgx() -> SimulatedBackend:
    return SimulatedBackend(profiles.load("hgx-h100"), node="n1")


@pytest.fixture
def node(tmp_path: Path, hgx: SimulatedBackend) -> Node:
    """A node of eight H100s, whose MIG devices are created on demand."""
    return Node(tmp_path, hgx, dynamic=True)


@pytest.fixture
def static_node(tmp_path: Path, dgx: SimulatedBackend) -> Node:
    """A node of six whole A100s and two that are partitioned."""
    return Node(tmp_path, dgx)


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.close()


@pytest.fixture(params=[simulated, nvml])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Case]:
    """A backend over the profile of that name: the test runs on both."""
    return lambda name: request.param(name, tmp_path)


@pytest.fixture
def case(make: Callable[[str], Case]) -> Case:
    """Eight H100s."""
    return make("hgx-h100")


@pytest.fixture
def backend(case: Case) -> Backend:
    return case.backend
