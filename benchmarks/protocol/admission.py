"""What admission costs an apiserver: the objects that it converts for the CEL of our webhooks and policies, write by write.

A gang of a Job lives on a cluster with Fairlead: created, its claims made and allocated, released from the gate, bound, running,
ended, its claims freed. Beside it a pod that asks for no device and a claim of another driver. Counted by the sandbox as an apiserver
converts (`Conversions`); what pods and claims cost, not what is once a gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.protocol import objects
from benchmarks.protocol.cluster import OWNER, World, post, until, whole
from benchmarks.protocol.traffic import per_pod
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import JOBS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Raw, raw
from fairlead.sandbox.apiserver.state import Conversions
from fairlead.sandbox.install.programs import Process

BARS = {"life": 14.0, "status": 0.0, "creation": 1.0, "update": 2.0}
TRACKED = "batch.kubernetes.io/job-tracking"
PER_POD = frozenset({"pods", "bindings", "resourceclaims"})


class Conversion:
    """Counts the objects that were converted since the last `take`, by write and by webhook or policy."""

    def __init__(self, world: World) -> None:
        self._counted: Counter[str] = Counter()
        world.server.state.on_conversion = self._see

    def _see(self, seen: Conversions) -> None:
        if seen.resource in PER_POD:
            what = seen.resource + (f"/{seen.subresource}" if seen.subresource else "")
            self._counted[f"{seen.operation} {what}: {seen.owner}"] += seen.objects

    def take(self) -> Counter[str]:
        taken, self._counted = self._counted, Counter()
        return taken


async def conversions(gang: int = 8) -> dict[str, Counter[str]]:
    """By what was done: `life` of a gang of so many pods, `status` of one of them; of strangers a pod's `creation`, `other status` and
    `update`, and a `claim`.
    """
    async with whole() as world:
        objects.add_nodes(world.server.state, -(-gang // objects.GPUS))
        counted = Conversion(world)
        await world.admin.create(raw(RESOURCE_CLAIM_TEMPLATES), objects.template("one"))
        await world.start("webhook")
        controller = await world.start("controller")
        owner = await world.admin.create(raw(JOBS), objects.gang_job("gang", gang, objects.pod_spec(template="one")))
        bodies = [objects.pod_of(owner, number) for number in range(gang)]
        for body in bodies:
            body["metadata"]["finalizers"] = [TRACKED]
        counted.take()
        async with world.client(OWNER) as client:
            pods = await post(client, bodies)
        await until(lambda: len(world.pods.bound) >= gang, controller, f"{gang} pods are bound", 120)
        await world.traffic.quiet(0.5)
        life = counted.take()
        await _status(world.admin, pods[0]["metadata"]["name"], "Running")
        status = counted.take()
        await _end(world, controller, pods)
        return {"life": life + status + counted.take(), "status": status, **await _strangers(world.admin, counted)}


async def _end(world: World, controller: Process, pods: list[Raw]) -> None:
    """As kubelet and the Job's controller write it: the pods run, succeed and are accounted for; then their claims go."""
    for phase, some in (("Running", pods[1:]), ("Succeeded", pods)):
        for pod in some:
            await _status(world.admin, pod["metadata"]["name"], phase)
    for pod in pods:
        body = {"metadata": {"finalizers": None}}
        await world.admin.patch(raw(PODS), pod["metadata"]["name"], body, namespace=objects.NAMESPACE)
    kind = world.server.state.registry.find(objects.RESOURCE, "v1", "resourceclaims")
    assert kind is not None
    store = world.server.state.store
    await until(lambda: not list(store.entries(kind.storage, objects.NAMESPACE)), controller, "no claim is left", 120)


async def _status(client: Client, name: str, phase: str) -> None:
    body = {"status": {"phase": phase}}
    await client.patch(raw(PODS), name, body, namespace=objects.NAMESPACE, subresource="status", kind=Patch.STRATEGIC)


async def _strangers(client: Client, counted: Conversion) -> dict[str, Counter[str]]:
    spec = {"nodeName": objects.node_name(0), "containers": [{"name": "main", "image": "busybox:1.37"}]}
    found = {}
    await client.create(raw(PODS), {"metadata": {"name": "other", "namespace": objects.NAMESPACE}, "spec": spec})
    found["creation"] = counted.take()
    body = {"metadata": {"annotations": {"example.com/seen": "yes"}}}
    await client.patch(raw(PODS), "other", body, namespace=objects.NAMESPACE)
    found["update"] = counted.take()
    await _status(client, "other", "Running")
    found["other status"] = counted.take()
    requests = [{"name": "nic", "exactly": {"deviceClassName": "nic.example.com"}}]
    claim = {"metadata": {"name": "nic", "namespace": objects.NAMESPACE}, "spec": {"devices": {"requests": requests}}}
    await client.create(raw(RESOURCE_CLAIMS), claim)
    return {**found, "claim": counted.take()}


def conversion_figures(found: Mapping[str, Counter[str]], gang: int) -> list[dict[str, Any]]:
    """A pod's life, the dearest status of any pod, and what is not ours: the dearer of a pod's and a claim's creation, an update."""
    life = found["life"]
    status = max(found["status"], found["other status"], key=lambda each: each.total())
    made = max(found["creation"], found["claim"], key=lambda each: each.total())
    shown: dict[str, dict[str, float]] = {
        "life": per_pod(life, gang),
        "status": dict(status),
        "creation": dict(made),
        "update": dict(found["update"]),
    }
    names = {
        "life": "conversions-per-pod",
        "status": "conversions-per-status",
        "creation": "conversions-per-other-creation",
        "update": "conversions-per-other-update",
    }
    return [
        {
            "figure": f"protocol/{names[what]}",
            "value": round(sum(by_kind.values()), 3),
            "unit": "objects",
            "bar": BARS[what],
            "by_kind": by_kind,
        }
        for what, by_kind in shown.items()
    ]
