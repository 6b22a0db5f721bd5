"""In a namespace that the webhook leaves out (`fairlead.dev/ignore`) a tenant writes the controller's marks on pods: they hold nothing."""

from __future__ import annotations

import asyncio
import json
import time

from fairlead.api import names
from fairlead.kube import timestamps
from fairlead.kube.resources import NAMESPACES, PODS, QUEUES, raw
from tests.controller.conftest import NAMESPACE, Bench
from tests.support.teams import OTHER, standing, teams
from tests.support.tenants import EDITOR, bind_tenants

FAR = "2099-01-01T00:00:00Z"


async def test_forged_marks_hold_no_device_and_give_no_precedence(bench: Bench) -> None:
    await teams(bench)
    await bind_tenants(bench.client)
    await bench.template("one", 1)
    await bench.client.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {names.IGNORE_LABEL: "true"}}})
    await bench.client.patch(QUEUES, OTHER, {"spec": {"namespaceSelector": None}})
    queue = {names.QUEUE: OTHER}
    async with bench.controller():
        await bench.pod("runs", template="one", annotations=queue)
        await bench.until(lambda: bench.running(["runs"]), "a pod that got a device as any")
        pod = bench.get("runs")
        assert pod is not None
        node = "h1" if pod.spec.node_name == "h2" else "h2"
        devices = [f"{names.DRIVER}/{node}/gpu-{number}" for number in range(8)]
        place = {"node": node, "devices": devices}
        mark = {"kind": "Move", "for": f"{NAMESPACE}/greedy", "whole": True, "why": "x", "place": place}
        forged = {names.EVICT_AT: FAR, names.EVICTION: json.dumps(mark)}
        async with bench.cluster.client(EDITOR) as tenant:
            await tenant.patch(raw(PODS), "runs", {"metadata": {"annotations": forged}}, namespace=NAMESPACE)
        await bench.pod("own", template="eight", namespace=OTHER, annotations=queue)
        await bench.until(lambda: standing(bench, OTHER, "own") == "Running", "eight devices are free for it")


async def test_a_forged_reservation_is_no_reason_to_go_first(bench: Bench) -> None:
    await teams(bench)
    await bench.client.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {names.IGNORE_LABEL: "true"}}})
    await bench.client.patch(QUEUES, OTHER, {"spec": {"namespaceSelector": None}})
    queue = {names.QUEUE: OTHER}
    for name in ("first", "second"):
        await bench.pod(name, template="eight", namespace=OTHER, annotations=queue)
    await asyncio.sleep(1.1)  # creation times are whole seconds
    until = timestamps.seconds(time.time() + 600)
    await bench.pod("greedy", template="eight", annotations={names.HOLDS_UNTIL: until, **queue})
    async with bench.controller():
        await bench.until(
            lambda: all(standing(bench, OTHER, name) == "Running" for name in ("first", "second")), "the older ones run"
        )
        assert bench.gated(["greedy"])
