"""One cluster for all examples: two racks with a node of eight H100s each, and a node of L40S whose GPUs may be in several claims at once."""

from collections.abc import AsyncIterator

import pytest_asyncio

from fairlead.sandbox.cluster import NodeSpec
from tests.support.shapes.site import Site, sites
from tests.support.shapes.systems import CONTROLLERS

NODES = (
    NodeSpec("h1", "hgx-h100", labels={"example.com/rack": "r1"}),
    NodeSpec("h2", "hgx-h100", labels={"example.com/rack": "r2"}),
    NodeSpec("l1", "l40s", flags=("--shared-gpus", "--shared-replicas=4")),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    async with sites(CONTROLLERS, *NODES) as made:
        yield made
