"""The whole driver against the sandbox's apiserver, called over its sockets as kubelet calls it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import pytest

from fairlead.driver.kubelet import protocol
from fairlead.kube.prepare_refusals import refusal
from fairlead.kube.resources import RESOURCE_CLAIMS
from tests.support.driver.claims import claim
from tests.support.driver.cluster import CLAIMS, DriverCluster, share_id
from tests.support.driver.kubelet import Kubelet


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
class TestPrepare:
    async def test_a_claim_is_prepared_again_identically_and_unprepared(
        self, cluster: DriverCluster, version: str
    ) -> None:
        wanted = await cluster.allocate("gpu-0", "gpu-6-mig-1g10gb-19-2")
        uid = wanted.metadata.uid
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            answer = await kubelet.prepare(wanted, version=version)
            assert list(answer) == [uid]
            assert answer[uid].error == ""
            assert [(list(d.request_names), d.pool_name, d.device_name) for d in answer[uid].devices] == [
                (["gpu"], "n1", "gpu-0"),
                (["gpu"], "n1", "gpu-6-mig-1g10gb-19-2"),
            ]
            assert [list(d.cdi_device_ids) for d in answer[uid].devices] == [
                [f"k8s.gpu.fairlead.dev/claim={uid}-gpu-0"],
                [f"k8s.gpu.fairlead.dev/claim={uid}-gpu-6-mig-1g10gb-19-2"],
            ]
            assert await kubelet.prepare(wanted, version=version) == answer
            [path] = (cluster.path / "cdi").iterdir()
            assert json.loads(path.read_bytes())["devices"][0]["name"] == f"{uid}-gpu-0"
            answer = await kubelet.unprepare(wanted, version=version)
            assert answer[uid].error == ""
        assert list((cluster.path / "cdi").iterdir()) == []
        assert list((cluster.path / "plugins/gpu.fairlead.dev/claims").iterdir()) == []

    async def test_each_claim_gets_its_own_answer(self, cluster: DriverCluster, version: str) -> None:
        good = await cluster.allocate("gpu-0")
        gone = claim("no-such-uid", "gpu-1", name="gone")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            answer = await kubelet.prepare(good, gone, version=version)
        assert answer.keys() == {good.metadata.uid, "no-such-uid"}
        assert answer[good.metadata.uid].error == ""
        assert "ResourceClaim ml/gone: reading it from the apiserver" in answer["no-such-uid"].error
        assert len(answer["no-such-uid"].devices) == 0


class TestProtocol:
    async def test_share_ids_are_in_the_answer_where_the_version_has_them(self, cluster: DriverCluster) -> None:
        share = "3f3a8d6e-0000-4000-8000-000000000001"
        wanted = await cluster.allocate({"device": "gpu-0", "shareID": share})
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            [v1] = (await kubelet.prepare(wanted))[wanted.metadata.uid].devices
            [v1beta1] = (await kubelet.prepare(wanted, version="v1beta1"))[wanted.metadata.uid].devices
        assert v1.share_id == share
        assert v1.cdi_device_ids == v1beta1.cdi_device_ids

    async def test_a_claim_recreated_under_the_same_name_is_refused(self, cluster: DriverCluster) -> None:
        await cluster.allocate("gpu-0", name="train")
        old = claim("0b0a9e0c-0000-0000-0000-000000000000", "gpu-0", name="train", namespace="default")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            answer = await kubelet.prepare(old)
        assert "it was deleted and recreated" in answer[old.metadata.uid].error

    async def test_a_claim_that_is_not_allocated_is_refused(self, cluster: DriverCluster) -> None:
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.fairlead.dev"}}]}}
        await cluster.client.create(
            CLAIMS, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec}, "default"
        )
        wanted = await cluster.client.get(RESOURCE_CLAIMS, "c", "default")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            answer = await kubelet.prepare(wanted)
        assert "status.allocation: not set" in answer[wanted.metadata.uid].error

    async def test_unprepare_of_an_unknown_claim_succeeds_without_an_apiserver(self, cluster: DriverCluster) -> None:
        wanted = await cluster.allocate("gpu-0")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            await kubelet.prepare(wanted)
            await cluster.server.stop()
            answer = await kubelet.unprepare(wanted, claim("unknown", "gpu-1"))
        assert [entry.error for entry in answer.values()] == ["", ""]

    @pytest.mark.slow
    async def test_sixty_four_claims_in_one_call(self, cluster: DriverCluster) -> None:
        wanted = [await cluster.allocate({"device": "gpu-0", "shareID": share_id(n)}, name=f"c{n}") for n in range(64)]
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            answer = await kubelet.prepare(*wanted)
            assert answer.keys() == {one.metadata.uid for one in wanted}
            assert {entry.error for entry in answer.values()} == {""}
            assert len(list((cluster.path / "cdi").iterdir())) == 64
            answer = await kubelet.unprepare(*wanted)
            assert {entry.error for entry in answer.values()} == {""}
        assert list((cluster.path / "cdi").iterdir()) == []

    async def test_the_health_stream_lists_every_published_device(self, cluster: DriverCluster) -> None:
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            stream = kubelet.health.NodeWatchResources(protocol.dra_health_v1alpha1_pb2.NodeWatchResourcesRequest())
            first = await stream.read()
            stream.cancel()
        published = [device["name"] for slice_ in await cluster.slices() for device in slice_["spec"]["devices"]]
        assert [entry.device.device_name for entry in first.devices] == published
        assert {entry.health for entry in first.devices} == {protocol.dra_health_v1alpha1_pb2.HEALTHY}

    async def test_an_open_health_stream_does_not_delay_the_end(self, cluster: DriverCluster) -> None:
        async with cluster.driver() as driver, Kubelet.connect(cluster.registration) as kubelet:
            stream = kubelet.health.NodeWatchResources(protocol.dra_health_v1alpha1_pb2.NodeWatchResourcesRequest())
            await stream.read()
            driver.cancel()
            async with asyncio.timeout(3):
                await asyncio.wait({driver})
            assert driver.done()
            stream.cancel()


class TestRefusals:
    """What is refused is said in the claim, as kubelet says it in an Event alone."""

    async def said(self, cluster: DriverCluster, name: str) -> str:
        return refusal(await cluster.client.get(RESOURCE_CLAIMS, name, "default"))

    async def test_a_claim_says_who_has_its_device_until_that_is_free(self, cluster: DriverCluster) -> None:
        old, new = await cluster.allocate("gpu-0", name="old"), await cluster.allocate("gpu-0", name="new")
        async with cluster.driver(release_wait_s=0.1), Kubelet.connect(cluster.registration) as kubelet:
            await kubelet.prepare(old)
            await cluster.client.delete(CLAIMS, "old", "default")
            error = (await kubelet.prepare(new))[new.metadata.uid].error
            assert "held by ResourceClaim default/old" in error

            async def refused() -> bool:
                return bool(await self.said(cluster, "new") == error)

            async def taken_back() -> bool:
                return not await self.said(cluster, "new")

            await cluster.until(refused)
            await kubelet.unprepare(old)
            await cluster.until(taken_back)
            assert (await kubelet.prepare(new))[new.metadata.uid].error == ""


class TestDynamicMig:
    options: ClassVar[dict[str, Any]] = {
        "backend": "simulated:hgx-h100",
        "dynamic_mig": True,
        "hardware_interval_s": 0.02,
    }

    async def test_mig_devices_come_and_go_with_their_claims_and_nothing_is_published_for_it(
        self, cluster: DriverCluster
    ) -> None:
        wanted = await cluster.allocate("gpu-0-mig-3g40gb-9-4", "gpu-1")
        async with cluster.driver(**self.options), Kubelet.connect(cluster.registration) as kubelet:
            before = await cluster.slices()
            answer = await kubelet.prepare(wanted)
            assert answer[wanted.metadata.uid].error == ""
            assert await kubelet.prepare(wanted) == answer
            await asyncio.sleep(0.1)  # several polls of the hardware
            assert (await kubelet.unprepare(wanted))[wanted.metadata.uid].error == ""
            await asyncio.sleep(0.1)
            assert await cluster.slices() == before

    async def test_a_restarted_driver_knows_its_mig_devices(self, cluster: DriverCluster) -> None:
        wanted = await cluster.allocate("gpu-0-mig-3g40gb-9-4")
        async with cluster.driver(**self.options), Kubelet.connect(cluster.registration) as kubelet:
            before = await kubelet.prepare(wanted)
            published = await cluster.slices()
        async with cluster.driver(**self.options), Kubelet.connect(cluster.registration) as kubelet:
            assert await cluster.slices() == published
            assert await kubelet.prepare(wanted) == before
            assert (await kubelet.unprepare(wanted))[wanted.metadata.uid].error == ""
        hardware = json.loads((cluster.path / "plugins/gpu.fairlead.dev/simulated-hardware.json").read_bytes())
        assert not any(hardware["instances"].values())
