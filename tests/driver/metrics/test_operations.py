"""What a running driver reports to its operators: metrics, probes, Events."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import aiohttp

from fairlead.driver.publish.node_labels import FILE
from fairlead.kube.resources import EVENTS
from tests.support.driver.claims import claim, mps
from tests.support.driver.cluster import DriverCluster
from tests.support.driver.kubelet import Kubelet


class TestMetrics:
    async def test_metrics_count_claims_and_devices(self, cluster: DriverCluster, free_port: Callable[[], int]) -> None:
        wanted, bind = await cluster.allocate("gpu-0", pod="trainer-0"), f"127.0.0.1:{free_port()}"
        async with (
            cluster.driver(metrics_bind=bind, dcgm_metrics=True),
            Kubelet.connect(cluster.registration) as kubelet,
            aiohttp.ClientSession() as http,
        ):
            await kubelet.prepare(wanted, claim("no-such-uid", "gpu-1", name="gone"))
            async with http.get(f"http://{bind}/metrics") as response:
                text = await response.text()
        for result in ("ok", "error"):
            assert f'fairlead_driver_claims_total{{operation="NodePrepareResources",result="{result}"}} 1.0' in text
        assert "fairlead_driver_slices_synced_timestamp_seconds " in text
        assert 'fairlead_driver_claims_held{state="prepared"} 1.0' in text
        assert 'fairlead_driver_devices{type="mig"} 10.0' in text
        assert 'fairlead_driver_resourceslice_writes_total{result="ok",verb="create"} 1.0' in text
        [uuid] = [
            device["attributes"]["uuid"]["string"]
            for stored in await cluster.slices()
            for device in stored["spec"]["devices"]
            if device["name"] == "gpu-0"
        ]
        assert f'fairlead_driver_gpu_power_watts{{device="gpu-0",uuid="{uuid}"}} 60.0' in text
        held = f'device="gpu-0",namespace="default",pod="trainer-0",share="",uuid="{uuid}"'
        assert f'fairlead_driver_device_claim{{claim="train",{held}}} 1.0' in text
        assert f'fairlead_driver_gpu_nvlink_sent_bytes_total{{device="gpu-0",uuid="{uuid}"}} 0.0' in text
        [power] = [line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_POWER_USAGE{") and uuid in line]
        assert 'namespace="default",' in power
        assert 'pod="trainer-0"' in power
        assert ',hostname="n1"' in power
        assert 'container=""' in power

    async def test_node_labels_are_written_where_they_are_asked_for(
        self, cluster: DriverCluster, tmp_path: Path
    ) -> None:
        features = tmp_path / "features.d"
        features.mkdir()
        async with cluster.driver(node_labels_dir=features, mig_strategy="mixed", backend="simulated:hgx-h100"):
            for _ in range(500):
                if (features / FILE).exists():
                    break
                await asyncio.sleep(0.02)
        text = (features / FILE).read_text()
        assert "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3\n" in text
        assert "nvidia.com/gpu.count=8\n" in text
        assert "nvidia.com/mig.strategy=mixed\n" in text


class TestMps:
    async def test_a_daemon_that_dies_is_started_again_and_counted(
        self, cluster: DriverCluster, free_port: Callable[[], int]
    ) -> None:
        wanted = await cluster.allocate("gpu-0", config=[mps(defaultActiveThreadPercentage=25)])
        bind = f"127.0.0.1:{free_port()}"
        pid = cluster.path / "plugins/gpu.fairlead.dev/mps" / wanted.metadata.uid / "pid"
        async with (
            cluster.driver(metrics_bind=bind, mps_interval_s=0.05),
            Kubelet.connect(cluster.registration) as kubelet,
            aiohttp.ClientSession() as http,
        ):
            assert (await kubelet.prepare(wanted))[wanted.metadata.uid].error == ""
            before = pid.read_text()
            os.kill(int(before.split()[0]), signal.SIGKILL)

            async def counted() -> bool:
                async with http.get(f"http://{bind}/metrics") as response:
                    return "fairlead_driver_mps_restarts_total 1.0" in await response.text()

            await cluster.until(counted)
            assert pid.read_text() != before
            assert (await kubelet.unprepare(wanted))[wanted.metadata.uid].error == ""
        assert not pid.parent.exists()


class TestEvents:
    async def test_a_record_that_cannot_be_read_is_an_event_on_the_node(self, cluster: DriverCluster) -> None:
        wanted = await cluster.allocate("gpu-0")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            await kubelet.prepare(wanted)
        [record] = (cluster.path / "plugins/gpu.fairlead.dev/claims").iterdir()
        record.write_bytes(record.read_bytes()[:40])

        async def recorded() -> bool:
            return bool((await cluster.client.list(EVENTS, "default")).items)

        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            await cluster.until(recorded)
            assert (await kubelet.prepare(wanted))[wanted.metadata.uid].error == ""
        [event] = (await cluster.client.list(EVENTS, "default")).items
        about = event["involvedObject"]
        assert (about["kind"], about["name"], about["uid"]) == ("Node", "n1", "n1")
        assert (event["type"], event["reason"]) == ("Warning", "CheckpointUnreadable")
        assert f"record of claim {wanted.metadata.uid} cannot be read (cut short" in event["message"]
        assert "it was rebuilt from its CDI file" in event["message"]
