"""Whether a pod fits a node, apart from devices: kube-scheduler's default filters in their order, and its score.

A refusal has kube-scheduler's words. Covers nodes, taints, node affinity (with matchFields) and resources; volumes are `volumes`',
other pods `neighbours`'. Not host ports and preemption. Source: kubernetes pkg/scheduler/framework/plugins, 1.36, and
pkg/scheduler/framework/runtime/framework.go (RunFilterPluginsWithNominatedPods): pods that are nominated to a node count there
for pods of the same or a lower priority.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from fairlead.sandbox.node_matching import matches_affinity, matches_term, tolerates, untolerated
from fairlead.sandbox.objects import Obj, name_of, node_name_of, spec_of, status_of, uid_of
from fairlead.sandbox.resource_amounts import add, amounts

# What a pod without requests is taken to use when nodes are scored (not when they are filtered).
NONZERO: Final = {"cpu": 100, "memory": 200 * 1024 * 1024}

UNSCHEDULABLE: Final = "node(s) were unschedulable"
WRONG_NAME: Final = "node(s) didn't match the requested node name"
TAINTED: Final = "node(s) had untolerated taint(s)"
NO_AFFINITY: Final = "node(s) didn't match Pod's node affinity/selector"
TOO_MANY_PODS: Final = "Too many pods"


@dataclass(kw_only=True)
class NodeInfo:
    """A node and the sum of its pods' requests."""

    node: Obj
    requested: dict[str, int] = field(default_factory=dict)
    nonzero: dict[str, int] = field(default_factory=dict)  # the same, with NONZERO where a pod says nothing
    pods: int = 0
    objects: dict[str, Obj] = field(default_factory=dict)  # by UID: the pods themselves
    nominated: dict[str, tuple[int, Mapping[str, int]]] = field(default_factory=dict)  # by UID: priority, requests

    @property
    def name(self) -> str:
        return name_of(self.node)

    def add(self, requests: Mapping[str, int], sign: int = 1) -> None:
        self.pods += sign
        add(self.requested, {resource: sign * value for resource, value in requests.items()})
        add(self.nonzero, {resource: sign * (requests.get(resource) or least) for resource, least in NONZERO.items()})


def refusals(pod: Obj, requests: Mapping[str, int], info: NodeInfo) -> list[str]:
    """Why the pod does not fit the node: the reasons of the first filter that refuses, empty when all accept."""
    spec = spec_of(info.node)
    tolerations = spec_of(pod).get("tolerations") or ()
    if spec.get("unschedulable") and not any(
        tolerates(each, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}) for each in tolerations
    ):
        return [UNSCHEDULABLE]
    wanted_name = node_name_of(pod)
    if wanted_name and wanted_name != info.name:
        return [WRONG_NAME]
    if any(untolerated(spec.get("taints") or (), tolerations)):
        return [TAINTED]
    if not matches_affinity(pod, info.node):
        return [NO_AFFINITY]
    return list(_insufficient(requests, info, list(_nominated_before(pod, info))))


def _nominated_before(pod: Obj, info: NodeInfo) -> Iterator[Mapping[str, int]]:
    """Requests of other pods for which room on the node is kept from this one."""
    priority = int(spec_of(pod).get("priority") or 0)
    for uid, (theirs, requests) in info.nominated.items():
        if uid != uid_of(pod) and uid not in info.objects and theirs >= priority:
            yield requests


def _insufficient(
    requests: Mapping[str, int], info: NodeInfo, nominated: Iterable[Mapping[str, int]] = ()
) -> Iterator[str]:
    allocatable = amounts(status_of(info.node).get("allocatable") or {})
    kept = list(nominated)
    if info.pods + len(kept) + 1 > allocatable.get("pods", 0):
        yield TOO_MANY_PODS
    for resource, wanted in sorted(requests.items()):
        used = info.requested.get(resource, 0) + sum(each.get(resource, 0) for each in kept)
        free = allocatable.get(resource, 0) - used
        if wanted > 0 and wanted > free:
            yield f"Insufficient {resource}"


def score(pod: Obj, requests: Mapping[str, int], info: NodeInfo) -> float:
    """0 to 100 for free cpu and memory (least allocated), plus the weights of the pod's preferences."""
    allocatable = amounts(status_of(info.node).get("allocatable") or {})
    parts = []
    for resource, least in NONZERO.items():
        capacity = allocatable.get(resource, 0)
        used = info.nonzero.get(resource, 0) + (requests.get(resource) or least)
        parts.append(max(0, capacity - used) * 100 / capacity if capacity else 0.0)
    affinity = (spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}
    preferred = sum(
        int(each.get("weight", 0))
        for each in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        if matches_term(each.get("preference") or {}, info.node)
    )
    tainted = sum(
        1
        for _ in untolerated(
            spec_of(info.node).get("taints") or (),
            spec_of(pod).get("tolerations") or (),
            effects=("PreferNoSchedule",),
        )
    )
    return sum(parts) / len(parts) + preferred - 100 * tainted
