"""A gang that names its pool beside a cluster-autoscaler: exactly the nodes that it lacks are made, and it starts whole."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import errors, resources
from fairlead.kube.client import Patch
from fairlead.sandbox.cluster import NodeSpec
from tests.controller.conftest import Bench, benches
from tests.support.autoscaler import Autoscaler

POOL = "example.com/pool"
TAINT = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}
TOLERATES = [{"key": "dedicated", "operator": "Exists"}]
SELECTOR = f'device.driver == "{names.DRIVER}" && device.attributes["{names.DRIVER}"].type == "gpu"'
PODS: dict[str, Any] = {"nodeSelector": {POOL: "h100"}, "tolerations": TOLERATES}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """p1 is there, of a pool that may have three more; and one node of another pool, whose GPUs are free."""
    specs = [NodeSpec(f"p{number}", "hgx-h100", labels={POOL: "h100"}) for number in range(1, 5)]
    async with benches(tmp_path, count=1, more=specs, named=True) as made:
        await made.template("eight", 8)
        for spec in specs[1:]:
            await made.cluster.nodes[spec.name].stop()
            await made.client.delete(resources.NODES, spec.name)
        for each in (await made.client.list(resources.RESOURCE_SLICES)).items:
            if each.spec.node_name in {"p2", "p3", "p4"}:
                with contextlib.suppress(errors.NotFound):  # collected with its node
                    await made.client.delete(resources.RESOURCE_SLICES, each.metadata.name)
        await made.client.patch(resources.NODES, "p1", {"spec": {"taints": [TAINT]}}, kind=Patch.MERGE)
        scaling = {"mode": "Visible", "waitBeforeEviction": "1h"}
        flavor = {"deviceSelector": SELECTOR, "autoscaling": scaling}
        await made.client.create(resources.FLAVORS, {"metadata": {"name": "h100"}, "spec": flavor})
        yield made


def autoscaler(bench: Bench) -> Autoscaler:
    return Autoscaler(bench.client, "p1", [bench.cluster.nodes[name] for name in ("p2", "p3", "p4")])


async def test_the_nodes_that_a_gang_lacks_in_its_pool_are_made_and_it_starts_whole(bench: Bench):
    scaler = autoscaler(bench)
    async with bench.controller():
        pods = await bench.gang("train", 3, template="eight", **PODS)
        await bench.until(lambda: bench.status("train").get("reason") == "AwaitingNodes", "its status says so")
        assert "24 wanted, 8 free on 1 node, 16 missing" in bench.status("train")["message"]
        async with scaler.running():
            await bench.until(lambda: bench.running(pods), "it runs whole", timeout_s=90.0)
    assert scaler.made == ["p2", "p3"], "two nodes, and no third"
    placed = {pod.spec.node_name for name in pods if (pod := bench.get(name)) is not None}
    assert placed == {"p1", "p2", "p3"}
