"""The driver among kubelet, scheduler and Kubernetes' own controllers: what a user sees when a GPU breaks, and when GPUs are shared."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api import names
from fairlead.cli.node import Fault
from fairlead.kube.resources import PODS, RESOURCE_SLICES
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.objects import node_name_of, phase_of, results_of
from tests.support.sandbox import FOREVER, View, cluster, job, pod, template, until

NODES = (NodeSpec("a", "l40s"), NodeSpec("b", "l40s"))
MPS: dict[str, Any] = {
    "config": [
        {
            "opaque": {
                "driver": names.DRIVER,
                "parameters": {
                    "apiVersion": names.CONFIG_API_VERSION,
                    "kind": "GpuConfig",
                    "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}},
                },
            }
        }
    ]
}


async def running(view: View) -> tuple[str, str, str] | None:
    """Pod, node and device of the one pod that runs."""
    pods = [each for each in await view.all(PODS, "default") if phase_of(each) == "Running"]
    claims = [each for each in await view.claims("default") if each.get("status", {}).get("allocation")]
    held = [
        (each["metadata"]["name"], node_name_of(each), results_of(claim)[0]["device"])
        for each in pods
        for claim in claims
        if any(one["name"] == each["metadata"]["name"] for one in claim["status"].get("reservedFor", []))
    ]
    return held[0] if len(held) == 1 else None


@pytest.mark.slow
async def test_a_gpu_that_falls_off_the_bus_costs_its_pod_which_runs_again_elsewhere() -> None:
    async with cluster(*NODES) as made, made.client() as client:
        view = View(client)
        await made.apply([template("one"), job("train", pod("train", claim="one", command=FOREVER), size=1)])
        first, node, device = await until(lambda: running(view), what="the first pod runs")
        plugins = made.nodes[node].plugins_dir
        assert Fault(device=device, plugins_dir=plugins, lost=True).run() == 0

        async def elsewhere() -> tuple[str, str, str] | None:
            now = await running(view)
            return now if now is not None and now[0] != first and now[1:] != (node, device) else None

        await until(elsewhere, what="another pod runs on another GPU")
        assert await taints(view, node) == {device: ["gpu.fairlead.dev/gpu-lost:NoExecute"]}
        assert Fault(device=device, plugins_dir=plugins, mend=True).run() == 0

        async def healthy() -> bool:
            return await taints(view, node) == {}

        await until(healthy, what="the taint is gone")


async def taints(view: View, node: str) -> dict[str, list[str]]:
    return {
        device["name"]: [f"{taint['key']}:{taint['effect']}" for taint in device["taints"]]
        for each in await view.all(RESOURCE_SLICES)
        if each["spec"].get("nodeName") == node
        for device in each["spec"].get("devices", [])
        if device.get("taints")
    }


async def test_containers_that_share_a_gpu_by_mps_keep_their_daemon_over_a_kill_of_the_driver() -> None:
    async with cluster(NodeSpec("a", "l40s")) as made, made.client() as client:
        view = View(client)
        two: dict[str, Any] = pod("share", claim="shared", command=FOREVER)
        two["spec"]["containers"].append({**two["spec"]["containers"][0], "name": "second"})
        await made.apply([template("shared", **MPS), two])
        await view.phase("share", "Running")
        containers = made.nodes["a"].kubelet.containers
        for name in ("main", "second"):
            assert containers["default", "share", name].env["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
        before = daemon(made)
        await made.nodes["a"].kill_driver()
        await made.nodes["a"].start_driver()
        assert daemon(made) == before
        await client.delete(PODS, "share", "default")
        await view.gone(PODS, "share")
        await until(lambda: not list(made.nodes["a"].leftovers()), what="nothing is left of the claim")


def daemon(made: Cluster) -> str:
    [home] = (made.nodes["a"].plugins_dir / names.DRIVER / "mps").iterdir()
    return (home / "pid").read_text()
