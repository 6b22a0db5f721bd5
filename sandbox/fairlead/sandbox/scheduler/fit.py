"""Whether a pod fits a node, apart from devices and other pods: kube-scheduler's default filters in their order, and its score.

A refusal has kube-scheduler's words. Covers nodes, taints, node affinity (with matchFields), resources and volumes; other pods are
`neighbours`'. Pods that are nominated to a node count there for pods of the same or a lower priority. No volume is bound, provisioned or
attached: an unbound claim whose class waits for the first consumer stays unbound. Not modelled: host ports, preemption, limits of
volumes a node, storage capacity. Source: kubernetes pkg/scheduler/framework/plugins (also volumerestrictions, volumebinding, volumezone),
framework/runtime/framework.go (RunFilterPluginsWithNominatedPods), 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead.sandbox.node_fit import (
    add,
    amounts,
    matches_affinity,
    matches_selector,
    matches_term,
    tolerates,
    untolerated,
)
from fairlead.sandbox.objects import (
    Obj,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    node_name_of,
    spec_of,
    status_of,
    uid_of,
)

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
            spec_of(info.node).get("taints") or (), spec_of(pod).get("tolerations") or (), effects=("PreferNoSchedule",)
        )
    )
    return sum(parts) / len(parts) + preferred - 100 * tainted


UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"
NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
ZONE_CONFLICT: Final = "node(s) had no available volume zone"
IN_USE: Final = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
ZONE_LABELS: Final = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Lookups: PersistentVolumeClaims by `namespace/name`, the others by name."""

    claim: Callable[[str], Obj | None]
    volume: Callable[[str], Obj | None]
    volumes: Callable[[], Iterable[Obj]]
    storage_class: Callable[[str], Obj | None]


def claim_names(pod: Obj) -> Iterator[tuple[str, bool]]:
    """Names of the PersistentVolumeClaims that the pod uses, and whether each is of a generic ephemeral volume."""
    for volume in spec_of(pod).get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield str(volume["persistentVolumeClaim"]["claimName"]), False
        elif volume.get("ephemeral"):
            yield f"{name_of(pod)}-{volume['name']}", True


class Volumes:
    """The volumes of one pod. `refused`: why no node takes it."""

    def __init__(self, pod: Obj, storage: Storage, pods: Iterable[Obj]) -> None:
        self.refused: str | None = None
        self._storage = storage
        self._bound: list[Obj] = []
        self._unbound: list[tuple[Obj, Obj]] = []  # with its StorageClass
        namespace = namespace_of(pod)
        for name, ephemeral in claim_names(pod):
            found = storage.claim(f"{namespace}/{name}")
            self.refused = self.refused or self._look(name, found, ephemeral=ephemeral)
            if found is not None and "ReadWriteOncePod" in (spec_of(found).get("accessModes") or ()):
                users = (other for other in pods if namespace_of(other) == namespace)
                if any(name == used for other in users for used, _ in claim_names(other)):
                    self.refused = self.refused or IN_USE

    def _look(self, name: str, claim: Obj | None, *, ephemeral: bool) -> str | None:
        if claim is None and ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if status_of(claim).get("phase") == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{spec_of(claim).get("volumeName")}"'
        if is_deleting(claim):
            return f'persistentvolumeclaim "{name}" is being deleted'
        volume = spec_of(claim).get("volumeName")
        if volume:
            found = self._storage.volume(str(volume))
            if found is None:
                return f'persistentvolume "{volume}" not found'
            self._bound.append(found)
            return None
        kind = self._storage.storage_class(str(spec_of(claim).get("storageClassName") or ""))
        if kind is None or kind.get("volumeBindingMode") != "WaitForFirstConsumer":
            return UNBOUND_IMMEDIATE
        self._unbound.append((claim, kind))
        return None

    def refusal(self, node: Obj) -> str | None:
        for volume in self._bound:
            wanted = (spec_of(volume).get("nodeAffinity") or {}).get("required")
            if wanted is not None and not matches_selector(wanted, node):
                return NODE_CONFLICT
        if not all(self._may_bind(claim, kind, node) for claim, kind in self._unbound):
            return BIND_CONFLICT
        if not all(_in_zone(volume, node) for volume in self._bound):
            return ZONE_CONFLICT
        return None

    def _may_bind(self, claim: Obj, kind: Obj, node: Obj) -> bool:
        """To a volume that is there, or to one that is provisioned."""
        for volume in self._storage.volumes():
            spec = spec_of(volume)
            free = spec.get("claimRef") is None and spec.get("storageClassName") == name_of(kind)
            modes = set(spec_of(claim).get("accessModes") or ()) <= set(spec.get("accessModes") or ())
            wanted = (spec.get("nodeAffinity") or {}).get("required")
            if free and modes and (wanted is None or matches_selector(wanted, node)):
                return True
        if kind.get("provisioner") == NO_PROVISIONER:
            return False
        terms = kind.get("allowedTopologies") or ()
        return not terms or any(_allowed(term, labels_of(node)) for term in terms)


def _allowed(term: Mapping[str, Any], of: Mapping[str, str]) -> bool:
    """A TopologySelectorTerm: all of its keys have one of their values."""
    return all(of.get(each["key"]) in (each.get("values") or ()) for each in term.get("matchLabelExpressions") or ())


def _in_zone(volume: Obj, node: Obj) -> bool:
    """Labels of the volume that name zones, joined by `__` where there are several. A node without any such label takes all."""
    here = labels_of(node)
    if not any(key in here for key in ZONE_LABELS):
        return True
    return all(here.get(key) in value.split("__") for key, value in labels_of(volume).items() if key in ZONE_LABELS)
