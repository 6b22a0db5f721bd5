"""Where a pod may run because of its volumes, as node selectors; or why it cannot run yet.

A bound claim: where its PersistentVolume is (node affinity and zone labels). One that waits for its first pod: where a free volume
of its class is, or where its StorageClass may make one. A claim that is missing, being deleted, lost or not bound at once is
a reason to wait: kube-scheduler would refuse the pod on every node. Not known here: storage capacity, how many volumes a node
attaches, which of several free volumes a claim gets. Pure.
Source: kube-scheduler's volumebinding, volumezone and volumerestrictions, 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from fairlead.controller.gangs.membership.members import ANYWHERE, GangProblem, VolumeNeeds
from fairlead.engine.types.pods import milli
from fairlead.engine.types.reasons import Code
from fairlead.kube import core, labels, storage
from fairlead.kube.labels import SelectorError

NO_PROVISIONER = "kubernetes.io/no-provisioner"
ZONE_LABELS = (
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
TERMS_MAX = 256  # of one selector: more free volumes than that are taken to be everywhere
NOWHERE = core.NodeSelector()


class StorageLookup(Protocol):
    """The objects that volumes refer to. `knows_volumes` False: they cannot be read, and nothing is known of them."""

    @property
    def knows_volumes(self) -> bool: ...
    def volume_claim(self, namespace: str, name: str) -> storage.PersistentVolumeClaim | None: ...
    def volume(self, name: str) -> storage.PersistentVolume | None: ...
    def volumes_of_class(self, name: str) -> Iterable[storage.PersistentVolume]: ...
    def storage_class(self, name: str) -> storage.StorageClass | None: ...
    def pods_of_volume_claim(self, namespace: str, name: str) -> Iterable[core.Pod]: ...


def claim_names(pod: core.Pod) -> Iterator[str]:
    """Names of the PersistentVolumeClaims that the pod uses; a generic ephemeral volume's has the pod's name in it."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}"


def volume_needs(pod: core.Pod, lookup: StorageLookup) -> VolumeNeeds:
    """What volumes ask of the node of a pod that is not bound yet."""
    names = tuple(dict.fromkeys(claim_names(pod)))
    if not names or not lookup.knows_volumes:
        return ANYWHERE
    where: list[core.NodeSelector] = []
    for name in names:
        claim = lookup.volume_claim(pod.metadata.namespace, name)
        found = _problem(pod, name, claim, lookup)
        if found is not None:
            return VolumeNeeds(problem=GangProblem(code=Code.VOLUME, message=found))
        assert claim is not None, "a missing claim is a problem"
        where += _where(claim, lookup)
    return VolumeNeeds(where=tuple(dict.fromkeys(where)))


def _problem(
    pod: core.Pod, name: str, claim: storage.PersistentVolumeClaim | None, lookup: StorageLookup
) -> str | None:
    text = f"PersistentVolumeClaim {pod.metadata.namespace}/{name}, which pod {pod.metadata.name} uses,"
    if claim is None:
        return f"{text} does not exist; create it"
    if claim.metadata.deletion_timestamp:
        return f"{text} is being deleted; create it again once it is gone"
    bound = claim.spec.volume_name
    if claim.status.phase == "Lost" or (bound and lookup.volume(bound) is None):
        return f"{text} is bound to PersistentVolume {bound}, which does not exist; restore the volume or create the claim again"
    if "ReadWriteOncePod" in claim.spec.access_modes:
        users = sorted(
            each.metadata.name
            for each in lookup.pods_of_volume_claim(pod.metadata.namespace, name)
            if each.metadata.uid != pod.metadata.uid
        )
        if users:
            return f"{text} is for one pod (ReadWriteOncePod), and pod {users[0]} uses it; it starts when that pod has ended"
    if bound:
        return None
    kind = lookup.storage_class(claim.spec.storage_class_name or "")
    if kind is None:
        wanted = claim.spec.storage_class_name
        how = f"its StorageClass {wanted} does not exist" if wanted else "it names no StorageClass"
        return (
            f"{text} is not bound, and {how}; create a PersistentVolume that it can be bound to, or name another class"
        )
    if kind.volume_binding_mode != "WaitForFirstConsumer":
        return f"{text} is not bound yet; its StorageClass {kind.metadata.name} binds at once: see the claim's events for what keeps it"
    return None


def _where(claim: storage.PersistentVolumeClaim, lookup: StorageLookup) -> Iterator[core.NodeSelector]:
    if claim.spec.volume_name:
        volume = lookup.volume(claim.spec.volume_name)
        if volume is not None:
            yield from _of_volume(volume)
        return
    kind = lookup.storage_class(claim.spec.storage_class_name or "")
    if kind is None:
        return
    provisions = kind.provisioner != NO_PROVISIONER
    if provisions and not kind.allowed_topologies:
        return
    terms = [_topology_term(each) for each in kind.allowed_topologies] if provisions else []
    for volume in lookup.volumes_of_class(kind.metadata.name):
        if not _serves(volume, claim):
            continue
        required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
        if required is None:
            return  # a free volume that every node reaches
        terms += required.node_selector_terms
    if len(terms) <= TERMS_MAX:
        yield core.NodeSelector(node_selector_terms=tuple(dict.fromkeys(terms))) if terms else NOWHERE


def _of_volume(volume: storage.PersistentVolume) -> Iterator[core.NodeSelector]:
    if volume.spec.node_affinity is not None and volume.spec.node_affinity.required is not None:
        yield volume.spec.node_affinity.required
    zones = [(key, volume.metadata.labels[key]) for key in ZONE_LABELS if key in volume.metadata.labels]
    if zones:
        rules = [
            core.NodeSelectorRequirement(key=key, operator="In", values=tuple(text.split("__"))) for key, text in zones
        ]
        # A node without any such label is not asked for one.
        none = tuple(core.NodeSelectorRequirement(key=key, operator="DoesNotExist") for key in ZONE_LABELS)
        terms = (core.NodeSelectorTerm(match_expressions=tuple(rules)), core.NodeSelectorTerm(match_expressions=none))
        yield core.NodeSelector(node_selector_terms=terms)


def _topology_term(term: storage.TopologySelectorTerm) -> core.NodeSelectorTerm:
    rules = (
        core.NodeSelectorRequirement(key=each.key, operator="In", values=each.values)
        for each in term.match_label_expressions
    )
    return core.NodeSelectorTerm(match_expressions=tuple(rules))


def _serves(volume: storage.PersistentVolume, claim: storage.PersistentVolumeClaim) -> bool:
    """Whether a volume is free for the claim: of its class (the caller's to know), mode and size, and selected by it."""
    reference, wanted = volume.spec.claim_ref, claim.spec
    if reference is not None and (reference.namespace, reference.name) != (
        claim.metadata.namespace,
        claim.metadata.name,
    ):
        return False
    if not set(wanted.access_modes) <= set(volume.spec.access_modes):
        return False
    if (wanted.volume_mode or "Filesystem") != (volume.spec.volume_mode or "Filesystem"):
        return False
    if milli(wanted.resources.requests.get("storage", 0)) > milli(volume.spec.capacity.get("storage", 0)):
        return False
    try:
        return wanted.selector is None or labels.matches(wanted.selector, volume.metadata.labels)
    except SelectorError:
        return False
