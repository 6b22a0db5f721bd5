"""Where the sandbox's tests meet: a cluster without Fairlead's webhook and controller, and its fence down."""

from collections.abc import AsyncIterator

import pytest

from fairlead.kube.resources import VALIDATING_POLICY_BINDINGS
from fairlead.sandbox.cluster import Cluster, NodeSpec
from tests.support.sandbox import View, cluster


@pytest.fixture
async def stock() -> AsyncIterator[tuple[Cluster, View]]:
    """Two nodes, the real driver on one; the stock scheduler may allocate."""
    async with (
        cluster(NodeSpec("gpu", "hgx-h100"), NodeSpec("cpu"), run_programs=False) as made,
        made.client() as client,
    ):
        await client.delete(VALIDATING_POLICY_BINDINGS, "fairlead-allocation-fence")
        yield made, View(client)
