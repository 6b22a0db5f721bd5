"""A running driver tells of its claims' devices whether they are busy: load on simulated hardware, seen in the claims."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.cli.node import Load
from fairlead.kube.device_usage import DeviceUsage, usage_of
from fairlead.kube.resources import RESOURCE_CLAIMS
from tests.support.driver.cluster import DriverCluster
from tests.support.driver.kubelet import Kubelet

GIB = 2**30
UUID = "00000000-0000-4000-8000-00000000000"
QUICK: dict[str, Any] = {"hardware_interval_s": 0.02, "idle_window_s": 0.2, "usage_interval_s": 0.3}


async def usages(cluster: DriverCluster, name: str = "train") -> dict[str, DeviceUsage]:
    claim = await cluster.client.get(RESOURCE_CLAIMS, name, "default")
    return {device.device: usage for device, usage in usage_of(claim).items()}


async def test_busy_and_idle_follow_the_load_and_outlast_a_restart(
    cluster: DriverCluster, free_port: Callable[[], int]
) -> None:
    wanted, bind = await cluster.allocate("gpu-0", "gpu-1"), f"127.0.0.1:{free_port()}"
    plugins = cluster.path / "plugins"
    began_s = time.time()

    async def states(expected: dict[str, str]) -> bool:
        return {device: usage.state for device, usage in (await usages(cluster)).items()} == expected

    async with (
        cluster.driver(metrics_bind=bind, **QUICK),
        Kubelet.connect(cluster.registration) as kubelet,
        aiohttp.ClientSession() as http,
    ):
        assert Load(device="gpu-0", plugins_dir=plugins, utilization=90, memory="20Gi").run() == 0
        await kubelet.prepare(wanted)
        await cluster.until(lambda: states({"gpu-0": "Busy", "gpu-1": "Idle"}))
        busy = (await usages(cluster))["gpu-0"]
        assert (busy.memory_used_peak_bytes, busy.shared) == (20 * GIB, False)
        assert busy.memory_bytes is not None
        assert busy.since_s >= began_s - 1
        assert busy.below == ()
        assert [level for level, _ in (await usages(cluster))["gpu-1"].below] == [1.0, 5.0, 10.0, 20.0]
        assert Load(device="gpu-0", plugins_dir=plugins).run() == 0
        await cluster.until(lambda: states({"gpu-0": "Idle", "gpu-1": "Idle"}))
        idle = await usages(cluster)
        assert idle["gpu-0"].memory_used_peak_bytes == 20 * GIB, "the peak stays"
        async with http.get(f"http://{bind}/metrics") as response:
            text = await response.text()
        assert 'fairlead_driver_usage_writes_total{result="ok"}' in text
        assert 'fairlead_driver_usage_writes_total{result="error"} 0.0' in text
    async with cluster.driver(**QUICK), Kubelet.connect(cluster.registration) as kubelet:
        assert Load(device="gpu-1", plugins_dir=plugins, utilization=50).run() == 0
        await cluster.until(lambda: states({"gpu-0": "Idle", "gpu-1": "Busy"}))
        after = await usages(cluster)
        assert (after["gpu-0"].since_s, after["gpu-0"].memory_used_peak_bytes) == (idle["gpu-0"].since_s, 20 * GIB)
        await kubelet.unprepare(wanted)


async def test_a_share_that_the_nodes_default_holds_says_what_it_uses_and_its_limits(cluster: DriverCluster) -> None:
    amounts = {"memory": "20Gi", "multiprocessors": "33"}
    mine = await cluster.allocate({"device": "gpu-0", "shareID": f"{UUID}a", "consumedCapacity": amounts})
    other = {"device": "gpu-0", "shareID": f"{UUID}b", "consumedCapacity": {"memory": "40Gi"}}
    theirs = await cluster.allocate(other, name="other")
    options = {"shared_gpus": True, "shared_limits": "MPS", **QUICK}
    async with cluster.driver(**options), Kubelet.connect(cluster.registration) as kubelet:
        load = Load(device="gpu-0", plugins_dir=cluster.path / "plugins", utilization=90, memory="30Gi")
        for each in (mine, theirs):
            await kubelet.prepare(each)
        assert (
            load.run() == 0
        )  # now: of one share alone it would be all, and a claim whose use falls is not written at once

        async def written() -> bool:
            found = (await usages(cluster)).get("gpu-0")
            return found is not None and found.memory_used_bytes == 10 * GIB

        await cluster.until(written)
        found = (await usages(cluster))["gpu-0"]
        assert (found.memory_bytes, found.memory_limit_bytes, found.multiprocessors_limit) == (20 * GIB, 20 * GIB, 33)
        for each in (mine, theirs):
            await kubelet.unprepare(each)


async def test_without_the_feature_claims_are_left_alone(cluster: DriverCluster) -> None:
    wanted = await cluster.allocate("gpu-0")
    quick = {"hardware_interval_s": 0.02, "idle_window_s": 0.02, "usage_interval_s": 0.02}
    for enabled in (False, True):
        async with cluster.driver(device_usage=enabled, **quick), Kubelet.connect(cluster.registration) as kubelet:
            await kubelet.prepare(wanted)
            await asyncio.sleep(0.5)
        seen = await cluster.client.get(RESOURCE_CLAIMS, "train", "default")
        assert (seen.metadata.resource_version != wanted.metadata.resource_version) is enabled


@pytest.mark.parametrize(
    ("device", "more", "problem"),
    [
        ("nic-0", {}, "name a GPU"),
        ("gpu-0", {"memory": "much"}, "write a size such as 20Gi"),
        ("gpu-0", {"memory": "-1"}, "no load"),
        ("gpu-0", {"utilization": 101.0}, "no load"),
        ("gpu-0", {}, "not there"),
    ],
)
def test_a_load_that_cannot_be_put_says_why(
    device: str, more: dict[str, Any], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Load(device=device, plugins_dir=tmp_path, **more).run() in {1, 2}
    assert problem in capsys.readouterr().err
