"""Devices of a driver that is not managed: kube-scheduler gives them out, and so nothing of theirs is given out here."""

from __future__ import annotations

from typing import Any

from fairlead.api import names
from fairlead.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES, raw
from tests.controller.conftest import NAMESPACE, Bench

Json = dict[str, Any]
NIC = "nic.example.com"


async def _nics(bench: Bench) -> None:
    """A NIC on each node, published by a driver of its own."""
    selectors = [{"cel": {"expression": f"device.driver == '{NIC}'"}}]
    await bench.client.create(raw(DEVICE_CLASSES), {"metadata": {"name": NIC}, "spec": {"selectors": selectors}})
    both = [{"cel": {"expression": f"device.driver == '{NIC}' || device.driver == '{names.DRIVER}'"}}]
    await bench.client.create(raw(DEVICE_CLASSES), {"metadata": {"name": "any"}, "spec": {"selectors": both}})
    for node in ("h1", "h2"):
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": NIC, "nodeName": node, "pool": pool, "devices": [{"name": f"nic-{n}"} for n in range(20)]}
        await bench.client.create(raw(RESOURCE_SLICES), {"metadata": {"name": f"{node}-nic"}, "spec": spec})


async def _template(bench: Bench, name: str, *requests: Json) -> None:
    body = {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": list(requests)}}}}
    await bench.client.create(raw(RESOURCE_CLAIM_TEMPLATES), body, NAMESPACE)


def _ask(name: str, device_class: str, count: int = 1) -> Json:
    return {
        "name": name,
        "exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count},
    }


async def test_a_claim_of_both_waits_and_says_what_helps(bench: Bench) -> None:
    await _nics(bench)
    await _template(bench, "both", _ask("gpu", names.GPU_CLASS), _ask("nic", NIC))
    async with bench.controller():
        await bench.pod("pod", template="both")
        await bench.until(lambda: "managedDrivers" in str(bench.status("pod").get("message")), "the reason")
        status = bench.status("pod")
        assert status["reason"] == "InvalidRequest"
        assert "devices.requests[1]: DeviceClass nic.example.com" in status["message"]
        assert bench.allocated() == []
    async with bench.controller(managed_drivers=(names.DRIVER, NIC)):
        await bench.until(lambda: len(bench.allocated()) == 1, "both devices, where both drivers are managed")
        [claim] = bench.allocated()
        assert claim.status.allocation is not None
        assert {each.driver for each in claim.status.allocation.devices.results} == {names.DRIVER, NIC}


async def test_a_class_of_both_gets_devices_of_managed_drivers_only(bench: Bench) -> None:
    await _nics(bench)
    await _template(bench, "any", _ask("gpu", "any", count=9))
    async with bench.controller():
        await bench.pod("nine", template="any")
        await bench.until(lambda: bench.status("nine").get("reason") not in {None, "", "Gathering"}, "the reason")
        assert bench.allocated() == []
