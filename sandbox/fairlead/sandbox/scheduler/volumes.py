"""Filters that look at a pod's volumes: VolumeRestrictions, VolumeBinding and VolumeZone.

A refusal has kube-scheduler's words. Pure; nothing here binds or provisions a volume, and none is attached: an unbound claim whose
class waits for the first consumer stays unbound. Source: kubernetes pkg/scheduler/framework/plugins/{volumerestrictions,
volumebinding,volumezone}, 1.36. Not modelled: limits of volumes a node, storage capacity, capacity of static volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead.sandbox.node_matching import matches_selector
from fairlead.sandbox.objects import Obj, is_deleting, labels_of, name_of, namespace_of, spec_of, status_of

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
