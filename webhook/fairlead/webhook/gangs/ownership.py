"""Two systems and one pod: refused where the namespace says whose it is, a warning where it does not (`api.owners`)."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import names, owners
from fairlead.webhook.objects.fields import Json, dotted, list_at, map_at, text_at
from fairlead.webhook.objects.pod_templates import WORKLOADS, suspended
from fairlead.webhook.objects.pods import annotations_and_labels
from fairlead.webhook.review.facts import Facts


def faults(pod: Json, namespace: str, facts: Facts) -> Iterator[str]:
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


def warnings(pod: Json, namespace: str, facts: Facts) -> Iterator[str]:
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
