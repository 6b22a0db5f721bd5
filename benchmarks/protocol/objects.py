"""The cluster's objects for the protocol benchmark, as an HGX H100 cluster has them: nodes, slices, owners and pods.

Nodes and slices are put into the apiserver's store; nobody's cost is measured while that happens. Slices are what the driver
publishes. Ten thousand nodes of MIG placements are 2.6 GB of JSON: those slices share their devices and are encoded when they
are read.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.allocator import NODE, _slices
from fairlead.api import names
from fairlead.sandbox.apiserver.assembly import put
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.store import Stored
from fairlead.sandbox.objects import Obj

GPUS = 8
NAMESPACE = "default"
RESOURCE = "resource.k8s.io"
ROOM = {"cpu": "192", "memory": "2Ti", "pods": "110"}


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def add_nodes(state: State, count: int, *, mig: bool = False) -> None:
    """Nodes with eight GPUs each; `mig`: every placement of every profile is published, too."""
    status = {"capacity": ROOM, "allocatable": ROOM, "conditions": [{"type": "Ready", "status": "True"}]}
    for number in range(count):
        name = node_name(number)
        labels = {"kubernetes.io/hostname": name, "rack": f"rack-{number // 16}"}
        put(state, "", "v1", "nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
    bodies = _slices(partitioned=mig)
    if mig:
        _put_shared(state, bodies, count)
        return
    text = json.dumps(bodies)
    for number in range(count):
        name = node_name(number)
        for body in json.loads(text.replace(NODE, name).replace("GPU-", f"GPU-{number:05d}-")):
            put(state, RESOURCE, "v1", "resourceslices", body)


class _Shared(Stored):
    """A slice that differs from the others of its kind in its node's name only: encoded anew for each read."""

    __slots__ = ("_node", "_text")

    def __init__(self, key: tuple[str, str], obj: Obj, revision: int, text: bytes, node: bytes) -> None:
        super().__init__(key, obj, revision)
        self._text = text
        self._node = node

    @property
    def body(self) -> bytes:
        return self._text.replace(NODE.encode(), self._node)


def _put_shared(state: State, bodies: list[Obj], count: int) -> None:
    kind = state.registry.find(RESOURCE, "v1", "resourceslices")
    assert kind is not None
    state.store.revision += 1
    table = state.store._tables[kind.storage]
    for body in bodies:
        name = body["metadata"]["name"]
        body["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": str(state.store.revision)}
        text = json.dumps(body, separators=(",", ":")).encode()
        for number in range(count):
            node = node_name(number)
            key = ("", name.replace(NODE, node))
            table.objects[key] = _Shared(key, body, state.store.revision, text, node.encode())
    table.keys = sorted(table.objects)


def template(name: str, gpus: int = 1) -> Obj:
    return {
        "apiVersion": f"{RESOURCE}/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": claim_spec(gpus)},
    }


def claim_spec(gpus: int = 1) -> Obj:
    exactly = {"deviceClassName": names.GPU_CLASS, "allocationMode": "ExactCount", "count": gpus}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def pod_spec(*, gpus: int = 1, template: str = "", claim: str = "", restarts: str = "Never") -> Obj:
    use = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    requests = {"cpu": str(8 * gpus), "memory": f"{64 * gpus}Gi"}
    resources = {"claims": [{"name": "gpu"}], "requests": requests, "limits": requests}
    return {
        "restartPolicy": restarts,
        "resourceClaims": [{"name": "gpu", **use}],
        "containers": [{"name": "main", "image": "busybox:1.37", "resources": resources}],
    }


def replica_set(name: str, replicas: int, spec: Obj) -> Obj:
    """The sandbox's controllers leave this namespace alone: `pod_of` makes its pods."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {**spec, "restartPolicy": "Always"}},
        },
    }


def gang_job(name: str, size: int, spec: Obj) -> Obj:
    """A Job whose pods this benchmark makes in its controller's place (`managedBy`)."""
    annotations = {names.GANG: name, names.GANG_SIZE: str(size)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "managedBy": "example.com/benchmark",
            "parallelism": size,
            "completions": size,
            "completionMode": "Indexed",
            "backoffLimitPerIndex": 3,
            "template": {"metadata": {"annotations": annotations}, "spec": spec},
        },
    }


def pod_of(owner: Obj, number: int) -> Obj:
    """A pod as the owner's controller posts it: named by the apiserver, with a controller ownerReference."""
    made, meta = owner["spec"]["template"], owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: dict[str, Any] = {"namespace": NAMESPACE, "ownerReferences": [reference]}
    annotations = dict(made["metadata"].get("annotations") or {})
    labels = dict(made["metadata"].get("labels") or {})
    prefix = f"{meta['name']}-"
    if owner["kind"] == "Job":
        annotations["batch.kubernetes.io/job-completion-index"] = str(number)
        labels |= {
            "batch.kubernetes.io/job-name": meta["name"],
            "batch.kubernetes.io/job-completion-index": str(number),
        }
        prefix = f"{meta['name']}-{number}-"
    metadata |= {"generateName": prefix, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}
