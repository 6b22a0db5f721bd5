"""PersistentVolumeClaims, PersistentVolumes and StorageClasses, as far as they decide where pods may run.

Optional: where they may not be read (a role from before, or a cluster that does not grant it), nothing is known of volumes, no
gang waits for one, and a decision is never delayed. Kept is what `gangs.volumes` reads: no annotations, owners or finalizers,
labels of volumes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec import structs

from fairlead.controller.gangs.claims import volumes
from fairlead.controller.watch.optional import OptionalInformer, on_change
from fairlead.kube import core, resources, storage
from fairlead.kube.informer import Informer
from fairlead.kube.objects import Object

S = TypeVar("S", bound=Object)


def slim(found: S) -> S:
    """Also without `resourceVersion` read anew: nothing is written to these objects."""
    meta = found.metadata
    labels = meta.labels if isinstance(found, storage.PersistentVolume) else {}
    kept = structs.replace(meta, labels=labels, annotations={}, owner_references=(), finalizers=())
    return structs.replace(found, metadata=kept)


def without_plain_volumes(pod: core.Pod) -> core.Pod:
    """Every pod has a volume for its token; kept are those by which it names a PersistentVolumeClaim."""
    listed = pod.spec.volumes
    if not listed:
        return pod
    kept = tuple(each for each in listed if each.persistent_volume_claim is not None or each.ephemeral is not None)
    return pod if len(kept) == len(listed) else structs.replace(pod, spec=structs.replace(pod.spec, volumes=kept))


def by_volume_claim(pod: core.Pod) -> Iterable[str]:
    """Index of pods: the PersistentVolumeClaims that they use."""
    if not pod.spec.volumes or pod.finished:
        return ()
    return {f"{pod.metadata.namespace}/{name}" for name in volumes.claim_names(pod)}


class Volumes:
    """Implements `volumes.StorageLookup`. The three informers run with the others."""

    def __init__(self, pods: Informer[core.Pod]) -> None:
        """`pods` has the index "volume-claim"."""
        self._pods = pods
        self.claims: OptionalInformer[storage.PersistentVolumeClaim] = OptionalInformer(
            resources.TYPED_VOLUME_CLAIMS, ("v1",), required=False, transform=slim
        )
        self.volumes: OptionalInformer[storage.PersistentVolume] = OptionalInformer(
            resources.TYPED_VOLUMES, ("v1",), required=False, transform=slim
        )
        self.classes: OptionalInformer[storage.StorageClass] = OptionalInformer(
            resources.TYPED_STORAGE_CLASSES, ("v1",), required=False, transform=slim
        )
        self.informers: tuple[OptionalInformer[Any], ...] = (self.classes, self.volumes, self.claims)

    def subscribe(self, claim: Callable[[str], None], other: Callable[[], None]) -> None:
        """`claim`: one changed, by its key; `other`: a volume or a class did."""
        self.claims.subscribe(on_change(_content, claim))
        for informer in (self.classes, self.volumes):
            informer.subscribe(on_change(_content, lambda _: other()))

    @property
    def knows_volumes(self) -> bool:
        """Whether all three have been read: what is missing then does not exist."""
        return all(each.informer is not None and each.informer.resource_version for each in self.informers)

    def volume_claim(self, namespace: str, name: str) -> storage.PersistentVolumeClaim | None:
        return self.claims.get(f"{namespace}/{name}")

    def volume(self, name: str) -> storage.PersistentVolume | None:
        return self.volumes.get(name)

    def volumes_of_class(self, name: str) -> list[storage.PersistentVolume]:
        """In the order of their names."""
        if self.volumes.informer is None:
            return []
        found = [each for each in self.volumes.informer.all() if each.spec.storage_class_name == name]
        return sorted(found, key=lambda each: each.metadata.name)

    def storage_class(self, name: str) -> storage.StorageClass | None:
        return self.classes.get(name)

    def pods_of_volume_claim(self, namespace: str, name: str) -> Iterable[core.Pod]:
        """Those that have, or will have, a node: a gated one does not use it yet."""
        for pod in self._pods.by_index("volume-claim", f"{namespace}/{name}"):
            if pod.spec.node_name or not pod.spec.scheduling_gates:
                yield pod


def _content(found: Object) -> Object:
    return structs.replace(found, metadata=structs.replace(found.metadata, resource_version=""))
