"""The slices of a running driver: wiped, edited, refused, tainted."""

from __future__ import annotations

import json

from fairlead.driver.backend.simulated import fault_file
from tests.support.driver.cluster import SLICES, DriverCluster
from tests.support.driver.kubelet import Kubelet


class TestSlices:
    async def test_an_edited_slice_is_put_right_in_place(self, cluster: DriverCluster) -> None:
        async with cluster.driver():
            [before] = await cluster.slices()
            edited = json.loads(json.dumps(before))
            edited["spec"]["devices"][0]["name"] = "gpu-99"
            await cluster.client.replace(SLICES, edited)

            async def right() -> bool:
                return bool((await cluster.slices())[0]["spec"] == before["spec"])

            await cluster.until(right)
            [after] = await cluster.slices()
            assert after["metadata"]["name"] == before["metadata"]["name"]
            assert after["spec"]["pool"]["generation"] == 1

    async def test_a_fault_taints_the_slice_until_it_is_mended(self, cluster: DriverCluster) -> None:
        faults = cluster.path / "plugins/gpu.fairlead.dev/simulated-faults.json"

        async def taints() -> dict[str, list[str]]:
            [stored] = await cluster.slices()
            return {
                device["name"]: [f"{taint['key']}:{taint['effect']}" for taint in device["taints"]]
                for device in stored["spec"]["devices"]
                if device.get("taints")
            }

        async def tainted() -> bool:
            found = await taints()
            return found == {"gpu-1": ["gpu.fairlead.dev/gpu-lost:NoExecute"]}

        async def healthy() -> bool:
            found = await taints()
            return found == {}

        async with cluster.driver(hardware_interval_s=0.02):
            fault_file.inject(faults, 1, lost=True)
            await cluster.until(tainted)
            fault_file.clear(faults)
            await cluster.until(healthy)
            [stored] = await cluster.slices()
            assert stored["spec"]["pool"]["generation"] == 1

    async def test_a_lost_gpu_is_refused_to_new_claims_and_its_own_are_answered(self, cluster: DriverCluster) -> None:
        faults = cluster.path / "plugins/gpu.fairlead.dev/simulated-faults.json"
        old, new = await cluster.allocate("gpu-1", name="old"), await cluster.allocate("gpu-2", name="new")

        async def tainted() -> bool:
            [stored] = await cluster.slices()
            return sum(1 for device in stored["spec"]["devices"] if device.get("taints")) == 2

        async with (
            cluster.driver(hardware_interval_s=0.02),
            Kubelet.connect(cluster.registration) as kubelet,
        ):
            before = await kubelet.prepare(old)
            fault_file.inject(faults, 1, lost=True)
            fault_file.inject(faults, 2, lost=True)
            await cluster.until(tainted)
            assert await kubelet.prepare(old) == before
            error = (await kubelet.prepare(new))[new.metadata.uid].error
            assert "gpu-2 cannot be used: the GPU has fallen off the bus; delete the pod" in error
            assert (await kubelet.unprepare(old))[old.metadata.uid].error == ""
