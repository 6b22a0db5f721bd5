"""Kubernetes 1.36's own controller that the sandbox lacks: StatefulSets to pods.

With `podManagementPolicy: Parallel` all are made at once; with OrderedReady (the default) one, and the next when that one is ready, so
that here only the first is made. Pods of Jobs, and of Deployments by their ReplicaSets, are made by the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.shapes.base import Controller, Lookup, Obj, ending, pod


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
STATEFUL_SETS = Controller(
    name="StatefulSet",
    version="1.36.2",
    sources=(f"{_SOURCE}/statefulset/stateful_set_utils.go",),
    account="system:serviceaccount:kube-system:statefulset-controller",
    shapes={"StatefulSet": pods_of_stateful_set},
)
