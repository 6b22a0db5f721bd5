"""Volumes as far as they decide where a pod may run: PersistentVolumeClaim, PersistentVolume, StorageClass.

Other fields are dropped on decoding, see `objects`.
"""

# ruff: noqa: RUF012 - msgspec copies empty defaults itself; they are not shared

import msgspec

from fairlead.kube.core import NodeSelector, ResourceList
from fairlead.kube.objects import LabelSelector, Object, Struct


class VolumeResources(Struct, frozen=True, kw_only=True):
    requests: ResourceList = {}


class PersistentVolumeClaimSpec(Struct, frozen=True, kw_only=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str | None = None
    selector: LabelSelector | None = None
    resources: VolumeResources = VolumeResources()


class PersistentVolumeClaimStatus(Struct, frozen=True, kw_only=True):
    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class ClaimReference(Struct, frozen=True, kw_only=True):
    namespace: str = ""
    name: str = ""


class VolumeNodeAffinity(Struct, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct, frozen=True, kw_only=True):
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str | None = None
    capacity: ResourceList = {}


class PersistentVolume(Object, frozen=True, kw_only=True):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologyLabel(Struct, frozen=True, kw_only=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Struct, frozen=True, kw_only=True):
    match_label_expressions: tuple[TopologyLabel, ...] = ()


class StorageClass(Object, frozen=True, kw_only=True):
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = msgspec.field(default=())
