"""Kubernetes 1.36's own controllers that the sandbox lacks: Deployments to ReplicaSets, ReplicaSets and StatefulSets to pods.

A ReplicaSet makes all pods at once. A StatefulSet with `podManagementPolicy: Parallel` too; with OrderedReady (the default) it makes
one, and the next when that one is ready, so that here only the first is made. Jobs are made by the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.shapes.base import Controller, Lookup, Obj, child, ending, pod


def replica_sets(deployment: Obj, lookup: Lookup) -> Iterator[Obj]:
    spec, name = deployment["spec"], deployment["metadata"]["name"]
    hashed = f"{ending(repr(spec['template']))}6f4d"
    template = spec["template"]
    labels = {**(template["metadata"].get("labels") or {}), "pod-template-hash": hashed}
    template = {**template, "metadata": {**template["metadata"], "labels": labels}}
    matched = {**spec["selector"]["matchLabels"], "pod-template-hash": hashed}
    made = {"replicas": spec.get("replicas", 1), "selector": {"matchLabels": matched}, "template": template}
    yield child(deployment, "apps/v1", "ReplicaSet", f"{name}-{hashed}", made, labels=labels)


def pods_of_replica_set(replica_set: Obj, lookup: Lookup) -> Iterator[Obj]:
    spec = replica_set["spec"]
    for _ in range(spec.get("replicas", 1)):
        yield pod(replica_set, spec["template"], generate_name=f"{replica_set['metadata']['name']}-")


def pods_of_stateful_set(stateful_set: Obj, lookup: Lookup) -> Iterator[Obj]:
    spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
    start = (spec.get("ordinals") or {}).get("start", 0)
    parallel = spec.get("podManagementPolicy") == "Parallel"
    for number in range(start, start + min(spec.get("replicas", 1), 1_000 if parallel else 1)):
        labels = {
            "apps.kubernetes.io/pod-index": str(number),
            "statefulset.kubernetes.io/pod-name": f"{name}-{number}",
            "controller-revision-hash": f"{name}-{ending(name)}",
        }
        made = pod(stateful_set, spec["template"], name=f"{name}-{number}", labels=labels)
        made["spec"] |= {"hostname": f"{name}-{number}", "subdomain": spec.get("serviceName", "")}
        yield made


_SOURCE = "https://github.com/kubernetes/kubernetes/blob/v1.36.2/pkg/controller"
DEPLOYMENTS = Controller(
    name="Deployment",
    version="1.36.2",
    sources=(f"{_SOURCE}/deployment/sync.go",),
    account="system:serviceaccount:kube-system:deployment-controller",
    shapes={"Deployment": replica_sets},
)
REPLICA_SETS = Controller(
    name="ReplicaSet",
    version="1.36.2",
    sources=(f"{_SOURCE}/replicaset/replica_set.go",),
    account="system:serviceaccount:kube-system:replicaset-controller",
    shapes={"ReplicaSet": pods_of_replica_set},
)
STATEFUL_SETS = Controller(
    name="StatefulSet",
    version="1.36.2",
    sources=(f"{_SOURCE}/statefulset/stateful_set_utils.go",),
    account="system:serviceaccount:kube-system:statefulset-controller",
    shapes={"StatefulSet": pods_of_stateful_set},
)
