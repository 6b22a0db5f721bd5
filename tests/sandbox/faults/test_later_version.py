"""Fields that our programs do not know survive their writes: on an apiserver in which every struct has one more.

One life of a cluster with every kind of write to objects of others: gangs that run and end, a claim shared by two pods,
preemption within a disruption budget, a legacy request, and a GPU that fails. What the webhook writes for itself, its Secret and
its configurations, is tested with it.
"""

import asyncio

import pytest

from fairlead.api import names
from fairlead.driver.backend.simulated import fault_file
from fairlead.kube.client import Client
from fairlead.kube.resources import (
    FLAVORS,
    GANGS,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    raw,
)
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.objects import is_true
from tests.support.later_version import LATER, Planted, planted
from tests.support.sandbox import FOREVER, View, cluster, gang_of, job, pod, template, until

NODES = (NodeSpec("left", "hgx-h100"),)
OPAQUE = {"apiVersion": names.CONFIG_API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
CONFIG = [{"requests": ["gpu"], "opaque": {"driver": names.DRIVER, "parameters": OPAQUE}}]
WRITES = {
    "fairlead-controller: PATCH resourceclaims",
    "fairlead-controller: PATCH resourceclaims/status",
    "fairlead-controller: PATCH pods",
    "fairlead-controller: PATCH pods/status",
    "fairlead-controller: PATCH gangs/status",
    "fairlead-controller: PATCH queues/status",
    "fairlead-controller: PATCH flavors/status",
    "fairlead-controller-lease: PATCH leases",
    "fairlead-driver: PUT resourceslices",
}


async def quotas(client: Client) -> None:
    spec = {"deviceSelector": f"device.driver == '{names.DRIVER}'", "measure": "Devices"}
    await client.create(FLAVORS, {"metadata": {"name": "gpu"}, "spec": spec})
    await client.create(
        QUEUES,
        {
            "metadata": {"name": "team"},
            "spec": {
                "flavors": [{"flavor": "gpu", "deserved": 8}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                "disruptionBudget": {"evictions": 5},
            },
        },
    )
    await client.create(PRIORITY_CLASSES, {"metadata": {"name": "batch"}, "value": 1})
    await client.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 100})


async def life(made: Cluster, view: View) -> None:
    """Every kind of write, and what it leads to."""
    await quotas(view.client)
    shared = template("shared", count=2)
    shared |= {"kind": "ResourceClaim", "spec": shared["spec"]["spec"]}
    await made.apply([template("two", count=2, config=CONFIG), template("eight", count=8), shared])

    await made.apply([job("gang", pod("gang", claim="two", annotations=gang_of("gang")), size=2)])
    users = [pod("first"), pod("second")]
    for each in users:
        each["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
        each["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    legacy = pod("legacy")
    legacy["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    await made.apply([*users, legacy])

    async def complete() -> bool:
        found = await view.get(JOBS, "gang")
        return found is not None and is_true(found, "Complete")

    await until(complete, what="the gang's job is complete")
    for name in ("first", "second", "legacy"):
        await view.phase(name, "Succeeded")

    # A gang by name has a Gang object a few seconds after it runs; the eviction then patches it.
    named = gang_of("long", 1)
    long = pod("long", claim="eight", command=FOREVER, annotations=named, priorityClassName="batch")
    await made.apply([long])
    await view.phase("long", "Running")

    async def reported() -> bool:
        return await view.get(GANGS, "long") is not None

    await until(reported, what="the gang has its object")
    await made.apply([pod("rush", claim="eight", command=FOREVER, priorityClassName="urgent")])
    await view.phase("rush", "Running")
    await _fail_a_gpu(made, view)


async def _fail_a_gpu(made: Cluster, view: View) -> None:
    fault_file.inject(made.nodes["left"].plugins_dir / names.DRIVER / fault_file.NAME, 0, xid=79)

    async def tainted() -> bool:
        slices = await view.client.list(raw(RESOURCE_SLICES))
        return any(device.get("taints") for each in slices.items for device in each["spec"].get("devices") or ())

    await until(tainted, what="the GPU is tainted")


@pytest.mark.slow
async def test_no_write_loses_a_field_that_it_does_not_know() -> None:
    with planted() as found:
        async with cluster(*NODES) as made, made.client() as client:
            view = View(client)
            await life(made, view)
            for resource in (GANGS, QUEUES, RESOURCE_CLAIMS):
                for each in (await client.list(raw(resource))).items:
                    assert LATER in each["spec"], each
            await settled(found)
    assert found.losses == []
    assert found.writes >= WRITES


async def settled(found: Planted) -> None:
    """The late writes are in: marks of an eviction, the status of what has ended."""
    while True:
        before = len(found.writes)
        await asyncio.sleep(0.5)
        if len(found.writes) == before:
            return
