"""Index keys of the informers, and which parts of an object a decision depends on. Pure functions of one object.

Owner references never cross namespaces, and tenants write them: so what an object says of its owner's UID is a key only together with
its own namespace (`in_namespace`).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from fairlead.api import foreign, names, withheld
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.evictions import past_evictions
from fairlead.controller.gangs.membership import gangs
from fairlead.engine.inventory.nodes import notice_of
from fairlead.kube import batch, core, prepare_refusals, resource
from fairlead.kube.objects import Object, ObjectMeta
from fairlead.kube.resources import Raw


def without_devices(slice_: resource.ResourceSlice) -> resource.ResourceSlice:
    return structs.replace(slice_, spec=structs.replace(slice_.spec, devices=(), shared_counters=()))


def publishes_the_same(old: ObjectMeta, new: ObjectMeta) -> bool:
    """Whether two versions of a slice have the same devices, and withhold the same: a spec changes with its generation."""
    noted, notes = (meta.annotations.get(withheld.WITHHELD) for meta in (old, new))
    return 0 < old.generation == new.generation and noted == notes


def decision_fields(node: core.Node) -> tuple[object, ...]:
    """What of a node can change a decision; heartbeats do not."""
    return (node.metadata.labels, node.spec, node.status.allocatable, node.ready, notice_of(node))


def reads_the_same(old: core.Pod, new: core.Pod) -> bool:
    """Whether nothing changed of the pod that is read here, nor is its status written here with its resourceVersion.

    kube-scheduler writes `status.nominatedNodeName` of each pod before it binds it.
    """
    if old.spec != new.spec or old.status != new.status:
        return False
    if any(use.resource_claim_template_name for use in new.spec.resource_claims):
        return False
    return structs.replace(new.metadata, resource_version=old.metadata.resource_version) == old.metadata


def only_usage_changed(old: resource.ResourceClaim, new: resource.ResourceClaim) -> bool:
    """Whether nothing changed of the claim but how busy drivers say that its devices are: only idle gangs depend on that."""
    if old.status.allocation != new.status.allocation or old.status.reserved_for != new.status.reserved_for:
        return False
    if old.status.devices == new.status.devices:
        return False
    if prepare_refusals.refusal(old) != prepare_refusals.refusal(new):
        return False
    return structs.replace(new.metadata, resource_version=old.metadata.resource_version) == old.metadata


def may_be_member(pod: core.Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.has_gate(names.ADMISSION_GATE) or gangs.named_gang(pod) is not None


def in_namespace(namespace: str, uid: str) -> str:
    return f"{namespace}/{uid}"


def by_gang(pod: core.Pod) -> Iterator[str]:
    if may_be_member(pod):
        yield "/".join(gangs.gang_id(pod))


def by_job(pod: core.Pod) -> Iterator[str]:
    """Only for a pod that names a gang: a gang of one does not depend on what its Job still makes."""
    controller = pod.metadata.controller
    if controller is not None and controller.kind == "Job" and gangs.named_gang(pod) is not None:
        yield in_namespace(pod.metadata.namespace, controller.uid)


def by_gang_of_job(job: batch.Job) -> Iterator[str]:
    """The gang that the Job's pods name in their template."""
    template = job.spec.template.metadata
    name = foreign.gang_name(template.annotations, template.labels, None)
    if name is not None:
        yield f"{job.metadata.namespace}/{name}"


def by_uid(obj: Object) -> Iterator[str]:
    """By its own UID, which the apiserver chose."""
    yield obj.metadata.uid


def by_claim(pod: core.Pod) -> Iterator[str]:
    for name in claims.names_used(pod).values():
        yield f"{pod.metadata.namespace}/{name}"


SELECTED = "by label"


def by_namespace_selector(pod: core.Pod) -> Iterator[str]:
    """`SELECTED` for a pod with a term that selects namespaces by label."""
    affinity = pod.spec.affinity
    kinds = () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity)
    if any(term.namespace_selector is not None for kind in kinds if kind is not None for term in kind.required):
        yield SELECTED


def by_template(pod: core.Pod) -> Iterator[str]:
    for use in pod.spec.resource_claims:
        if use.resource_claim_template_name:
            yield f"{pod.metadata.namespace}/{use.resource_claim_template_name}"


def by_owner(claim: resource.ResourceClaim) -> Iterator[str]:
    controller = claim.metadata.controller
    if controller is not None:
        yield in_namespace(claim.metadata.namespace, controller.uid)


def by_evicted_owner(raw: Raw) -> Iterator[str]:
    """A Gang object by the owner of its evicted pod."""
    owner = past_evictions.owner_of(raw)
    if owner:
        yield in_namespace(raw["metadata"]["namespace"], owner)
