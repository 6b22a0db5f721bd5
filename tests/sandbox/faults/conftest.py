"""Whole clusters with Fairlead's programs: one for each test that breaks something, one for all that only ask."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fairlead.kube import errors
from fairlead.kube.resources import JOBS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from fairlead.sandbox.cluster import Cluster, NodeSpec
from tests.support.sandbox import View, cluster, ledger, until

NODES = (NodeSpec("left", "hgx-h100"), NodeSpec("right", "hgx-h100"), NodeSpec("third", "l40s"))
OPTIONS: dict[str, Any] = {"flags": {"controller": ("--lease-duration=3", "--gang-timeout=10")}}
Fairlead = tuple[Cluster, View]


@pytest.fixture
async def fairlead() -> AsyncIterator[Fairlead]:
    """Two H100 nodes and an L40S node, all programs running; at the end no device was ever in two claims."""
    async with cluster(*NODES, **OPTIONS) as made, made.client() as client, ledger(client) as seen:
        yield made, View(client)
        assert seen.doubles == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_for_all() -> AsyncIterator[Fairlead]:
    """The same, for the tests of a module (which run in its loop: `asyncio(loop_scope="module")`)."""
    async with cluster(*NODES, **OPTIONS) as made, made.client() as client, ledger(client) as seen:
        yield made, View(client)
        assert seen.doubles == []


@pytest_asyncio.fixture(loop_scope="module")
async def shared(one_for_all: Fairlead) -> AsyncIterator[Fairlead]:
    """The module's cluster, emptied afterwards: nothing may be left anywhere."""
    made, view = one_for_all
    yield one_for_all
    made.server.faults.clear()
    for resource in (JOBS, PODS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES):
        body = {"propagationPolicy": "Background"}
        await view.client.request("DELETE", resource.path("default"), body=body)

    async def empty() -> bool:
        try:
            left = await asyncio.gather(*(view.all(each, "default") for each in (PODS, JOBS, RESOURCE_CLAIMS)))
        except errors.ApiError:
            return False
        return left == [[], [], []] and not any(list(node.leftovers()) for node in made.nodes.values())

    await until(empty, what="the cluster is empty again")
