"""The whole driver goes and comes back, twice at once, and after a claim that vanished."""

from __future__ import annotations

import pytest

from fairlead.driver.app import run
from fairlead.driver.sockets import SocketError
from fairlead.driver.testing import Kubelet
from fairlead.sandbox.testing_driver import CLAIMS, DriverCluster


class TestRestarts:
    async def test_a_restarted_driver_answers_as_before_and_publishes_nothing_new(self, cluster: DriverCluster) -> None:
        wanted = await cluster.allocate("gpu-0")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            before = await kubelet.prepare(wanted)
        slices = await cluster.slices()
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            assert await kubelet.prepare(wanted) == before
        assert await cluster.slices() == slices

    async def test_a_second_driver_on_the_node_is_refused(self, cluster: DriverCluster) -> None:
        async with cluster.driver(), Kubelet.connect(cluster.registration):
            with pytest.raises(SocketError, match="held by another process of this driver"):
                await run(cluster.options)

    async def test_during_a_rolling_update_both_serve_and_know_each_others_claims(self, cluster: DriverCluster) -> None:
        first, second = await cluster.allocate("gpu-0", name="a"), await cluster.allocate("gpu-0", name="b")
        registry = cluster.path / "registry"
        async with (
            cluster.driver(pod_uid="old"),
            cluster.driver(pod_uid="new"),
            Kubelet.connect(registry / "gpu.fairlead.dev-old-reg.sock") as old,
            Kubelet.connect(registry / "gpu.fairlead.dev-new-reg.sock") as new,
        ):
            assert (await old.prepare(first))[first.metadata.uid].error == ""
            assert "held by ResourceClaim default/a" in (await new.prepare(second))[second.metadata.uid].error
            assert (await new.unprepare(first))[first.metadata.uid].error == ""
            assert (await old.prepare(second))[second.metadata.uid].error == ""

    async def test_a_claim_that_vanished_from_the_cluster_is_given_back(self, cluster: DriverCluster) -> None:
        wanted = await cluster.allocate("gpu-0")
        async with cluster.driver(sweep_interval_s=0.02), Kubelet.connect(cluster.registration) as kubelet:
            await kubelet.prepare(wanted)
            await cluster.client.delete(CLAIMS, "train", "default")

            again = await cluster.allocate("gpu-0", name="next")

            async def given() -> bool:
                """As kubelet does: asked again until the device is free."""
                return bool((await kubelet.prepare(again))[again.metadata.uid].error == "")

            await cluster.until(given)
            assert [path.name for path in (cluster.path / "cdi").iterdir() if wanted.metadata.uid in path.name] == []
