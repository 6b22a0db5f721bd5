"""Devices of a second driver, NICs beside the GPUs: with the driver not managed kube-scheduler gives them out, and so nothing of theirs is
given out here, unless the administrator says that no other claims use them; what becomes of claims when it is managed from now on, and when
it is managed no longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller.rehearsal import observe
from fairlead.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, raw
from fairlead.sandbox import files, installation
from fairlead.sandbox.install import manifests
from fairlead.sandbox.network_driver import DRANET
from tests.controller.conftest import NAMESPACE, Bench, Life

Json = dict[str, Any]
NIC = "dranet.net"
BOTH = (names.DRIVER, DRANET)
NICS = 16
"""With RDMA, one beside each GPU of two nodes."""
RDMA = {"cel": {"expression": f'device.attributes["{DRANET}"].rdma'}}
NIC_REQUEST = {"name": "nic", "exactly": {"deviceClassName": NIC, "count": 1, "selectors": [RDMA]}}


@pytest.fixture(autouse=True)
async def _nics(bench: Bench) -> AsyncIterator[None]:
    """DRANET on each node, its class, and templates for a NIC (`nic`) and for a GPU with the NIC beside it (`both`)."""
    selectors = [{"cel": {"expression": f"device.driver == '{DRANET}'"}}]
    await bench.client.create(raw(DEVICE_CLASSES), {"metadata": {"name": NIC}, "spec": {"selectors": selectors}})
    gpu = {"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS, "count": 1}}
    one_root = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]
    for name, devices in {
        "nic": {"requests": [NIC_REQUEST]},
        "both": {"requests": [gpu, NIC_REQUEST], "constraints": one_root},
    }.items():
        body = {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}
        await bench.client.create(raw(RESOURCE_CLAIM_TEMPLATES), body, NAMESPACE)
    async with installation.nics(bench.cluster):
        yield


async def _fence(bench: Bench, *more: str) -> None:
    """Kubernetes refuses what others allocate of managed drivers' devices: our own, and these."""
    objects = manifests.load(files.find("manifests/base/allocation-fence.yaml"))
    for driver in more:
        objects = installation.also_managing(objects, driver)
    await bench.cluster.apply(objects)


def _devices(bench: Bench, driver: str = DRANET) -> dict[str, list[tuple[str, str]]]:
    """Of each claim what it holds of the driver."""
    found = {}
    for claim in bench.allocated():
        assert claim.status.allocation is not None
        results = claim.status.allocation.devices.results
        found[claim.metadata.name] = [(each.pool, each.device) for each in results if each.driver == driver]
    return found


async def test_a_claim_of_both_waits_and_says_what_helps(bench: Bench) -> None:
    async with bench.controller():
        await bench.pod("pod", template="both")
        await bench.until(lambda: "managedDrivers" in str(bench.status("pod").get("message")), "the reason")
        status = bench.status("pod")
        assert status["reason"] == "InvalidRequest"
        assert "devices.requests[1]: DeviceClass dranet.net" in status["message"]
        assert bench.allocated() == []
    async with bench.controller(managed_drivers=BOTH):
        await bench.until(lambda: bench.running(["pod"]), "both devices, where both drivers are managed")
        assert [len(_devices(bench, driver).popitem()[1]) for driver in BOTH] == [1, 1]


async def test_a_driver_becomes_managed_while_claims_of_it_exist(bench: Bench) -> None:
    """What kube-scheduler gave out is respected, what it did not is decided here from now on, and no NIC is given twice.

    A pod that was created without a gate gets none: kube-scheduler may not allocate for it any more.
    """
    others = [f"other-{number}" for number in range(5)]
    async with bench.controller():
        for name in others:
            await bench.pod(name, template="nic", gates=())
        await bench.pod("waits", template="both")
        body = {"metadata": {"name": "named"}, "spec": {"devices": {"requests": [NIC_REQUEST]}}}
        await bench.client.create(raw(RESOURCE_CLAIMS), body, NAMESPACE)
        await bench.until(lambda: bench.running(others), "kube-scheduler gives out NICs")
        await bench.until(lambda: bench.status("waits").get("reason") == "InvalidRequest", "the reason")
        given = _devices(bench)
        assert sorted(map(len, given.values())) == [1] * 5
    await _fence(bench, DRANET)
    await bench.pod("stray", template="nic", gates=())
    await bench.event("stray", "FailedScheduling: binding rejected")
    async with bench.controller(managed_drivers=BOTH):
        await bench.pod("user", claim="named")
        rest = ["user", "waits", *await bench.gang("rest", NICS - 7, template="both")]
        await bench.until(lambda: bench.running(rest), "all NICs that were free")
        await bench.pod("late", template="both")
        await bench.until(lambda: bench.status("late").get("reason") == "DevicesInUse", "none is left")
        held = _devices(bench)
        assert {name: held[name] for name in given} == given
        assert len({nic for nics in held.values() for nic in nics}) == NICS
        assert bench.running(others)
        await bench.delete(others[:1])
        await bench.until(lambda: bench.running(["late"]), "the pair whose NIC is free again")


@pytest.mark.slow
async def test_a_driver_is_managed_no_longer(bench: Bench) -> None:
    """What runs goes on with what it has; a gang that asks for both waits, with that reason, until the driver is managed again."""
    await _fence(bench, DRANET)
    async with bench.controller(managed_drivers=BOTH):
        runs = await bench.gang("runs", 3, template="both")
        await bench.until(lambda: bench.running(runs), "GPUs and NICs")
        given = _devices(bench)
    await _fence(bench)
    async with bench.controller():
        late = await bench.gang("late", 2, template="both")
        await bench.until(lambda: "managedDrivers" in str(bench.status("late").get("message")), "the reason")
        assert bench.status("late")["reason"] == "InvalidRequest"
        others = [f"other-{number}" for number in range(NICS - 3)]
        for name in others:
            await bench.pod(name, template="nic", gates=())
        await bench.until(lambda: bench.running(others), "kube-scheduler gives out the other NICs")
        assert bench.running(runs)
        assert bench.status("runs")["phase"] == "Running"
        held = _devices(bench)
        assert {name: held[name] for name in given} == given
        assert len({nic for nics in held.values() for nic in nics}) == NICS
        await bench.delete([*runs, *others[:1]])
        await bench.until(lambda: not given.keys() & _devices(bench).keys(), "its devices are free")
        assert bench.gated(late)
    await _fence(bench, DRANET)
    async with bench.controller(managed_drivers=BOTH):
        await bench.until(lambda: bench.running(late), "the gang that waited")


async def test_a_driver_that_is_not_managed_is_shared_in_claims(bench: Bench) -> None:
    """Claims of both get pairs, no NIC twice, also of two gangs at once; what kube-scheduler gave out for claims of NICs alone is passed by."""
    await _fence(bench)
    async with bench.controller(shared_claim_drivers=(DRANET,)):
        alone = [f"alone-{number}" for number in range(3)]
        for name in alone:
            await bench.pod(name, template="nic", gates=())
        await bench.until(lambda: bench.running(alone), "kube-scheduler gives out NICs, past the fence")
        first, second = await asyncio.gather(
            bench.gang("first", 6, template="both"), bench.gang("second", NICS - 9, template="both")
        )
        await bench.until(lambda: bench.running([*first, *second]), "all NICs that were free")
        await bench.pod("late", template="both")
        await bench.until(lambda: bench.status("late").get("reason") == "DevicesInUse", "none is left")
        held = _devices(bench)
        assert len({nic for nics in held.values() for nic in nics}) == NICS
        assert [len(_devices(bench, names.DRIVER)[claim]) for claim in sorted(held)].count(1) == NICS - 3
        seen, _ = await observe(bench.client, (names.DRIVER,), (DRANET,))
        assert {pool.driver for pool in seen.inventory.pools_unordered()} == {*BOTH}, (
            "what-if decides on the same devices"
        )
        await bench.delete(second[:1])
        await bench.until(lambda: bench.running(["late"]), "the pair that is free again")


async def test_a_leader_that_dies_leaves_no_shared_device_behind(bench: Bench) -> None:
    gang = await bench.gang("gang", 4, template="both")
    life = Life(3, allocations=True)
    await bench.mortal(life, lambda: bench.running(gang), shared_claim_drivers=(DRANET,))
    assert len(bench.allocated()) < len(gang), "it died in the middle"
    async with bench.controller(shared_claim_drivers=(DRANET,)):
        await bench.until(lambda: bench.running(gang), "the next leader gives all or takes all back")
        assert sorted(map(len, _devices(bench).values())) == [1] * 4


async def test_a_claim_that_could_be_of_the_shared_driver_alone_waits_and_says_what_helps(bench: Bench) -> None:
    """kube-scheduler could not be kept off it: the fence and the controller know a claim by its managed devices."""
    alternatives = [{"name": "gpu", "deviceClassName": names.GPU_CLASS}, {"name": "nic", "deviceClassName": NIC}]
    devices = {"requests": [{"name": "either", "firstAvailable": alternatives}]}
    body = {"metadata": {"name": "either"}, "spec": {"spec": {"devices": devices}}}
    await bench.client.create(raw(RESOURCE_CLAIM_TEMPLATES), body, NAMESPACE)
    async with bench.controller(shared_claim_drivers=(DRANET,)):
        await bench.pod("pod", template="either")
        await bench.until(lambda: "sharedClaimDrivers" in str(bench.status("pod").get("message")), "the reason")
        assert bench.status("pod")["reason"] == "InvalidRequest"
        assert bench.allocated() == []
    async with bench.controller():
        await bench.until(lambda: bench.running(["pod"]), "the GPU, where no driver is shared")
