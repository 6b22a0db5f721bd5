"""Whole clusters with Fairlead's programs, and the objects that fault tests submit to them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.testing import View, cluster, ledger


@pytest.fixture
async def fairlead() -> AsyncIterator[tuple[Cluster, View]]:
    """Two H100 nodes and an L40S node, all programs running; at the end no device was ever in two claims."""
    nodes = (NodeSpec("left", "hgx-h100"), NodeSpec("right", "hgx-h100"), NodeSpec("third", "l40s"))
    options: dict[str, Any] = {"controller": {"lease_s": 2.0, "gang_timeout_s": 10.0}}
    async with cluster(*nodes, **options) as made, made.client() as client, ledger(client) as seen:
        yield made, View(client)
        assert seen.doubles == []
