"""The gangs of a workload's pods: which templates form one gang, its name and its size, written into the templates.

- Templates that name the same gang are one gang; its size is the number of their pods that run at once and ask for devices, or are members without
  (`policy.members`).
- A size that is counted here says so beside it (`api.derived`): it is counted again when the object changes, and the controller
  follows the object where the template cannot change.
- A size without a gang name makes the object a gang of the object's name. A Job with neither is no gang; a kind that is a gang by
  default (`pod_templates.WORKLOADS`), or a workload in a Kueue queue, is one of its own name if more than one of its pods asks for
  devices. Where the apiserver has yet to generate the object's name, the gang's name is generated too, here.
- Pods that start only when others are ready cannot wait for those in one gang: they are a gang of their own.
- Each Job of a CronJob is a gang of its own, so that two runs never mix: it takes the Job's name. So does a RayJob's cluster.

Example: a JobSet `train` with jobs `driver` (1 pod) and `workers` (8 pods), all with devices, is the gang `train` of size 9. With
startupPolicy InOrder the workers alone are a gang, `train-workers` of 8; the driver's one pod needs none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from fairlead.api import names
from fairlead.api.derived import source_text
from fairlead.api.gang import GANG_SIZE_MAX
from fairlead.api.intent import Intent, IntentError
from fairlead.webhook.gangs import pod_gang
from fairlead.webhook.objects.fields import Json, list_at, map_at, object_at, strings_at, text_at
from fairlead.webhook.objects.pod_templates import WORKLOADS, PodTemplate, indexed, pod_templates
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import PatchBuilder

GENERATED_CHARS_MAX = 58
"""Of a generateName; the apiserver cuts it there, too."""


@dataclass(frozen=True, kw_only=True)
class MemberTemplate:
    """A pod template whose pods are gated: they ask for managed devices, or are members `without_devices`."""

    template: PodTemplate
    intent: Intent
    in_kueue_queue: bool
    without_devices: bool = False

    @property
    def where(self) -> str:
        return self.template.where


@dataclass(frozen=True, kw_only=True)
class TemplateGang:
    """size: the gang's, or the most that it can be where a PodGroup object holds the size."""

    size: int
    pod_group: str | None = None


@dataclass(kw_only=True)
class WorkloadGangs:
    """The gang of each template that has one, by the template's path."""

    gangs: dict[str, TemplateGang] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def assign(review: Review, templates: list[MemberTemplate], patch: PatchBuilder, facts: Facts) -> WorkloadGangs:
    """Write gang names and sizes into the templates. Raises MalformedError."""
    workload, own_name = WORKLOADS[review.group_resource], review.name or _generated_name(review)
    groups: dict[tuple[str, str], list[MemberTemplate]] = {}
    for member in templates:
        asked = member.intent.gang is not None or (member.intent.size or 1) > 1
        by_default = workload.gang_by_default or member.in_kueue_queue
        named = bool(own_name) or workload.creates_workloads
        grouped = workload.gang_per_group and member.template.separate_gang
        if asked or (by_default and named and not grouped and _unnamed_pods(templates, member) > 1):
            groups.setdefault((member.intent.gang or "", member.template.separate_gang), []).append(member)
    found = WorkloadGangs()
    for group in groups.values():
        _assign_one(review, own_name, group, patch, found)
    members = [member for member in templates if member.where in found.gangs]
    found.faults += _faults_of_pods(review, patch, members)
    found.faults += _taken_names(review, patch, members, facts)
    return found


def _faults_of_pods(review: Review, patch: PatchBuilder, members: list[MemberTemplate]) -> Iterator[str]:
    """What each pod of a gang would be refused for when its controller makes it."""
    for member in () if WORKLOADS[review.group_resource].creates_workloads else members:
        metadata = indexed(member.template, patch.patched, kind=review.kind, owner=review.name)
        pod = {"metadata": metadata}
        try:
            intent = pod_gang.intent_of(pod)
            faults = tuple(pod_gang.in_no_subgroup(pod, intent, without_devices=member.without_devices))
        except IntentError as error:  # of what the object gave its template, such as a name that no gang can have
            faults = error.faults
        for fault in faults:
            yield f"{member.where}.{fault}"


def _taken_names(review: Review, patch: PatchBuilder, members: list[MemberTemplate], facts: Facts) -> Iterator[str]:
    """A copy of a workload that keeps its gang's name: each has its size from its own pods, so that neither can join the other."""
    if review.operation != "CREATE":
        return
    for member in members:
        try:
            intent = pod_gang.intent_of(object_at(patch.patched, member.template.path))
        except IntentError:
            continue  # refused for that
        if intent.gang is None or intent.size_from is None:
            continue
        of_gang = facts.gangs.get((review.namespace, intent.gang), ())
        other = next((each.size_from for each in of_gang if each.size_from not in {None, intent.size_from}), None)
        if other is not None:
            yield (
                f"{member.where}.metadata.annotations[{names.GANG}]: {intent.gang!r} is the gang of {source_text(*other)}, which has a size "
                f"of its own; name another gang, or write {names.GANG_SIZE}, of all their pods together, on both"
            )


def _unnamed_pods(templates: list[MemberTemplate], member: MemberTemplate) -> int:
    """Pods of the templates that name no gang and start together with this one."""
    separate = member.template.separate_gang
    return sum(
        each.template.pods for each in templates if each.template.separate_gang == separate and each.intent.gang is None
    )


def _assign_one(
    review: Review, own_name: str, group: list[MemberTemplate], patch: PatchBuilder, found: WorkloadGangs
) -> None:
    """Write one gang's name and size into its templates, or add a fault."""
    first, pods = group[0], sum(member.template.pods for member in group)
    where = f"{first.where}.metadata.annotations"
    sizes = {member.intent.size: member.where for member in group if member.intent.size is not None}
    if len(sizes) > 1:
        said = ", ".join(f"{size} ({at})" for size, at in sizes.items())
        found.faults.append(
            f"{where}[{names.GANG_SIZE}]: the templates of one gang say {said}; give all of them one size"
        )
        return
    written = next(iter(sizes), None)
    if first.intent.size_elsewhere and written is None:  # the controller reads it from the PodGroup object
        found.gangs |= {member.where: TemplateGang(size=pods, pod_group=first.intent.gang) for member in group}
        return
    if WORKLOADS[review.group_resource].gang_per_group and first.template.separate_gang:
        found.faults.append(
            f"spec.startupPolicy: LeaderReady, but a gang's pods start together ({where}[{names.GANG}]); "
            "write LeaderCreated, or remove the gang"
        )
        return
    counted = _is_counted(review, group, written)
    size = None if counted else written
    if size is None and pods < 1:
        found.faults.append(
            f"{where}[{names.GANG_SIZE}]: is missing, and the {review.kind} runs no pods: write the size"
        )
        return
    size = pods if size is None else size
    if size > GANG_SIZE_MAX:
        found.faults.append(
            f"{where}[{names.GANG_SIZE}]: the {review.kind} runs {size} pods at once, and a gang has at most "
            f"{GANG_SIZE_MAX}: let it run fewer, or remove the gang"
        )
        return
    name = _gang_name(review, own_name, first)
    if name is None:
        found.faults.append(f"{where}[{names.GANG}]: is missing, and the name is yet to be made up: name the gang")
        return
    if size > pods and not _spans_objects(review):
        found.warnings.append(
            f"{names.GANG_SIZE}: {size} members, but the {review.kind} runs at most {pods} pods at once: "
            "the gang starts only when pods of other objects join it"
        )
    for member in group:
        annotations = (*member.template.path, "metadata", "annotations")
        if name and name != member.intent.gang:
            patch.set((*annotations, names.GANG), name)
        if member.intent.size != size:
            patch.set((*annotations, names.GANG_SIZE), str(size))
        _mark_source(review, patch, member, counted=counted)
        found.gangs[member.where] = TemplateGang(size=size)


def _is_counted(review: Review, group: list[MemberTemplate], written: int | None) -> bool:
    """Whether the size is ours to count: nobody wrote one, or what is written was counted before and no user has changed it since."""
    if written is None:
        return True
    if _spans_objects(review) or any(member.intent.size_from is None for member in group):
        return False
    before = {template.where: _size_text(review.old, template) for template in _templates(review, review.old)}
    return all(before.get(member.where, str(written)) == str(written) for member in group)


def _templates(review: Review, object_: Json | None) -> list[PodTemplate]:
    return [] if object_ is None else pod_templates(review.group_resource, object_)


def _size_text(object_: Json | None, template: PodTemplate) -> str | None:
    metadata = map_at(object_at(object_ or {}, template.path), "metadata", template.where)
    return strings_at(metadata, "annotations", f"{template.where}.metadata").get(names.GANG_SIZE)


def _mark_source(review: Review, patch: PatchBuilder, member: MemberTemplate, *, counted: bool) -> None:
    """Says in the template of what its gang's size was counted, or no more that it was."""
    path = (*member.template.path, "metadata", "annotations", names.SIZE_FROM)
    source = (review.kind, review.name)
    if counted and member.intent.size_from != source:
        patch.set(path, source_text(*source))
    elif not counted and member.intent.size_from is not None and not _spans_objects(review):
        patch.remove(path)


def _gang_name(review: Review, own_name: str, member: MemberTemplate) -> str | None:
    """The gang's name; "" where each created workload names its own, None where the name is not known yet."""
    given, separate = member.intent.gang, member.template.separate_gang
    if WORKLOADS[review.group_resource].creates_workloads:
        return given or ""
    if any(owner.get("kind") in ("CronJob", "RayJob") for owner in _controllers(review)):
        return review.name or None
    if given:
        return given
    return f"{own_name}-{separate}" if own_name and separate else own_name or None


def _spans_objects(review: Review) -> bool:
    """Whether another object counts the members, such as a JobSet whose gang spans its Jobs."""
    return any(owner.get("kind") not in ("CronJob", "RayJob") for owner in _controllers(review))


def _controllers(review: Review) -> list[Json]:
    metadata = map_at(review.object or {}, "metadata")
    return [owner for owner in list_at(metadata, "ownerReferences", "metadata") if owner.get("controller")]


def _generated_name(review: Review) -> str:
    """A gang name for an object that has only a generateName, the same for the same review; "" where it has none."""
    generated = text_at(map_at(review.object or {}, "metadata"), "generateName", "metadata")
    ending = hashlib.blake2s(review.uid.encode(), digest_size=5).hexdigest()
    return f"{generated[:GENERATED_CHARS_MAX]}{ending}" if generated else ""
