"""Manifests for another system's scheduler: a Job that Kueue would start, pods that a gang scheduler would place.

Without these changes such an object would wait for a system that may not run, although everything else in it is understood.

- A Job for Kueue may be created suspended, for Kueue to start. Where Kueue's API is not served it is unsuspended here, and its
  pods wait at our gate instead. A Job that is suspended later is left alone.
- Pods for Volcano or the coscheduling plugin name its scheduler, which places them as a gang. The controller does that, whether
  the other scheduler runs or not (a CRD outlives its scheduler, so that cannot be seen); kube-scheduler then binds them.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import foreign, names
from fairlead.api.owners import KUEUE, SCHEDULERS
from fairlead.webhook.objects.fields import Path, dotted, list_at, map_at, object_at, text_at
from fairlead.webhook.objects.pod_templates import WORKLOADS, suspended
from fairlead.webhook.objects.pods import annotations_and_labels
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.patch import PatchBuilder


def unsuspend(patch: PatchBuilder, group_resource: str, facts: Facts) -> Iterator[str]:
    """Unsuspend a new object that waits for Kueue where Kueue is absent. Yields a warning. Raises MalformedError."""
    metadata, field = map_at(patch.patched, "metadata"), WORKLOADS[group_resource].suspend
    if field is None or not suspended(group_resource, patch.patched):
        return
    if not any(names.KUEUE_QUEUE in found for found in annotations_and_labels(metadata)):
        return
    owners = list_at(metadata, "ownerReferences", "metadata")
    if any(owner.get("controller") and owner.get("kind") != "CronJob" for owner in owners):
        return  # its owner decides
    if facts.namespace_labels.get(names.QUEUE_SYSTEM) == KUEUE:
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

    In a namespace that says whose it is, a queue system's scheduler is refused instead (`ownership`).
    """
    where = dotted((*pod, "spec"))
    name = text_at(map_at(object_at(patch.patched, pod), "spec", dotted(pod)), "schedulerName", where)
    judged = names.QUEUE_SYSTEM in facts.namespace_labels and name in SCHEDULERS
    if name in foreign.SCHEDULERS and not judged:
        patch.set((*pod, "spec", "schedulerName"), names.DEFAULT_SCHEDULER)
        yield f"{where}.schedulerName: {name!r} became {names.DEFAULT_SCHEDULER}: Fairlead places the pods, and that binds them"
