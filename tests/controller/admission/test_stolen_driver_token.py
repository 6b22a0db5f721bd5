"""A node's driver token in other hands, on an apiserver with the shipped policies: 1,152 GPUs are published, and none is given out."""

from __future__ import annotations

from typing import Any

from fairlead.api import names
from fairlead.kube.client import Client
from fairlead.kube.resources import NODES, RESOURCE_SLICES, raw
from tests.controller.conftest import Bench
from tests.controller.report.series import free_port, scraped, values
from tests.support.engine.objects import gpu

Json = dict[str, Any]
LIAR = "liar"
SLICES = 9
READY = [{"type": "Ready", "status": "True"}]


def lies(number: int) -> Json:
    devices = [gpu(minor) | {"name": f"gpu-{128 * number + minor}"} for minor in range(128)]
    pool = {"name": LIAR, "generation": 2**63 - 1, "resourceSliceCount": SLICES}
    spec = {"driver": names.DRIVER, "nodeName": LIAR, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{LIAR}-{number}"}, "spec": spec}


async def test_a_node_that_claims_a_thousand_gpus_gets_no_pod_and_delays_none(bench: Bench) -> None:
    status = {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}, "conditions": READY}
    await bench.client.create(raw(NODES), {"metadata": {"name": LIAR}, "status": status})
    extra = {"authentication.kubernetes.io/node-name": (LIAR,)}
    async with Client.connect(bench.cluster.kubeconfig(names.DRIVER_USER, extra=extra)) as thief:
        for number in range(SLICES):
            await thief.create(raw(RESOURCE_SLICES), lies(number))
    await bench.template("one")
    await bench.template("twelve", 12)
    port = free_port()
    async with bench.controller(metrics_bind=f"127.0.0.1:{port}"):
        await bench.pod("large", template="twelve")
        await bench.pod("small", template="one")
        await bench.until(lambda: bench.running(["small"]), "the pod that fits on an honest node")
        await bench.until(lambda: bool(bench.status("large").get("reason")), "why the other one waits")
        assert all(LIAR not in str(each.status.allocation) for each in bench.allocated())
        assert bench.gated(["large"])
        assert values(await scraped(port), "fairlead_controller_ignored_slices") == {(): 1}
