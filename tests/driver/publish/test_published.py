"""A running driver on a GPU that is lost: what is refused, and what is answered."""

from __future__ import annotations

from fairlead.driver.backend.simulated import fault_file
from tests.support.driver.cluster import DriverCluster
from tests.support.driver.kubelet import Kubelet


class TestSlices:
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
