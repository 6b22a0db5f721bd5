"""Affinity, anti-affinity, spread and volumes on the sandbox, whose scheduler has kube-scheduler's filters: every pin is taken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fairlead.engine.inventory.node_selector import pinned_node
from fairlead.kube import core, resources
from fairlead.kube.client import Patch
from fairlead.kube.informer import Change
from tests.controller.conftest import NAMESPACE, Bench

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
X = {"app": "x"}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOST, "labelSelector": {"matchLabels": X}},
        ]
    }
}
NEAR = {"podAffinity": APART["podAntiAffinity"]}
VOLUMES = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


async def other(bench: Bench, name: str, node: str, labels: dict[str, str], **spec: Any) -> None:
    """A pod that is none of ours runs on the node."""
    await bench.pod(name, gates=(), labels=labels, nodeSelector={HOST: node}, **spec)
    await bench.until(lambda: bench.bound([name]), f"{name} is bound")


def nodes(bench: Bench, pods: list[str]) -> list[str]:
    return sorted(pod.spec.node_name for name in pods if (pod := bench.get(name)) is not None)


async def test_members_that_repel_one_another_get_a_host_each(bench: Bench):
    await bench.template("one")
    async with bench.controller(gang_timeout_s=5.0):
        pods = await bench.gang("g", 2, template="one", labels=X, affinity=APART)
        await bench.until(lambda: bench.running(pods), "both run")
        assert nodes(bench, pods) == ["h1", "h2"]
        third = await bench.gang("late", 1, template="one", labels=X, affinity=APART)
        await bench.until(
            lambda: bench.status("late").get("reason") == "PodConstraints", "the next one says why it waits"
        )
        assert f"anti-affinity over {HOST} (2 nodes)" in bench.status("late")["message"]
        await bench.delete(pods[:1])
        await bench.until(lambda: bench.running(third), "it runs when one of them is gone")


async def test_a_gang_that_waits_for_a_neighbour_starts_when_it_is_there(bench: Bench):
    await bench.template("one")
    async with bench.controller(gang_timeout_s=5.0):
        pods = await bench.gang("g", 2, template="one", affinity=NEAR)
        await bench.until(lambda: bench.status("g").get("reason") == "PodConstraints", "it waits")
        assert bench.gated(pods)
        await other(bench, "friend", "h2", X)
        await bench.until(lambda: bench.running(pods), "it runs")
        assert nodes(bench, pods) == ["h2", "h2"]


def gone_or(holds: Callable[[list[str]], bool], bench: Bench, name: str) -> bool:
    return bench.get(name) is None or holds([name])


async def make(bench: Bench, kind: Any, body: dict[str, Any]) -> None:
    namespace = NAMESPACE if kind is resources.PERSISTENT_VOLUME_CLAIMS else None
    metadata = body["metadata"] | ({"namespace": namespace} if namespace else {})
    made = await bench.client.create(kind, {**body, "metadata": metadata})
    if "status" in body:
        change = {"metadata": {"uid": made["metadata"]["uid"]}, "status": body["status"]}
        await bench.client.patch(
            kind, metadata["name"], change, namespace=namespace, kind=Patch.MERGE, subresource="status"
        )


def claim(volume: str = "", storage_class: str = "") -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": volume,
        "storageClassName": storage_class,
    }
    phase = "Bound" if volume else "Pending"
    return {"metadata": {"name": "data"}, "spec": spec, "status": {"phase": phase}}


def volume(node: str) -> dict[str, Any]:
    rule = {"key": HOST, "operator": "In", "values": [node]}
    return {
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "d", "volumeHandle": "v"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
        },
    }


async def test_a_missing_claim_and_one_that_is_not_bound_yet_are_reasons(bench: Bench):
    await bench.template("one")
    async with bench.controller(gang_timeout_s=5.0):
        pods = await bench.gang("g", 1, template="one", volumes=VOLUMES)
        await bench.until(lambda: bench.status("g").get("reason") == "VolumeNotReady", "it waits for the claim")
        assert "PersistentVolumeClaim ml/data, which pod g-0 uses, does not exist" in bench.status("g")["message"]
        immediate = {"provisioner": "csi.example.com", "volumeBindingMode": "Immediate"}
        await make(bench, resources.STORAGE_CLASSES, {"metadata": {"name": "now"}, **immediate})
        await make(bench, resources.PERSISTENT_VOLUME_CLAIMS, claim(storage_class="now"))
        said = "is not bound yet; its StorageClass now binds at once"
        await bench.until(lambda: said in bench.status("g").get("message", ""), "it waits for the volume")
        assert bench.gated(pods)
        await make(bench, resources.PERSISTENT_VOLUMES, volume("h1"))
        kind = resources.PERSISTENT_VOLUME_CLAIMS
        await bench.client.patch(kind, "data", {"spec": {"volumeName": "pv"}}, namespace=NAMESPACE, kind=Patch.MERGE)
        await bench.until(lambda: bench.running(pods), "it runs")
        assert nodes(bench, pods) == ["h1"]


@pytest.mark.slow
async def test_a_node_that_kube_scheduler_refused_is_not_chosen_twice_in_a_row_nor_by_the_next_leader(bench: Bench):
    """What the engine does not know: here the volume, which its role does not let it read."""
    await bench.template("one")
    await make(bench, resources.PERSISTENT_VOLUMES, volume("h2"))
    await make(bench, resources.PERSISTENT_VOLUME_CLAIMS, claim("pv"))
    await forbid_volumes(bench)
    pins: list[str] = []

    def note(change: Change[core.Pod]) -> None:
        affinity = change.new.spec.affinity if change.new else None
        pin = pinned_node(affinity.node_affinity.required) if affinity and affinity.node_affinity else None
        if pin and change.old and change.old.spec.affinity is None:
            pins.append(pin)

    bench.pods.subscribe(note)
    async with bench.controller(gang_timeout_s=2.0):
        only: dict[str, Any] = {"nodeSelector": {HOST: "h1"}, "volumes": VOLUMES}
        for name in ("g-0", "g-1"):
            await bench.pod(name, template="one", gang="g", size=1, **only)
            await bench.until(partial(gone_or, bench.gated, bench, name), "it waits or is evicted")
            if name == "g-0":
                await bench.until(lambda: bench.get("g-0") is None, "its first pod is rolled back")
        await bench.until(lambda: bench.status("g").get("reason") == "NodesRefused", "the next one says why it waits")
        message = bench.status("g")["message"]
        assert "such as h1 (0/2 nodes are available" in message
        assert "not chosen again until" in message
        assert pins == ["h1"]
        for name in ("free-0", "free-1"):
            await bench.pod(name, template="one", gang="free", size=1, volumes=VOLUMES)
            await bench.until(partial(gone_or, bench.running, bench, name), "it runs or is evicted")
            if bench.running([name]):
                break
        assert nodes(bench, ["free-0", "free-1"]) == ["h2"]
        refused = bench.status("g")["message"]
        await bench.delete(["g-1"])
    await bench.pod("g-2", template="one", gang="g", size=1, **only)
    async with bench.controller(gang_timeout_s=2.0):
        said = refused.partition(" (")[0].rpartition("such as")[2]
        await bench.until(lambda: said in bench.status("g").get("message", "") and bench.gated(["g-2"]), "as before")


async def test_without_the_right_to_read_volumes_nothing_is_known_of_them(bench: Bench):
    """A role from before: no gang waits for a volume, and kube-scheduler judges it alone."""
    await bench.template("one")
    await forbid_volumes(bench)
    async with bench.controller(gang_timeout_s=60.0):
        await bench.pod("p", template="one", volumes=VOLUMES)
        await bench.until(lambda: not bench.gated(["p"]), "it is released")
        await bench.pod("q", template="one")
        await bench.until(lambda: bench.running(["q"]), "others run")


async def forbid_volumes(bench: Bench) -> None:
    """Before the controller starts."""
    role = await bench.client.get(resources.CLUSTER_ROLES, "fairlead-controller")
    rules = [rule for rule in role["rules"] if not _of_volumes(rule)]
    assert len(rules) < len(role["rules"])
    await bench.client.patch(resources.CLUSTER_ROLES, "fairlead-controller", {"rules": rules}, kind=Patch.MERGE)


def _of_volumes(rule: dict[str, Any]) -> bool:
    return bool({"persistentvolumeclaims", "storageclasses"} & set(rule.get("resources") or ()))
