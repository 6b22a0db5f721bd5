"""Annotation propagation: what is written on a workload reaches its pod templates, since its pods are reviewed by themselves.

- Our annotations and the queue label are copied; where workload and template both have one, the values must agree. But a trace
  context may differ, and the template's counts: a pipeline writes a new one each time that it applies a Deployment, which is
  neither wrong nor a reason to start its pods again.
- What a template got from its workload follows the workload: where that changes, the template, which says what the workload said before,
  is changed, too, for the pods that are made from then on. Where a template says something else, a user wrote it.
- A queue in another system's annotation or label is copied as it is written, not as `fairlead.dev/queue`: it then means the same
  as on a pod (it counts where a Queue of that name exists, now or later). Kueue copies it to Deployments' pods in the same way,
  and leaves the pods of a Job that it manages alone. A template that names a queue itself keeps that one.
- Kueue's priority class is copied to templates that name none: it reads the label of the Job, the controller that of the pods. Its
  topology annotations are on pod templates, where they count as they are.
- Kueue admits a Job whole, so a Job in a Kueue queue is a gang; `kueue.x-k8s.io/job-min-parallelism`, and Volcano's
  `scheduling.volcano.sh/group-min-member`, become its gang's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.api import foreign, names
from fairlead.api.intent import KEYS, IntentError, is_size, no_size, read_intent, unsupported
from fairlead.webhook.objects.fields import Json, MalformedError, Path, dotted, map_at, object_at, strings_at
from fairlead.webhook.objects.pod_templates import PodTemplate
from fairlead.webhook.objects.pods import annotations_and_labels
from fairlead.webhook.review.verdict import PatchBuilder

Metadata = tuple[dict[str, str], dict[str, str]]
"""An object's annotations and labels."""

COPIED = (*KEYS, names.CLAIM_NAMES, names.KEEP_IDLE, names.MOVABLE, names.TRACEPARENT)
"""Annotations of ours that a workload's pods get from it."""
MAY_DIFFER = frozenset({names.TRACEPARENT})


def propagate_to_runtime(patch: PatchBuilder, user: str | None) -> tuple[list[str], Sequence[str]]:
    """A TrainJob's templates are its runtime's: its annotations reach the JobSet by spec.annotations. Returns contradictions, and what cannot be read.

    `user`: to be written there; None: none. Raises MalformedError.
    """
    metadata, spec = map_at(patch.patched, "metadata"), map_at(patch.patched, "spec")
    own = fairlead_annotations(metadata, "metadata")
    given = strings_at(spec, "annotations", "spec")
    contradictions = [
        f"metadata.annotations[{key}]: {own[key]!r}, but spec.annotations says {given[key]!r}; keep one of them"
        for key in COPIED
        if key in own and given.get(key, own[key]) != own[key] and key not in MAY_DIFFER
    ]
    if contradictions:
        return contradictions, ()
    copied = {key: own[key] for key in COPIED if key in own and not (key in given and key in MAY_DIFFER)}
    try:
        read_intent(copied, {}, None)
    except IntentError as error:
        return [], error.faults
    for key, value in {**copied, **({} if user is None else {names.USER: user})}.items():
        patch.set(("spec", "annotations", key), value)
    for key in (names.KUEUE_QUEUE, names.KUEUE_PRIORITY):
        own_label, spec_label = (strings_at(found, "labels").get(key) for found in (metadata, spec))
        if own_label and not spec_label:
            patch.set(("spec", "labels", key), own_label)
    return [], ()


def in_kueue_queue(patch: PatchBuilder, template: PodTemplate) -> bool:
    """Whether Kueue would admit the template's pods, all at once."""
    return any(
        names.KUEUE_QUEUE in found
        for source in template.metadata_sources
        for found in annotations_and_labels(object_at(patch.patched, source), dotted(source))
    )


def propagate(patch: PatchBuilder, template: PodTemplate, warnings: list[str], old: Json | None = None) -> list[str]:
    """Copy annotations of the objects around a pod template to it; adds to warnings. Returns faults. Raises MalformedError.

    `old`: the object before an update.
    """
    faults = _copy_ours(patch, template, warnings, old)
    for source in template.metadata_sources:
        where = dotted(source)
        metadata = annotations_and_labels(object_at(patch.patched, source), where)
        before = annotations_and_labels(_before(old, source), where)
        warnings += _copy_foreign_queue(patch, template, metadata, before, where)
        _copy_priority(patch, template, metadata, before)
        warnings += unsupported(metadata[0])
        faults += _copy_foreign_size(patch, template, metadata, before, where)
    return faults


def cannot_follow(object_: Json, old: Json, template: PodTemplate, kind: str) -> Iterator[str]:
    """Warnings: what changed on a workload whose template cannot change, and still says what it said. Raises MalformedError."""
    metadata = map_at(object_at(object_, template.path), "metadata", template.where)
    given = strings_at(metadata, "annotations", f"{template.where}.metadata")
    for source in template.metadata_sources:
        where = dotted(source)
        own = fairlead_annotations(object_at(object_, source), where)
        was = fairlead_annotations(_before(old, source), where)
        for key in (key for key in COPIED if key not in MAY_DIFFER and own.get(key) != was.get(key)):
            if given.get(key) != own.get(key):
                said = "is removed" if key not in own else f"{own[key]!r}"
                has = f"says {given[key]!r}" if key in given else "has none"
                yield (
                    f"{where}.annotations[{key}]: {said}, but its pods do not follow: {template.where} {has}, and the template of a "
                    f"{kind} that is not suspended cannot change; delete it and create it again"
                )


def _before(old: Json | None, path: Path) -> Json:
    """{} where the object is created, or this part of it was not there, or was of another shape."""
    try:
        return object_at(old or {}, path)
    except MalformedError:
        return {}


def _copy_ours(patch: PatchBuilder, template: PodTemplate, warnings: list[str], old: Json | None) -> list[str]:
    metadata = map_at(object_at(patch.patched, template.path), "metadata", template.where)
    given = strings_at(metadata, "annotations", f"{template.where}.metadata")
    faults: list[str] = []
    for source in template.metadata_sources:
        where = dotted(source)
        own = fairlead_annotations(object_at(patch.patched, source), where)
        was = fairlead_annotations(_before(old, source), where)
        for key in (key for key in COPIED if key in was and key not in own and given.get(key) == was[key]):
            said = f"is removed, but {template.where} still says {given[key]!r}, which it got from here"
            warnings.append(f"{where}.annotations[{key}]: {said}; remove it there, too")
        for key in (key for key in COPIED if key in own and given.get(key) != own[key]):
            if key in given and key in MAY_DIFFER:
                continue
            if key in given and given[key] != was.get(key):
                said = f"{own[key]!r}, but the pod template says {given[key]!r}"
                faults.append(f"{where}.annotations[{key}]: {said}; keep one of them")
                continue
            if key in given and key != names.GANG_SIZE:  # which the controller reads of the template
                said = f"{own[key]!r} is for pods that are made from now on, those that exist keep {given[key]!r}"
                warnings.append(f"{where}.annotations[{key}]: {said}: delete them, unless their controller does")
            patch.set((*template.path, "metadata", "annotations", key), own[key])
            given = {**given, key: own[key]}
    return faults


def fairlead_annotations(metadata: Json, where: str) -> dict[str, str]:
    """The annotations of a workload, with its queue label as one."""
    annotations, labels = annotations_and_labels(metadata, where)
    queue = {names.QUEUE: labels[names.QUEUE]} if names.QUEUE in labels else {}
    return {**queue, **annotations}


def _copy_foreign_queue(
    patch: PatchBuilder, template: PodTemplate, metadata: Metadata, before: Metadata, where: str
) -> Iterator[str]:
    """Copy the queue; yields a warning where the template names another one."""
    word = next((each for each in foreign.QUEUE_KEYS if each.value(*metadata)), None)
    if word is None:
        return
    name = word.value(*metadata)
    given = _template_metadata(patch, template)
    existing = _named_queue(given)
    if existing is not None and existing[0] == name:
        return
    if existing is None or existing[0] == word.value(*given) == word.value(*before):
        patch.set((*template.path, "metadata", word.kind, word.key), name)
    else:
        path = f"{where}.{word.kind}[{word.key}]"
        yield f"{path}: {name!r} does not count: {template.where}.{existing[1]} says {existing[0]!r}; keep one of them"


def _copy_priority(patch: PatchBuilder, template: PodTemplate, metadata: Metadata, before: Metadata) -> None:
    key = foreign.PRIORITY_KEY
    name, given = key.value(*metadata), key.value(*_template_metadata(patch, template))
    if name and name != given and given in {None, key.value(*before)}:
        patch.set((*template.path, "metadata", "labels", foreign.PRIORITY_KEY.key), name)


def _copy_foreign_size(
    patch: PatchBuilder, template: PodTemplate, metadata: Metadata, before: Metadata, where: str
) -> Iterator[str]:
    """Copy the size; yields a fault where the text is none."""
    annotations, _ = metadata
    keys = [names.KUEUE_LEAST] if any(names.KUEUE_QUEUE in found for found in metadata) else []
    key = next((each for each in (*keys, names.VOLCANO_SIZE) if each in annotations), None)
    annotated, labels = _template_metadata(patch, template)
    if key is None or next(foreign.groups(annotated, labels), None) is not None:
        return
    if (
        annotated.get(names.GANG_SIZE, before[0].get(key)) != before[0].get(key)
        or annotated.get(names.GANG_SIZE) == annotations[key]
    ):
        return
    if not is_size(annotations[key]):
        yield f"{where}.annotations[{key}]: {no_size(annotations[key])}"
        return
    patch.set((*template.path, "metadata", "annotations", names.GANG_SIZE), annotations[key])


def _named_queue(metadata: Metadata) -> tuple[str, str] | None:
    """The queue that a template names, and the path of the annotation or label."""
    annotations, labels = metadata
    if own := annotations.get(names.QUEUE, labels.get(names.QUEUE)):
        return own, f"metadata.{'annotations' if names.QUEUE in annotations else 'labels'}[{names.QUEUE}]"
    return next(foreign.queues(annotations, labels), None)


def _template_metadata(patch: PatchBuilder, template: PodTemplate) -> Metadata:
    metadata = map_at(object_at(patch.patched, template.path), "metadata", template.where)
    return annotations_and_labels(metadata, f"{template.where}.metadata")
