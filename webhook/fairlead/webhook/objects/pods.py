"""What a raw pod, or the pod of a template, says: containers, gate, groups, owner, node affinity. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.api import claim_sources, names
from fairlead.api.claim_sources import ClaimSourcesError, Sources
from fairlead.webhook.objects.fields import Json, Path, list_at, map_at, object_at, strings_at, text_at

REQUIRED_NODE_AFFINITY: Path = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
START_CONTAINERS = ("initContainers", "containers")


def containers(
    spec: Json, path: str = "spec", lists: Sequence[str] = START_CONTAINERS
) -> Iterator[tuple[str, int, Json]]:
    """The list, index and container of each container of those lists. Raises MalformedError."""
    for list_name in lists:
        for index, container in enumerate(list_at(spec, list_name, path)):
            yield list_name, index, container


def gated(pod: Json) -> bool:
    """Whether the pod carries our scheduling gate. Raises MalformedError."""
    gates = list_at(map_at(pod, "spec"), "schedulingGates", "spec")
    return any(gate.get("name") == names.ADMISSION_GATE for gate in gates)


def owner_job(metadata: Json) -> str | None:
    """The name of the Job that controls a pod. Raises MalformedError."""
    owner = controller_of(metadata)
    if owner is None or owner.get("kind") != "Job":
        return None
    return text_at(owner, "name", "metadata.ownerReferences") or None


def controller_of(metadata: Json) -> Json | None:
    """The owner reference of the controller that made a pod; None for a bare pod. Raises MalformedError."""
    owners = list_at(metadata, "ownerReferences", "metadata")
    return next((owner for owner in owners if owner.get("controller") is True), None)


def recorded_sources(metadata: Json) -> Sources:
    """Where the pod's named claims come from, by its annotation; {} where it cannot be read. Raises MalformedError."""
    try:
        return claim_sources.read(strings_at(metadata, "annotations", "metadata"))
    except ClaimSourcesError:
        return {}


def annotations_and_labels(metadata: Json, path: str = "metadata") -> tuple[dict[str, str], dict[str, str]]:
    """Raises MalformedError."""
    return strings_at(metadata, "annotations", path), strings_at(metadata, "labels", path)


def native_pod_group(spec: Json) -> str | None:
    """The native PodGroup that the pod belongs to. Raises MalformedError."""
    return text_at(map_at(spec, "schedulingGroup", "spec"), "podGroupName", "spec.schedulingGroup") or None


def leader_worker_group(metadata: Json) -> str | None:
    """The group that a pod of a LeaderWorkerSet belongs to, `serve-0`, by its labels; None for other pods.

    A leader has no group label yet at its first review, but its name ends with the group's number. Raises MalformedError.
    """
    labels = strings_at(metadata, "labels", "metadata")
    name = labels.get("leaderworkerset.sigs.k8s.io/name")
    if name is None:
        return None
    group = labels.get("leaderworkerset.sigs.k8s.io/group-index")
    if group is None:
        group = text_at(metadata, "name", "metadata").removeprefix(f"{name}-")
    return f"{name}-{group}" if group.isdigit() else None


def required_node_terms(spec: Json) -> list[Json]:
    """The node selector terms of the required node affinity, of which one must hold. Raises MalformedError."""
    required = object_at({"spec": spec}, REQUIRED_NODE_AFFINITY)
    return list_at(required, "nodeSelectorTerms", ".".join(map(str, REQUIRED_NODE_AFFINITY)))
