"""The JSON patch that releases a pod: pinned to its node, and without the admission gate.

Source: `validation.go:5792`, `:9438`. While a pod is gated, its required node affinity may only get narrower; the number
of terms may not change; an empty term, which matches nothing, must stay empty; once the gate is gone nothing may change.
So pin and gate go in one patch. It tests uid and resourceVersion: any other write to the pod makes it fail. Pure.
The pin is `matchFields metadata.name`. Without it kube-scheduler could try the pod on another node, and its PostFilter
would then deallocate the claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.api import names
from fairlead.kube import core

Operations = list[dict[str, Any]]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class NotGatedError(ValueError):
    """The pod does not have the admission gate: it was released before."""


def release_patch(pod: core.Pod, node: str, notes: Mapping[str, str] | None = None) -> Operations:
    """Pin to `node` and remove the gate, if the pod is unchanged since it was read. Raises NotGatedError.

    `notes`: annotations that it gets.
    """
    return [*_tests(pod), *_pin(pod, node), *_annotate(pod, notes or {}), _ungate(pod)]


def ungate_patch(pod: core.Pod) -> Operations:
    """Only remove the gate: for a pod without a managed claim. Raises NotGatedError."""
    return [*_tests(pod), _ungate(pod)]


def _tests(pod: core.Pod) -> Operations:
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": pod.metadata.resource_version},
    ]


def _annotate(pod: core.Pod, notes: Mapping[str, str]) -> Operations:
    if notes and not pod.metadata.annotations:
        return [{"op": "add", "path": "/metadata/annotations", "value": dict(notes)}]
    return [
        {"op": "add", "path": f"/metadata/annotations/{key.replace('/', '~1')}", "value": value}
        for key, value in notes.items()
    ]


def _ungate(pod: core.Pod) -> dict[str, Any]:
    for index, gate in enumerate(pod.spec.scheduling_gates):
        if gate.name == names.ADMISSION_GATE:
            return {"op": "remove", "path": f"/spec/schedulingGates/{index}"}
    raise NotGatedError(f"pod {pod.metadata.key} has no gate {names.ADMISSION_GATE}")


def _pin(pod: core.Pod, node: str) -> Operations:
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [pin]}]}
    affinity = pod.spec.affinity
    if affinity is None:
        return [{"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {_REQUIRED: required}}}]
    if affinity.node_affinity is None:
        return [{"op": "add", "path": "/spec/affinity/nodeAffinity", "value": {_REQUIRED: required}}]
    path = f"/spec/affinity/nodeAffinity/{_REQUIRED}"
    if affinity.node_affinity.required is None:
        return [{"op": "add", "path": path, "value": required}]
    operations: Operations = []
    for index, term in enumerate(affinity.node_affinity.required.node_selector_terms):
        at = f"{path}/nodeSelectorTerms/{index}/matchFields"
        if term.match_fields:
            operations.append({"op": "add", "path": f"{at}/-", "value": pin})
        elif term.match_expressions:
            operations.append({"op": "add", "path": at, "value": [pin]})
    return operations


def pinned_node(pod: core.Pod) -> str | None:
    """The node that a released pod is pinned to: the one name that every non-empty term allows."""
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    found: set[str] = set()
    for term in required.node_selector_terms if required else ():
        if not term.match_fields and not term.match_expressions:
            continue
        pins = [
            f.values[0]
            for f in term.match_fields
            if f.key == "metadata.name" and f.operator == "In" and len(f.values) == 1
        ]
        if not pins:
            return None
        found.add(pins[-1])
    return found.pop() if len(found) == 1 else None
