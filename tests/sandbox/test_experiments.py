"""What a real 1.36.2 control plane was seen to do with allocations by another writer, repeated here.

Each test is one experiment on an unmodified scheduler and claim controller; the names are those of the notes they were
first written down in. Two nodes: `gpu` with eight GPUs, `cpu` without; where a second GPU node is needed, `two`.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube.client import Patch
from fairlead.kube.resources import EVENTS, PODS, RESOURCE_CLAIMS, VALIDATING_POLICY_BINDINGS, raw
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.objects import (
    allocation_of,
    condition,
    finalizers_of,
    node_name_of,
    phase_of,
    reserved_for,
    results_of,
    uid_of,
)
from tests.support.sandbox import FOREVER, View, cluster, pod, template, until

Obj = dict[str, Any]
Stock = tuple[Cluster, View]
GATE = [{"name": "example.com/wait"}]
NOW = "2026-11-21T00:00:00Z"
FOREIGN: Obj = {"apiGroup": "gang.example.com", "resource": "gangs", "name": "g", "uid": "g-1"}
_CLAIMS = raw(RESOURCE_CLAIMS)


@pytest.fixture
async def two() -> AsyncIterator[Stock]:
    """Two GPU nodes of 8 CPUs each; the scheduler may allocate."""
    nodes = (NodeSpec("left", "hgx-h100", cpu="8"), NodeSpec("right", "hgx-h100", cpu="8"))
    async with cluster(*nodes, run_programs=False) as made, made.client() as client:
        await client.delete(VALIDATING_POLICY_BINDINGS, "fairlead-allocation-fence")
        yield made, View(client)


def pin(node: str) -> Obj:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def wants_cpu(made: Obj, cpu: str) -> Obj:
    made["spec"]["containers"][0].setdefault("resources", {})["requests"] = {"cpu": cpu}
    return made


def named_claim(name: str = "shared") -> Obj:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": template("x")["spec"]["spec"],
    }


async def claim_of(view: View, name: str) -> Obj:
    """The claim that a pod's status names, once it does."""

    async def found() -> Obj | None:
        statuses = (await view.pod(name))["status"].get("resourceClaimStatuses") or ()
        return await view.get(RESOURCE_CLAIMS, statuses[0]["resourceClaimName"]) if statuses else None

    claim: Obj = await until(found)
    return claim


async def allocate(
    view: View,
    claim: Obj,
    node: str,
    *,
    device: str = "gpu-3",
    reserved: tuple[Obj, ...] = (),
    dated: bool = True,
    finalizer: bool = True,
) -> Obj:
    """Give a claim a device as a controller of its own would: finalizer, then status."""
    if finalizer:
        body = {"metadata": {"finalizers": [names.CLAIM_FINALIZER]}}
        claim = await view.client.patch(_CLAIMS, claim["metadata"]["name"], body, namespace="default", kind=Patch.MERGE)
    where = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation: Obj = {
        "devices": {"results": [{"request": "gpu", "driver": names.DRIVER, "pool": node, "device": device}]},
        "nodeSelector": {"nodeSelectorTerms": [where]},
    }
    if dated:
        allocation["allocationTimestamp"] = NOW
    status: Obj = {"allocation": allocation}
    if reserved:
        status["reservedFor"] = list(reserved)
    body = {"metadata": {"resourceVersion": claim["metadata"]["resourceVersion"]}, "status": status}
    name = claim["metadata"]["name"]
    return await view.client.patch(_CLAIMS, name, body, namespace="default", kind=Patch.MERGE, subresource="status")


def consumer(of: Obj) -> Obj:
    return {"resource": "pods", "name": of["metadata"]["name"], "uid": uid_of(of)}


async def ungate(view: View, name: str, *, to: str = "") -> None:
    patch: list[Obj] = [{"op": "remove", "path": "/spec/schedulingGates"}]
    if to:
        patch.insert(0, {"op": "add", "path": "/spec/affinity", "value": pin(to)})
    await view.client.patch(raw(PODS), name, patch, namespace="default", kind=Patch.JSON)


async def again(view: View, claim: Obj) -> Obj:
    found = await view.get(RESOURCE_CLAIMS, claim["metadata"]["name"])
    assert found is not None
    return found


async def warned(view: View, name: str, text: str) -> None:
    async def found() -> bool:
        events = [e for e in await view.all(EVENTS, "default") if e["involvedObject"]["name"] == name]
        return any(text in e["message"] for e in events)

    await until(found, what=f"an event on {name} says {text!r}")


async def gated(made: Cluster, view: View, *objects: Obj) -> tuple[Obj, Obj]:
    """Apply a gated pod named p, and what it needs; the pod and its claim."""
    await made.apply(objects)
    claim = await claim_of(view, "p")
    return await view.pod("p"), claim


async def test_e3_without_timestamp_and_reservation_the_pod_is_stuck_for_ever(stock: Stock) -> None:
    made, view = stock
    _, claim = await gated(made, view, template("one"), pod("p", claim="one", schedulingGates=GATE))
    await allocate(view, claim, "gpu", dated=False)
    await ungate(view, "p")
    await warned(view, "p", "field is immutable")
    assert phase_of(await view.pod("p")) == "Pending"
    assert not node_name_of(await view.pod("p"))


async def test_e7_a_foreign_consumer_protects_the_allocation_and_holds_the_claim(two: Stock) -> None:
    made, view = two
    filler = wants_cpu(pod("filler", command=FOREVER, affinity=pin("left")), "6")
    wanted = wants_cpu(pod("p", claim="one", command=FOREVER, schedulingGates=GATE), "4")
    subject, claim = await gated(made, view, template("one"), filler, wanted)
    await view.phase("filler", "Running")
    await allocate(view, claim, "left", reserved=(consumer(subject), FOREIGN))
    await ungate(view, "p")
    await warned(view, "p", "1 resourceclaim not available on the node")
    assert [each["pool"] for each in results_of(await again(view, claim))] == ["left"]
    await view.client.delete(PODS, "p", "default")

    async def only_foreign() -> Obj | None:
        found = await again(view, claim)
        return found if reserved_for(found) == (FOREIGN,) else None

    held = await until(only_foreign)
    assert allocation_of(held)
    free = {
        "status": {"reservedFor": None}
    }  # a patch without resourceVersion: the claim controller may write meanwhile
    await view.client.patch(_CLAIMS, held["metadata"]["name"], free, namespace="default", subresource="status")


async def test_e8_a_pinned_pod_keeps_its_allocation_and_runs_when_its_node_has_room(two: Stock) -> None:
    made, view = two
    filler = wants_cpu(pod("filler", command=FOREVER, affinity=pin("left")), "6")
    wanted = wants_cpu(pod("p", claim="one", command=FOREVER, schedulingGates=GATE), "4")
    subject, claim = await gated(made, view, template("one"), filler, wanted)
    await view.phase("filler", "Running")
    written = await allocate(view, claim, "left", reserved=(consumer(subject),))
    await ungate(view, "p", to="left")  # E20: the pin and the gate go in one patch

    async def refused() -> bool:
        scheduled = condition(await view.pod("p"), "PodScheduled")
        return scheduled is not None and "Insufficient cpu" in scheduled.get("message", "")

    await until(refused)
    assert (await again(view, claim))["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"]
    await view.client.delete(PODS, "filler", "default")
    assert node_name_of(await view.phase("p", "Running")) == "left"


@pytest.mark.parametrize("finalizer", [True, False])
async def test_e9_a_named_claim_is_freed_after_its_pod_only_with_the_finalizer(stock: Stock, finalizer: bool) -> None:
    made, view = stock
    wanted = pod("p", schedulingGates=GATE)
    wanted["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    wanted["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    (claim, _) = await made.apply([named_claim(), wanted])
    await allocate(view, claim, "gpu", reserved=(consumer(await view.pod("p")),), finalizer=finalizer)
    await ungate(view, "p")
    await view.phase("p", "Succeeded")

    async def unreserved() -> Obj | None:
        found = await again(view, claim)
        return found if not reserved_for(found) and names.CLAIM_FINALIZER not in finalizers_of(found) else None

    found = await until(unreserved)
    assert (allocation_of(found) is None) is finalizer
