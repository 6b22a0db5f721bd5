"""One cluster for all examples: two nodes of eight H100s, and one of L40S whose GPUs may be in several claims at once."""

from collections.abc import AsyncIterator

import pytest_asyncio

from fairlead.sandbox.cluster import NodeSpec
from tests.support.shapes.site import Site, sites
from tests.support.shapes.systems import CONTROLLERS

NODES = (NodeSpec("h1", "hgx-h100"), NodeSpec("h2", "hgx-h100"), NodeSpec("l1", "l40s", flags=("--shared-gpus",)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    async with sites(CONTROLLERS, *NODES) as made:
        yield made
