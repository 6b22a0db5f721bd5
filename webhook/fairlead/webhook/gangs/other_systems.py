"""Manifests for other queue systems and schedulers: what is changed so that they run here, and whose a pod is where two would have it.

- A Job for Kueue may be created suspended, for Kueue to start. Where Kueue's API is not served it is unsuspended here, and its
  pods wait at our gate instead. A Job that is suspended later is left alone.
- Pods for Volcano or the coscheduling plugin name its scheduler, which places them as a gang. The controller does that, whether
  the other scheduler runs or not (a CRD outlives its scheduler, so that cannot be seen); kube-scheduler then binds them.
- A pod that another system holds, too, is refused where the namespace says whose it is; where it does not, there is a warning (`api.owners`).
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import foreign, names, owners
from fairlead.webhook.objects.fields import Json, Path, dotted, list_at, map_at, object_at, text_at
from fairlead.webhook.objects.pod_templates import WORKLOADS, suspended
from fairlead.webhook.objects.pods import annotations_and_labels
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import PatchBuilder


def unsuspend(patch: PatchBuilder, group_resource: str, facts: Facts) -> Iterator[str]:
    """Unsuspend a new object that waits for Kueue where Kueue is absent. Yields a warning. Raises MalformedError."""
    metadata, field = map_at(patch.patched, "metadata"), WORKLOADS[group_resource].suspend
    if field is None or not suspended(group_resource, patch.patched):
        return
    if not any(names.KUEUE_QUEUE in found for found in annotations_and_labels(metadata)):
        return
    made_by = list_at(metadata, "ownerReferences", "metadata")
    if any(owner.get("controller") and owner.get("kind") != "CronJob" for owner in made_by):
        return  # its owner decides
    if facts.namespace_labels.get(names.QUEUE_SYSTEM) == owners.KUEUE:
        return
    if names.KUEUE_API in facts.served_apis:
        yield f"{dotted(field)}: true is for Kueue to set to false, whose API is served; if Kueue no longer runs here, set it to false"
        return
    patch.set(field, False)
    yield (
        f"{dotted(field)}: true waits for Kueue, which this cluster does not have: set to false, the pods wait at "
        "Fairlead's gate; remove the field, or applying it again suspends them"
    )


def use_default_scheduler(patch: PatchBuilder, facts: Facts, pod: Path = ()) -> Iterator[str]:
    """Let kube-scheduler bind a pod, or the pods of the template at that path. Yields a warning. Raises MalformedError.

    In a namespace that says whose it is, a queue system's scheduler is refused instead (`owner_faults`).
    """
    where = dotted((*pod, "spec"))
    name = text_at(map_at(object_at(patch.patched, pod), "spec", dotted(pod)), "schedulerName", where)
    judged = names.QUEUE_SYSTEM in facts.namespace_labels and name in owners.SCHEDULERS
    if name in foreign.SCHEDULERS and not judged:
        patch.set((*pod, "spec", "schedulerName"), names.DEFAULT_SCHEDULER)
        yield f"{where}.schedulerName: {name!r} became {names.DEFAULT_SCHEDULER}: Fairlead places the pods, and that binds them"


def owner_faults(pod: Json, namespace: str, facts: Facts) -> Iterator[str]:
    """Why a pod, or the pod of a template, that surely asks for managed devices is refused here. Raises MalformedError."""
    if names.QUEUE_SYSTEM not in facts.namespace_labels:
        return
    try:
        owned_by = owners.owner(facts.namespace_labels)
    except owners.UnknownSystemError as error:
        yield f"Namespace {namespace}: {error}"
        return
    found = next((each for each in _claimants(pod) if each.system != owned_by), None)
    if owners.refuses(owned_by, found):
        yield owners.decision(namespace, owned_by, found)


def owner_warnings(pod: Json, namespace: str, facts: Facts) -> Iterator[str]:
    """Where the namespace does not say whose it is, or is Kueue's. Raises MalformedError."""
    try:
        owned_by = owners.owner(facts.namespace_labels)
    except owners.UnknownSystemError:
        return
    found = next(_claimants(pod), None)
    if not owners.refuses(owned_by, found) and (said := owners.decision(namespace, owned_by, found)):
        yield said


def suspended_faults(group_resource: str, workload: Json, namespace: str, facts: Facts) -> Iterator[str]:
    """Why a new workload is refused that is suspended for Kueue in a namespace of Fairlead's, where Kueue's API is served. Raises MalformedError."""
    field = WORKLOADS[group_resource].suspend
    if field is None or not suspended(group_resource, workload):
        return
    labelled = any(names.KUEUE_QUEUE in found for found in annotations_and_labels(map_at(workload, "metadata")))
    of_fairlead = facts.namespace_labels.get(names.QUEUE_SYSTEM) == owners.FAIRLEAD
    if labelled and of_fairlead and names.KUEUE_API in facts.served_apis:
        yield (
            f"{dotted(field)}: true is for Kueue to set to false ({names.KUEUE_QUEUE}), but Namespace {namespace} is Fairlead's (label {names.QUEUE_SYSTEM}): "
            f"name the queue by {names.QUEUE} and remove the field, or write {names.QUEUE_SYSTEM}: {owners.KUEUE} on the namespace"
        )


def _claimants(pod: Json) -> Iterator[owners.Claimant]:
    spec = map_at(pod, "spec")
    gates = [str(gate.get("name")) for gate in list_at(spec, "schedulingGates", "spec")]
    _, labels = annotations_and_labels(map_at(pod, "metadata"))
    yield from owners.claimants(labels, gates, text_at(spec, "schedulerName", "spec"))
