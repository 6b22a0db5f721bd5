"""A node's driver token is stolen, its holder publishes what it lets him, and the node's own driver comes back: on an apiserver."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.api import names
from fairlead.driver.publish.keeping import SLICES, Keeping
from fairlead.driver.publish.publisher import Publisher
from fairlead.driver.publish.slices import SliceBody
from fairlead.driver.publish.sync import GENERATION_MAX
from fairlead.kube.client import Client
from fairlead.kube.resource import Device
from fairlead.kube.resources import NODES, raw
from tests.support.sandbox import until
from tests.webhook.test_fences import GROUPS, Cluster, cluster

__all__ = ["cluster"]

Json = dict[str, Any]
MINE = "00000-gpu.fairlead.dev-n1-stolen"  # as the driver calls its first slice


def stolen(name: str, **metadata: Any) -> Json:
    pool = {"name": "n1", "generation": GENERATION_MAX, "resourceSliceCount": 1}
    spec = {"driver": names.DRIVER, "nodeName": "n1", "pool": pool, "devices": [{"name": "gpu-0"}, {"name": "gpu-7"}]}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def publisher(client: Client) -> Publisher:
    keeping = Keeping(client, node_name="n1", wanted=set(), changed=lambda _found: None)
    return Publisher(client, node_name="n1", keeping=keeping, sync_delay_s=0.1)


@pytest.mark.parametrize(("name", "finalizers"), [("stolen", []), (MINE, ["example.com/stays"])])
async def test_the_driver_publishes_again_after_the_highest_generation_there_is(
    cluster: Cluster, name: str, finalizers: list[str]
) -> None:
    async with cluster.client("admin") as admin, cluster.client(names.DRIVER_USER, *GROUPS, node="n1") as driver:
        await admin.create(raw(NODES), {"metadata": {"name": "n1"}})
        await driver.create(SLICES, stolen(name, finalizers=finalizers))
        own = publisher(driver)
        own.publish([SliceBody(devices=(Device(name="gpu-0"),))])
        task = asyncio.create_task(own.run())
        try:

            async def alone() -> bool:
                found = (await admin.list(SLICES)).items
                return [[each["name"] for each in slice_["spec"]["devices"]] for slice_ in found] == [["gpu-0"]]

            await until(alone, what=f"the driver's own slice only: {own.problem}")
            assert own.problem is None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
