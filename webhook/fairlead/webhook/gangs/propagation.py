"""What is written on a Job or its like reaches its pod templates: our annotations, then the words of other systems.

Exists because users write them on the Job, and its pods come to us by themselves.

- Annotations of ours and the queue label are copied; what both say must agree.
- A queue in another system's words reaches the templates as it is written, not as `fairlead.dev/queue`: it then means the
  same as on a pod (it counts where a Queue of that name exists, now or later). Kueue hands it on to Deployments' pods in
  the same way, and leaves pods alone whose Job it manages. A template that names a queue itself keeps it.
- Kueue admits a Job whole, so a Job in a queue of Kueue's is a gang; `kueue.x-k8s.io/job-min-parallelism`, and Volcano's
  `scheduling.volcano.sh/group-min-member`, become its gang's size.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import foreign, names
from fairlead.api.intent import KEYS, is_size, no_size, without_counterpart
from fairlead.webhook.objects.fields import Json, map_at, strings_at
from fairlead.webhook.objects.pod_templates import Part, descend, dotted
from fairlead.webhook.review.patch import Draft

Said = tuple[dict[str, str], dict[str, str]]
"""An object's annotations and labels."""


def whole(draft: Draft, part: Part) -> bool:
    """Whether the pods of this template run together because Kueue would admit them together."""
    return any(
        names.KUEUE_QUEUE in found
        for holder in part.holders
        for found in _said(descend(draft.object, holder), dotted(holder))
    )


def ours(draft: Draft, part: Part) -> list[str]:
    """Copy our annotations from the objects around a pod template to it; what both have must agree."""
    given = strings_at(
        map_at(descend(draft.object, part.path), "metadata", part.where), "annotations", f"{part.where}.metadata"
    )
    faults: list[str] = []
    for holder in part.holders:
        metadata, where = descend(draft.object, holder), dotted(holder)
        own = own_of(metadata, where)
        for key in (key for key in KEYS if key in own):
            if key in given and given[key] != own[key]:
                said = f"{own[key]!r}, but the pod template says {given[key]!r}"
                faults.append(f"{where}.annotations[{key}]: {said}; keep one of them")
            elif key not in given:
                draft.set((*part.path, "metadata", "annotations", key), own[key])
                given = {**given, key: own[key]}
    return faults


def own_of(metadata: Json, where: str) -> dict[str, str]:
    """Annotations of ours on an object around the pods, and its queue label."""
    own = {**strings_at(metadata, "annotations", where)}
    label = strings_at(metadata, "labels", where).get(names.QUEUE)
    if label is not None:
        own.setdefault(names.QUEUE, label)
    return own


def theirs(draft: Draft, part: Part, warnings: list[str]) -> list[str]:
    """Copies what the objects around a template say in the words of others, after ours. Returns faults. Raises MalformedError."""
    faults: list[str] = []
    for holder in part.holders:
        where = dotted(holder)
        said = _said(descend(draft.object, holder), where)
        warnings += _carry_queue(draft, part, said, where)
        warnings += without_counterpart(*said)
        faults += _carry_size(draft, part, said, where)
    return faults


def _carry_queue(draft: Draft, part: Part, said: Said, where: str) -> Iterator[str]:
    word = next((each for each in foreign.QUEUES if each.said(*said)), None)
    if word is None:
        return
    name = word.said(*said)
    there = _queue_of(_said(map_at(descend(draft.object, part.path), "metadata", part.where), f"{part.where}.metadata"))
    if there is None:
        draft.set((*part.path, "metadata", word.kind, word.key), name)
    elif there[0] != name:
        path = f"{where}.{word.kind}[{word.key}]"
        yield f"{path}: {name!r} does not count: {part.where}.{there[1]} says {there[0]!r}; keep one of them"


def _carry_size(draft: Draft, part: Part, said: Said, where: str) -> Iterator[str]:
    annotations, _ = said
    keys = [names.KUEUE_LEAST] if any(names.KUEUE_QUEUE in found for found in said) else []
    key = next((each for each in (*keys, names.VOLCANO_SIZE) if each in annotations), None)
    metadata = map_at(descend(draft.object, part.path), "metadata", part.where)
    there, labels = _said(metadata, f"{part.where}.metadata")
    if key is None or names.GANG_SIZE in there or next(foreign.groups(there, labels), None) is not None:
        return
    if not is_size(annotations[key]):
        yield f"{where}.annotations[{key}]: {no_size(annotations[key])}"
        return
    draft.set((*part.path, "metadata", "annotations", names.GANG_SIZE), annotations[key])


def _queue_of(said: Said) -> tuple[str, str] | None:
    """The queue that a template names, and where."""
    annotations, labels = said
    if own := annotations.get(names.QUEUE, labels.get(names.QUEUE)):
        return own, f"metadata.{'annotations' if names.QUEUE in annotations else 'labels'}[{names.QUEUE}]"
    return next(foreign.queues(annotations, labels), None)


def _said(metadata: Json, where: str) -> Said:
    return strings_at(metadata, "annotations", where), strings_at(metadata, "labels", where)
