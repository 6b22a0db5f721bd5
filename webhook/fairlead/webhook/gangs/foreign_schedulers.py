"""What a manifest expects another system to do that Fairlead does here: Kueue to start a Job, a gang scheduler to place pods.

Exists because such a manifest would wait for somebody who may never come, although everything else in it is understood.

- A Job for Kueue may be made suspended, for Kueue to start. Where Kueue's API is not served nobody would: it is started, and
  its pods wait at our gate instead. What is suspended later is left alone.
- Pods for Volcano or the coscheduling plugin name its scheduler, to be placed as a gang. The controller does that, whether
  they run here or not (a CRD outlives its scheduler, so that is not to be seen); the cluster's own scheduler then binds.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import foreign, names
from fairlead.webhook.objects.fields import list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pod_templates import SHAPES, Path, descend, dotted, suspended
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.patch import Draft


def start(draft: Draft, of: str, facts: Facts) -> Iterator[str]:
    """Takes the suspension off a new object that waits for a Kueue that is not there. Yields a warning. Raises MalformedError."""
    metadata, field = map_at(draft.object, "metadata"), SHAPES[of].suspend
    if field is None or not suspended(of, draft.object):
        return
    if not any(names.KUEUE_QUEUE in strings_at(metadata, kind, "metadata") for kind in ("labels", "annotations")):
        return
    owners = list_at(metadata, "ownerReferences", "metadata")
    if any(owner.get("controller") and owner.get("kind") != "CronJob" for owner in owners):
        return  # its owner decides
    if names.KUEUE_API in facts.serves:
        yield f"{dotted(field)}: true is Kueue's to lift, whose API is served; if Kueue no longer runs here, set it to false"
        return
    draft.set(field, False)
    yield (
        f"{dotted(field)}: true waits for Kueue, which this cluster does not have: set to false, the pods wait at "
        "Fairlead's gate; remove the field, or applying it again suspends them"
    )


def bind(draft: Draft, pod: Path = ()) -> Iterator[str]:
    """Leaves a pod, or the pods of a template, to the cluster's scheduler. Yields a warning. Raises MalformedError."""
    where = dotted((*pod, "spec"))
    name = text_at(map_at(descend(draft.object, pod), "spec", dotted(pod)), "schedulerName", where)
    if name in foreign.SCHEDULERS:
        draft.set((*pod, "spec", "schedulerName"), names.DEFAULT_SCHEDULER)
        yield f"{where}.schedulerName: {name!r} became {names.DEFAULT_SCHEDULER}: Fairlead places the pods, and that binds them"
