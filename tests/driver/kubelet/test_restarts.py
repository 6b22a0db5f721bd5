"""The whole driver restarts, runs twice at once, and recovers after a claim that no longer exists."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fairlead.driver import parts
from fairlead.driver.app import run
from fairlead.driver.kubelet.server import SocketError
from fairlead.kube.resource import ResourceClaim
from tests.support.driver.cluster import CLAIMS, DriverCluster
from tests.support.driver.kubelet import Kubelet


async def _ask(kubelet: Kubelet, wanted: ResourceClaim, answers: list[str]) -> None:
    while True:
        answers.append((await kubelet.prepare(wanted))[wanted.metadata.uid].error)


class TestRestarts:
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

    async def test_a_rolling_update_leaves_no_moment_without_an_answer(self, cluster: DriverCluster) -> None:
        """As kubelet does: it calls the newest connection, and the one before while the newest does not answer."""
        registry = cluster.path / "registry"
        pods = ["a", "b", "c"]
        wanted = await cluster.allocate("gpu-0")
        answers: list[str] = []
        serving = contextlib.AsyncExitStack()
        await serving.enter_async_context(cluster.driver(pod_uid=pods[0]))
        kubelet = await serving.enter_async_context(Kubelet.connect(registry / "gpu.fairlead.dev-a-reg.sock"))
        for pod in pods[1:]:
            asking = asyncio.create_task(_ask(kubelet, wanted, answers))
            coming = contextlib.AsyncExitStack()
            await coming.enter_async_context(cluster.driver(pod_uid=pod))
            socket = registry / f"gpu.fairlead.dev-{pod}-reg.sock"
            new = await coming.enter_async_context(Kubelet.connect(socket))
            answers.append((await new.prepare(wanted))[wanted.metadata.uid].error)
            asking.cancel()
            await asyncio.wait({asking})
            answers.append((await kubelet.prepare(wanted))[wanted.metadata.uid].error)  # the old one, to its end
            await serving.aclose()
            serving, kubelet = coming, new
            assert [path.name for path in registry.iterdir()] == [socket.name]
        await serving.aclose()
        assert len(answers) > 10
        assert set(answers) == {""}

    async def test_a_claim_that_was_deleted_by_force_while_the_driver_was_down_is_unprepared(
        self, cluster: DriverCluster
    ) -> None:
        wanted = await cluster.allocate("gpu-0")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            await kubelet.prepare(wanted)
        await cluster.client.delete(CLAIMS, "train", "default")
        claims = cluster.path / "plugins/gpu.fairlead.dev/claims"
        async with cluster.driver(orphan_gc_interval_s=0.02):

            async def gone() -> bool:
                return list(claims.iterdir()) == []

            await cluster.until(gone)
        assert list((cluster.path / "cdi").iterdir()) == []

    async def test_after_a_reboot_a_claim_is_prepared_from_the_start(
        self, cluster: DriverCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wanted = await cluster.allocate("gpu-0-mig-1g10gb-19-0")
        options = {"backend": "simulated:hgx-h100", "dynamic_mig": True}
        async with cluster.driver(**options), Kubelet.connect(cluster.registration) as kubelet:
            before = await kubelet.prepare(wanted)
        # What a boot takes: CDI files are in memory, MIG devices in the GPU.
        for path in (cluster.path / "cdi").iterdir():
            path.unlink()
        (cluster.path / "plugins/gpu.fairlead.dev/simulated-hardware.json").unlink()
        boot = cluster.path / "boot_id"
        boot.write_text("the-next-boot\n")
        monkeypatch.setattr(parts, "BOOT_ID", boot)
        async with cluster.driver(**options), Kubelet.connect(cluster.registration) as kubelet:
            assert list((cluster.path / "plugins/gpu.fairlead.dev/claims").iterdir()) == []
            assert await kubelet.prepare(wanted) == before
            assert len(list((cluster.path / "cdi").iterdir())) == 1
