"""The pods of a gang as an autoscaler's node templates know them: an extended resource in place of claims; and placeholder pods of that shape.

No autoscaler can read claims in a ProvisioningRequest's templates (kubernetes/autoscaler#10065), Karpenter none at all by default. So
a pod becomes its requests, node selector, required node affinity and tolerations, with `extended_resource: devices`. A claim that
several pods share counts with the first of them. What no such pod can say (affinity to other pods, volumes) is left out.

Mode Placeholder makes a pod of low priority for each gated pod of a gang, for Karpenter and the like. They are in Fairlead's own
namespace, pending until nodes come, and are deleted when the gang is no demand any more: above all when it is admitted. On a node they
take no room from gangs: the engine does not count them, and kube-scheduler preempts them for any pod of a gang. Names follow from the
gang, its shapes and a number: a new leader makes nothing twice.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.api.flavor import FlavorAutoscaling
from fairlead.cel.devices.requests import first_asked
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import PodClaim
from fairlead.engine.types.pods import PODS, PodNeeds
from fairlead.kube import core


class NoShapeError(Exception):
    """A gang cannot be told to the autoscaler; the message says why, and the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """So many pods alike. `devices`: of each."""

    needs: PodNeeds
    devices: int
    count: int


def shapes(gang: Gang) -> list[Shape]:
    """The shapes of its gated members, in a fixed order. Raises NoShapeError."""
    found: Counter[tuple[PodNeeds, int]] = Counter()
    counted: set[str] = set()
    for member in gang.gated:
        devices = 0
        for claim in member.claims:
            if claim.key not in counted:
                counted.add(claim.key)
                devices += _devices(gang, claim)
        found[PodNeeds.of(member.pod), devices] += 1
    return [
        Shape(needs=needs, devices=devices, count=count)
        for (needs, devices), count in sorted(found.items(), key=lambda each: (-each[0][1], each[0][0].requests))
    ]


def _devices(gang: Gang, claim: PodClaim) -> int:
    total = 0
    for request in claim.spec.devices.requests:
        asked = first_asked(request)
        if asked is None:
            continue
        if asked.allocation_mode == "All":
            raise NoShapeError(
                f"request {request.name} of gang {gang.namespace}/{gang.name} has allocationMode All, of which no autoscaler knows how many "
                "devices it is: write ExactCount with a count, or use spec.autoscaling.mode Visible"
            )
        total += asked.count
    return total


def pod_spec(shape: Shape, scaling: FlavorAutoscaling, *, image: str) -> dict[str, Any]:
    """A pod's spec with one container that asks for all of it."""
    requests = {name: _milli(value) for name, value in shape.needs.requests if name != PODS}
    limits: dict[str, str] = {}
    if shape.devices and scaling.extended_resource is not None:
        limits[scaling.extended_resource] = str(shape.devices)
    spec: dict[str, Any] = {
        "containers": [
            {
                "name": "main",
                "image": image,
                "resources": {"requests": requests | limits, "limits": limits},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "nodeSelector": dict(shape.needs.node_selector) | dict(scaling.node_selector),
        "tolerations": [_camel(each) for each in shape.needs.tolerations],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
    }
    if shape.needs.affinity is not None:
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _camel(shape.needs.affinity)}
        }
    return spec


def _milli(value: int) -> str:
    return str(value // 1000) if value % 1000 == 0 else f"{value}m"


def _camel(value: Any) -> Any:
    """A struct as the API has it, without what is empty."""
    return _without_empty(msgspec.to_builtins(value))


def _without_empty(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_empty(each) for key, each in value.items() if each not in (None, "", [], (), {})}
    if isinstance(value, list | tuple):
        return [_without_empty(each) for each in value]
    return value


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
