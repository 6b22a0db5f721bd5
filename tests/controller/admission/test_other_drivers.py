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
    for node in ("h1", "h2"):
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": NIC, "nodeName": node, "pool": pool, "devices": [{"name": f"nic-{n}"} for n in range(20)]}
        await bench.client.create(raw(RESOURCE_SLICES), {"metadata": {"name": f"{node}-nic"}, "spec": spec})


async def test_a_claim_of_both_waits_and_says_what_helps(bench: Bench) -> None:
    await _nics(bench)
    asks = [(name, {"deviceClassName": of, "count": 1}) for name, of in (("gpu", names.GPU_CLASS), ("nic", NIC))]
    requests = [{"name": name, "exactly": exactly | {"allocationMode": "ExactCount"}} for name, exactly in asks]
    body = {"metadata": {"name": "both"}, "spec": {"spec": {"devices": {"requests": requests}}}}
    await bench.client.create(raw(RESOURCE_CLAIM_TEMPLATES), body, NAMESPACE)
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
