"""GPUs and CPUs of one NUMA node in one claim, with the CPUs as that driver publishes them: as groups of which claims consume, or each by itself;
its driver managed, or shared in claims.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube.resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES, raw
from fairlead.sandbox import installation
from fairlead.sandbox.cpu_driver import CPUS, Mode
from tests.controller.conftest import NAMESPACE, Bench

EACH = 24  # CPUs of a pod: four fill a NUMA node of 96
AMOUNT: dict[Mode, dict[str, Any]] = {
    "grouped": {"capacity": {"requests": {f"{CPUS}/cpu": str(EACH)}}},
    "individual": {"count": EACH},
}
NUMA = "resource.kubernetes.io/numaNode"


async def _template(bench: Bench, mode: Mode) -> None:
    requests = [
        {"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS}},
        {"name": "cpus", "exactly": {"deviceClassName": CPUS} | AMOUNT[mode]},
    ]
    devices = {"requests": requests, "constraints": [{"matchAttribute": NUMA}]}
    body = {"metadata": {"name": "both"}, "spec": {"spec": {"devices": devices}}}
    await bench.client.create(raw(RESOURCE_CLAIM_TEMPLATES), body, NAMESPACE)


@pytest.mark.parametrize(("mode", "shared"), [("grouped", False), ("grouped", True), ("individual", False)])
async def test_a_gang_fills_the_numa_nodes_and_no_more(bench: Bench, mode: Mode, shared: bool) -> None:
    """Two nodes with two NUMA nodes each hold 16 such pods; for one more there is a GPU of no node left."""
    drivers: dict[str, Any] = {"shared_claim_drivers": (CPUS,)} if shared else {"managed_drivers": (names.DRIVER, CPUS)}
    async with installation.cpus(bench.cluster, mode), bench.controller(**drivers):
        await _template(bench, mode)
        pods = await bench.gang("gang", 16, template="both")
        await bench.until(lambda: bench.running(pods), "all pods")
        numa = {
            (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"]): device["attributes"][NUMA]["int"]
            for each in (await bench.client.list(raw(RESOURCE_SLICES))).items
            for device in each["spec"]["devices"]
        }
        used: Counter[tuple[str, int]] = Counter()
        for claim in bench.allocated():
            assert claim.status.allocation is not None
            results = claim.status.allocation.devices.results
            (where,) = {(each.pool, numa[each.driver, each.pool, each.device]) for each in results}
            found = [each for each in results if each.driver == CPUS]
            used[where] += sum(int((each.consumed_capacity or {}).get(f"{CPUS}/cpu", 1)) for each in found)
        assert sorted(used.values()) == [4 * EACH] * 4
        await bench.pod("late", template="both")
        await bench.until(lambda: bench.status("late").get("reason") == "DevicesInUse", "no GPU is left")
        await bench.delete(pods[:1])
        await bench.until(lambda: bench.running(["late"]), "its devices are free")
