"""Nodes and drivers that die at the worst moment: it ends in a clear state, and nothing leaks.

On the sandbox without Fairlead's controller: the stock scheduler allocates, so that these are facts about driver,
kubelet and claim controller alone.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.kube.resources import EVENTS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, VALIDATING_POLICY_BINDINGS
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.objects import (
    allocation_of,
    condition,
    is_deleting,
    is_true,
    node_name_of,
    phase_of,
    results_of,
    spec_of,
)
from tests.support.sandbox import FOREVER, View, cluster, job, pod, template, until

pytestmark = pytest.mark.slow

Stock = tuple[Cluster, View]


@pytest.fixture
async def two() -> AsyncIterator[Stock]:
    """Two GPU nodes; the stock scheduler may allocate."""
    nodes = (NodeSpec("left", "hgx-h100"), NodeSpec("right", "hgx-h100"))
    async with cluster(*nodes, run_programs=False) as made, made.client() as client:
        await client.delete(VALIDATING_POLICY_BINDINGS, "fairlead-allocation-fence")
        yield made, View(client)


async def slices_on(view: View, node: str) -> list[str]:
    return [s["metadata"]["name"] for s in await view.all(RESOURCE_SLICES) if spec_of(s).get("nodeName") == node]


# -- drivers -------------------------------------------------------------------------------------------------------


async def test_a_driver_killed_between_prepare_and_reply_prepares_again_and_gives_everything_back(stock: Stock) -> None:
    made, view = stock
    node = made.nodes["gpu"]
    dead = node.kill_driver_before_reply("NodePrepareResources")
    await made.apply([template("two", count=2), pod("p", claim="two", command=("sleep", "0.5"))])
    async with asyncio.timeout(15):
        await dead.wait()
    assert list(node.cdi_dir.iterdir()), "the driver had prepared before it died"

    async def reported() -> bool:
        events = await view.all(EVENTS, "default")
        return any(e["reason"] == "FailedPrepareDynamicResources" for e in events)

    await until(reported)
    assert node.kubelet.containers == {}
    await node.start_driver()
    await view.phase("p", "Running")
    assert len(node.kubelet.containers["default", "p", "main"].cdi_devices) == 2
    await view.phase("p", "Succeeded")
    await view.no_claims()
    assert list(node.leftovers()) == []


async def test_a_driver_killed_between_unprepare_and_reply_is_asked_again(stock: Stock) -> None:
    made, view = stock
    node = made.nodes["gpu"]
    await made.apply([template("one"), pod("p", claim="one", command=("sleep", "0.5"))])
    await view.phase("p", "Running")
    dead = node.kill_driver_before_reply("NodeUnprepareResources")
    async with asyncio.timeout(15):
        await dead.wait()
    # The claim may not be freed while the node has not said that it gave the devices back.
    assert phase_of(await view.pod("p")) == "Running"
    assert [claim for claim in await view.claims() if allocation_of(claim)]
    await node.start_driver()
    await view.phase("p", "Succeeded")
    await view.no_claims()
    assert list(node.leftovers()) == []


async def test_slices_of_a_driver_that_stays_away_are_wiped_and_published_again(stock: Stock) -> None:
    made, view = stock
    node = made.nodes["gpu"]
    assert await slices_on(view, "gpu")
    await node.kill_driver()

    async def wiped() -> bool:
        return await slices_on(view, "gpu") == []

    await until(wiped)
    await node.start_driver()
    assert await slices_on(view, "gpu")


async def test_a_kubelet_restart_goes_on_with_its_containers_and_claims(stock: Stock) -> None:
    made, view = stock
    node = made.nodes["gpu"]
    await made.apply([template("one"), pod("p", claim="one", command=("sleep", "2"))])
    await view.phase("p", "Running")
    container = node.kubelet.containers["default", "p", "main"]
    await node.stop_kubelet()
    await node.start_kubelet()

    async def published() -> list[str]:
        return await slices_on(view, "gpu")

    await until(published, what="the driver publishes again what the kubelet wiped at its start")
    ended = await view.phase("p", "Succeeded")
    assert ended["status"]["containerStatuses"][0]["restartCount"] == 0
    assert container.exit_code == 0
    await view.no_claims()
    await until(lambda: not list(node.leftovers()))


# -- nodes ---------------------------------------------------------------------------------------------------------


async def test_pods_of_a_node_that_vanishes_run_elsewhere_and_it_is_clean_when_it_is_back(two: Stock) -> None:
    made, view = two
    await made.apply([template("four", count=4), job("j", pod("x", claim="four", command=FOREVER), size=1)])

    async def running() -> Any:
        found = [p for p in await view.all(PODS, "default") if phase_of(p) == "Running" and not is_deleting(p)]
        return found[0] if found else None

    first = await until(running)
    lost = made.nodes[node_name_of(first)]
    await lost.power_off()

    async def elsewhere() -> Any:
        found = await running()
        return found if found and node_name_of(found) != lost.name else None

    second = await until(elsewhere)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    node = await view.get(NODES, lost.name)
    assert node is not None
    ready = condition(node, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert {taint["key"] for taint in spec_of(node)["taints"]} == {"node.kubernetes.io/unreachable"}
    # Nobody can say whether its containers have stopped: pod and claim stay until the node is back.
    assert is_deleting(await view.pod(first["metadata"]["name"]))

    await lost.power_on()
    await view.gone(PODS, first["metadata"]["name"])
    await until(lambda: not list(lost.leftovers()))

    async def well() -> bool:
        found = await view.get(NODES, lost.name)
        return found is not None and is_true(found, "Ready") and not spec_of(found).get("taints")

    await until(well)
    (claim,) = [c for c in await view.claims() if allocation_of(c)]
    assert {each["pool"] for each in results_of(claim)} == {node_name_of(second)}


async def test_a_cluster_on_the_directory_of_one_that_was_cut_off_gives_back_what_its_nodes_still_held() -> None:
    with tempfile.TemporaryDirectory(prefix="fl-") as path:
        options = ClusterOptions(workdir=Path(path), nodes=(NodeSpec("gpu", "hgx-h100"),), run_programs=False)
        for last in (False, True):
            async with Cluster(options) as made, made.client() as client:
                await client.delete(VALIDATING_POLICY_BINDINGS, "fairlead-allocation-fence")
                await made.apply([template("eight", count=8), pod("p", claim="eight", command=FOREVER)])
                view = View(client)
                await view.phase("p", "Running")
                if last:
                    await client.delete(PODS, "p", "default")
                    await view.gone(PODS, "p")
                    await until(lambda made=made: not list(made.nodes["gpu"].leftovers()))  # type: ignore[misc]


# -- claims --------------------------------------------------------------------------------------------------------


async def test_a_claim_in_use_that_is_deleted_stays_until_its_pod_ends(stock: Stock) -> None:
    made, view = stock
    await made.apply([template("one"), pod("p", claim="one", command=("sleep", "1"))])
    await view.phase("p", "Running")
    (claim,) = await view.claims()
    await view.client.delete(RESOURCE_CLAIMS, claim["metadata"]["name"], "default")
    assert await view.get(RESOURCE_CLAIMS, claim["metadata"]["name"])
    await view.phase("p", "Succeeded")
    await view.gone(RESOURCE_CLAIMS, claim["metadata"]["name"])
    assert list(made.nodes["gpu"].leftovers()) == []
