"""Mode Placeholder: for each gated pod of a gang a pod of low priority that asks for the extended resource, for Karpenter and the like.

They are in Fairlead's own namespace, pending until nodes come, and are deleted when the gang is no demand any more: above all when it is
admitted. On a node they take no room from gangs: the engine does not count them, and kube-scheduler preempts them for any pod of a gang.
Names follow from the gang, its shapes and a number: a new leader makes nothing twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from fairlead.api import names
from fairlead.api.autoscaling import FlavorAutoscaling
from fairlead.controller.autoscaling.shapes import NoShapeError, pod_spec, shapes
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.kube import core

IMAGE = "registry.k8s.io/pause:3.10"
PODS_MAX = 512  # of one gang


def is_placeholder(pod: core.Pod) -> bool:
    """Whether it takes no room from gangs. Only of a negative priority, so that a pod which only has the label takes none either."""
    return pod.metadata.labels.get(names.PLACEHOLDER) == "true" and (pod.spec.priority or 0) < 0


def wanted(gang: Gang, scaling: FlavorAutoscaling, *, namespace: str) -> list[dict[str, Any]]:
    """Raises NoShapeError."""
    found = shapes(gang)
    specs = [pod_spec(each, scaling, image=IMAGE) for each in found for _ in range(each.count) if each.devices]
    if len(specs) > PODS_MAX:
        raise NoShapeError(
            f"gang {gang.namespace}/{gang.name} has {len(specs)} pods with devices, placeholders are made for {PODS_MAX} at most: use "
            "spec.autoscaling.mode Visible or ProvisioningRequest"
        )
    content = json.dumps([gang.namespace, gang.name, gang.gated[0].uid if gang.gated else "", specs], sort_keys=True)
    base = f"nodes-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{base}-{number}",
                "namespace": namespace,
                "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE, names.PLACEHOLDER: "true"},
                "annotations": {names.AWAITING_NODES: f"{gang.namespace}/{gang.name}"},
            },
            "spec": {"priorityClassName": names.PLACEHOLDER_PRIORITY, "restartPolicy": "Always", **spec},
        }
        for number, spec in enumerate(specs)
    ]


def existing(pods: Iterable[core.Pod], namespace: str) -> list[core.Pod]:
    """Our placeholders that are not being deleted."""
    return [
        pod
        for pod in pods
        if pod.metadata.namespace == namespace
        and pod.metadata.labels.get(names.PLACEHOLDER) == "true"
        and pod.metadata.labels.get(names.MANAGED_BY) == names.MANAGED_BY_VALUE
        and pod.metadata.deletion_timestamp is None
    ]
