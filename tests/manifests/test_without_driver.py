"""Fairlead installed without a driver of its own, beside a stand-in for NVIDIA's: what a pod, a gang and a bypass get there."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from fairlead.api import names
from fairlead.api.drivers import NVIDIA
from fairlead.kube import resources
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.installation import example, installed_for, labelled
from tests.support.kubernetes import of_this_run
from tests.support.sandbox import View, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory):
    nodes = labelled((NodeSpec("a", "hgx-h100"),))
    async with installed_for(
        ClusterOptions(workdir=tmp_path_factory.mktemp("nvidia"), nodes=nodes, release=of_this_run()), NVIDIA
    ) as made:
        await made.apply(example("00-queues", NVIDIA, gpus=1))
        yield made


def pod(name: str, **resources_: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["sleep", "1"], "resources": resources_}
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}


async def test_a_legacy_limit_gets_that_drivers_gpus_by_its_class(cluster: Cluster) -> None:
    view = View(cluster.admin)
    await cluster.admin.create(resources.raw(resources.PODS), pod("two", limits={names.LEGACY_GPU: 2}), "vision")
    await view.phase("two", "Running", "Succeeded", namespace="vision", timeout_s=60)
    (claim,) = await view.claims("vision")
    (request,) = claim["spec"]["devices"]["requests"]
    results = claim["status"]["allocation"]["devices"]["results"]
    assert request["exactly"]["deviceClassName"] == NVIDIA
    assert [(each["driver"], each["device"]) for each in results] == [(NVIDIA, "gpu-0"), (NVIDIA, "gpu-1")]
    await view.phase("two", "Succeeded", namespace="vision", timeout_s=60)


async def test_a_flavor_may_be_said_by_the_driver_alone(cluster: Cluster) -> None:
    spec = {"driver": NVIDIA, "measure": "Devices"}
    body = {"apiVersion": names.API_VERSION, "kind": "Flavor", "metadata": {"name": "all"}, "spec": spec}
    await cluster.apply([body])

    async def counted() -> bool:
        status = (await cluster.admin.get(resources.FLAVORS, "all")).get("status") or {}
        return str(status.get("total")) == "8"

    await until(counted, what="the flavor counts the node's eight GPUs")


async def test_nothing_of_our_driver_is_there(cluster: Cluster) -> None:
    classes = (await cluster.admin.list(resources.raw(resources.DEVICE_CLASSES))).items
    assert sorted(each["metadata"]["name"] for each in classes) == ["gpu.nvidia.com", "mig.nvidia.com"]
    slices = (await cluster.admin.list(resources.raw(resources.RESOURCE_SLICES))).items
    assert {each["spec"]["driver"] for each in slices} == {NVIDIA}
    assert not [each for each in cluster.workloads.running.values() if each.workload.startswith(names.DRIVER_ACCOUNT)]
