"""A node is lost: kubelet and driver of one of two nodes are gone, and its containers run on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.kube.resources import QUEUES, raw
from tests.controller.conftest import Bench, benches
from tests.field.forced.test_in_a_cluster import releasing
from tests.support.sandbox import FAST, FAST_MANAGER, until


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with benches(tmp_path, times=FAST, manager=FAST_MANAGER) as made:
        yield made


async def test_its_other_members_give_their_devices_back_after_the_queues_time(bench: Bench) -> None:
    """The gang that waits gets them; the lost member keeps its own, since its container may run."""
    await bench.template("eight", 8)
    spec = {"namespaceSelector": {}, "flavors": [], "lostNodeTimeout": "2s"}
    await bench.client.create(raw(QUEUES), {"metadata": {"name": "all"}, "spec": spec})
    node = bench.cluster.nodes["h2"]
    async with bench.controller():
        pods = await bench.gang("train", 2, template="eight")
        await bench.until(lambda: bench.running(pods), "both members run")
        other = await bench.gang("other", 1, template="eight")
        await bench.until(lambda: bench.status("other").get("phase") == "Waiting", "another gang waits")
        await node.stop_kubelet()
        await bench.until(lambda: bench.running(other), "it has the devices of the member that is not lost")
        pod = bench.get(other[0])
        assert pod is not None
        assert pod.spec.node_name == "h1"
        await bench.event("train", "Evict")
        bench.check()


async def test_a_node_that_comes_back_with_old_containers_gets_nothing_new_before_they_are_gone(bench: Bench) -> None:
    """While it was away its pod was removed as pod garbage collection does, and its claim with it."""
    await bench.template("eight", 8)
    node = bench.cluster.nodes["h2"]
    on_h2: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": "h2"}}
    async with bench.controller():
        old = await bench.gang("old", 1, template="eight", script="trap '' TERM; sleep infinity", **on_h2)
        await bench.until(lambda: bench.running(old), "the pod runs")
        await node.stop_kubelet()
        await node.stop_driver()
        await bench.until(lambda: bench.status("old").get("reason") == "NodeLost", "the node is lost")
        await bench.delete(old)
        await bench.until(lambda: not bench.allocated(), "its claim is free")
        new = await bench.gang("new", 1, template="eight", **on_h2)
        await node.start_driver(wait=False)
        said = await until(lambda: releasing(bench), what="the driver says what the old container has")
        assert said == {f"h2/gpu-{minor}" for minor in range(8)}
        assert node.runtime.running
        assert not bench.allocated()
        await node.start_kubelet()
        await bench.until(lambda: bench.running(new), "the new pod runs")
        assert {pod for _, pod, _ in node.runtime.running} == set(new)
        bench.check()
