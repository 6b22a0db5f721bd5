"""Pods come and go beside running gangs and one that does not fit: what each change costs the controller.

Each node runs one gang of one GPU, so a gang of ten pods of eight GPUs fits nowhere and waits. Pods of one GPU come at a
steady rate, run as soon as they are bound, and are deleted LIFE_S later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.protocol import objects
from benchmarks.protocol.cluster import OWNER, World, cpu_s, post, until, whole
from benchmarks.protocol.fill import REPLICA_SETS
from fairlead.kube import errors, timestamps
from fairlead.kube.client import Patch
from fairlead.kube.resources import JOBS, PODS, RESOURCE_CLAIM_TEMPLATES, Raw, raw
from fairlead.sandbox.apiserver.assembly import put

LIFE_S = 5.0
WIDE = 10  # pods of the gang that waits


@dataclass(frozen=True, kw_only=True)
class Churn:
    nodes: int
    seconds: float
    rate: float
    quiet_s: float = 2.0


async def churn_figures(wanted: Churn, bar: float | None) -> list[dict[str, Any]]:
    used_s, pods = await churn(wanted)
    size = f"{wanted.nodes} nodes, {wanted.nodes} running gangs, {wanted.rate:g} pods/s for {wanted.seconds:g} s"
    value = round(used_s / pods * 1000, 3)
    return [
        {
            "figure": "protocol/churn-cpu-ms-per-pod",
            "value": value,
            "unit": "ms/pod",
            "bar": bar,
            "pods": pods,
            "size": size,
        }
    ]


async def churn(wanted: Churn) -> tuple[float, int]:
    """The controller's CPU seconds while pods came and went, and how many came."""
    async with whole() as world:
        objects.add_nodes(world.server.state, wanted.nodes)
        for number in range(wanted.nodes):
            _put_running(world, number)
        await world.admin.create(raw(RESOURCE_CLAIM_TEMPLATES), objects.template("one"))
        await world.admin.create(raw(RESOURCE_CLAIM_TEMPLATES), objects.template("eight", objects.GPUS))
        await world.start("webhook")
        controller = await world.start("controller")
        wide = objects.gang_job("wide", WIDE, objects.pod_spec(gpus=objects.GPUS, template="eight"))
        owner = await world.admin.create(raw(JOBS), wide)
        small = objects.replica_set("small", int(wanted.rate), objects.pod_spec(template="one"))
        owner_of_small = await world.admin.create(REPLICA_SETS, small)
        async with world.client(OWNER) as client, asyncio.TaskGroup() as group:
            await post(client, [objects.pod_of(owner, number) for number in range(WIDE)])
            await world.traffic.quiet(wanted.quiet_s)

            def run(pod: Raw) -> None:
                group.create_task(_run(world, pod, min(LIFE_S, wanted.seconds)))

            world.pods.on_bound = run
            count = max(1, round(wanted.seconds * wanted.rate))
            before, bound, began = cpu_s(controller), len(world.pods.bound), time.monotonic()
            for number in range(count):
                await asyncio.sleep(max(0.0, began + number / wanted.rate - time.monotonic()))
                group.create_task(client.create(raw(PODS), objects.pod_of(owner_of_small, number)))
            await asyncio.sleep(max(0.0, began + wanted.seconds - time.monotonic()))
            await until(lambda: len(world.pods.bound) - bound >= count, controller, f"{count} pods are bound", 120)
            used_s = cpu_s(controller) - before
            world.pods.on_bound = None
        return used_s, count


async def _run(world: World, pod: Raw, life_s: float) -> None:
    """As a kubelet and the pod's owner would: it runs, and is deleted some seconds later."""
    name = pod["metadata"]["name"]
    with contextlib.suppress(errors.NotFound):
        await world.admin.patch(
            raw(PODS), name, {"status": _running()},
            namespace=objects.NAMESPACE, kind=Patch.STRATEGIC, subresource="status",
        )  # fmt: skip
        await asyncio.sleep(life_s)
        await world.admin.delete(PODS, name, objects.NAMESPACE, grace_period_s=0)


def _running() -> Raw:
    now = timestamps.seconds(time.time())
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    return {"phase": "Running", "startTime": now, "conditions": [ready]}


def _put_running(world: World, number: int) -> None:
    """A pod of one GPU on its own node, as an earlier controller would have left it."""
    state, name, node = world.server.state, f"running-{number:05d}", objects.node_name(number)
    spec = {**objects.pod_spec(claim=name), "nodeName": node}
    meta = {"name": name, "namespace": objects.NAMESPACE}
    put(state, "", "v1", "pods", {"metadata": dict(meta), "spec": spec, "status": _running()})
    pod = state.get("", "pods", name, objects.NAMESPACE)
    assert pod is not None
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {
        "devices": {"results": [{"request": "gpu", "driver": "gpu.fairlead.dev", "pool": node, "device": "gpu-0"}]},
        "nodeSelector": {"nodeSelectorTerms": [pin]},
        "allocationTimestamp": timestamps.seconds(time.time() - 3600),
    }
    reference = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
    status = {"allocation": allocation, "reservedFor": [reference]}
    finalizers = ["resource.kubernetes.io/delete-protection"]
    claim = {"metadata": {**meta, "finalizers": finalizers}, "spec": objects.claim_spec(), "status": status}
    put(state, objects.RESOURCE, "v1", "resourceclaims", claim)
