"""A whole driver on an apiserver that drops fields: what it publishes and says, claims of before, drains and repairs, and its next process."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fairlead.api import withheld
from fairlead.api.repair import first_slice
from fairlead.driver.backend.simulated import fault_file
from fairlead.driver.publish.slices import NEEDS
from fairlead.kube.client import Client
from fairlead.kube.resources import EVENTS, raw
from tests.support.driver.cluster import DriverCluster
from tests.support.driver.kubelet import Kubelet

H100S = {f"gpu-{minor}" for minor in range(8)}
FAST: dict[str, Any] = {"backend": "simulated:hgx-h100", "hardware_interval_s": 0.02, "repair_interval_s": 0.02}


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of fields that slices lose on their way to the apiserver, which is the same to the driver as in it."""
    fields: set[str] = set()

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(item) for key, item in value.items() if key not in fields}
        return [without(item) for item in value] if isinstance(value, list) else value

    for name in ("create", "replace"):
        method = getattr(Client, name)

        async def call(self: Client, resource: Any, obj: Any, *args: Any, _method: Any = method, **kwargs: Any) -> Any:
            sent = without(copy.deepcopy(obj)) if resource.plural == "resourceslices" else obj
            return await _method(self, resource, sent, *args, **kwargs)

        monkeypatch.setattr(Client, name, call)
    return fields


def fields_of(*groups: str) -> set[str]:
    """Of those that a driver of node-local devices writes: `nodeName` of a device has the gate of counters, that of a slice none."""
    return {
        path.rpartition(".")[2]
        for group, need in NEEDS.items()
        if group in groups
        for kind, path in need.fields
        if kind == "ResourceSlice" and not path.endswith(("nodeName", "nodeSelector", "allNodes", "NodeSelection"))
    }


async def offered(cluster: DriverCluster) -> set[str]:
    """Of a complete pool; none while it is not."""
    slices = await cluster.slices()
    newest = max((each["spec"]["pool"]["generation"] for each in slices), default=0)
    current = [each for each in slices if each["spec"]["pool"]["generation"] == newest]
    if any(each["spec"]["pool"]["resourceSliceCount"] != len(current) for each in current):
        return set()
    return {device["name"] for each in current for device in each["spec"].get("devices", [])}


async def notes(cluster: DriverCluster) -> dict[str, tuple[withheld.Taint, ...]]:
    first = first_slice(await cluster.slices())
    assert first is not None
    return withheld.read(first["metadata"].get("annotations") or {})


async def until_offered(cluster: DriverCluster, devices: set[str]) -> None:
    async def so() -> bool:
        return await offered(cluster) == devices

    await cluster.until(so)


async def reasons(cluster: DriverCluster) -> set[str]:
    return {event["reason"] for event in (await cluster.client.list(raw(EVENTS))).items}


async def test_whole_gpus_are_offered_and_the_node_says_why(cluster: DriverCluster, dropped: set[str]) -> None:
    dropped |= fields_of("counters", "taints", "shares")

    async def said() -> bool:
        return {"CountersNotKept", "TaintsNotKept", "SharesNotKept"} <= await reasons(cluster)

    async with cluster.driver(**FAST, dynamic_mig=True, shared_gpus=True):
        assert await offered(cluster) == H100S
        await cluster.until(said)


async def test_the_next_process_withholds_it_from_its_first_write_on(cluster: DriverCluster, dropped: set[str]) -> None:
    dropped |= fields_of("taints")
    async with cluster.driver(**FAST):
        fault_file.inject(cluster.path / "plugins/gpu.fairlead.dev/simulated-faults.json", 1, xid=79)
        await until_offered(cluster, H100S - {"gpu-1"})
    [before] = await cluster.slices()
    async with cluster.driver(**FAST):
        assert await offered(cluster) == H100S - {"gpu-1"}
        [after] = await cluster.slices()
        assert before["spec"] == after["spec"]
        said = {taint.key: taint.effect for taint in (await notes(cluster))["gpu-1"]}
        assert said["gpu.fairlead.dev/xid"] == "NoExecute"


@pytest.mark.slow
async def test_a_mig_device_of_before_is_kept_and_unprepared_and_its_gpu_is_offered_when_it_is_gone(
    cluster: DriverCluster, dropped: set[str]
) -> None:
    claim = await cluster.allocate("gpu-0-mig-1g10gb-19-0", name="part")
    async with cluster.driver(**FAST, dynamic_mig=True), Kubelet.connect(cluster.registration) as kubelet:
        assert len(await offered(cluster)) == 8 * 26
        assert (await kubelet.prepare(claim))[claim.metadata.uid].error == ""
    dropped |= fields_of("counters")  # the cluster was downgraded
    async with cluster.driver(**FAST, dynamic_mig=True), Kubelet.connect(cluster.registration) as kubelet:
        assert await offered(cluster) == H100S - {"gpu-0"}
        [taint] = (await notes(cluster))["gpu-0"]
        assert (taint.key, taint.effect) == (withheld.NO_COUNTERS, "NoSchedule")
        assert (await kubelet.prepare(claim))[claim.metadata.uid].error == ""
        assert (await kubelet.unprepare(claim))[claim.metadata.uid].error == ""
        await until_offered(cluster, H100S)
