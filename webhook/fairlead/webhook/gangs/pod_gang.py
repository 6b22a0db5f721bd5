"""A pod's gang, as its annotations and those of the gang's existing members describe it.

A gang that could never be complete (no size, or members that disagree) is denied when a pod of it is created, with the reason,
instead of waiting forever. Compares a pod with the members that exist; of two that are created at the same moment the
controller compares the annotations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from fairlead.api import names, owners
from fairlead.api.align import by_subgroup
from fairlead.api.derived import JOB, workload_of
from fairlead.api.intent import Intent, IntentError, misspelt, overridden, read_intent, unsupported
from fairlead.webhook.objects.fields import Json, map_at
from fairlead.webhook.objects.pods import (
    annotations_and_labels,
    controller_of,
    leader_worker_group,
    native_pod_group,
    owner_job,
)
from fairlead.webhook.review.facts import Facts, GangMember, Key

IntentSource = tuple[dict[str, str], dict[str, str], str | None]
"""What an intent is read from: a pod's annotations, labels and native PodGroup."""


class PodGang(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's intent, completed from the gang's other members; with faults it is denied."""

    intent: Intent
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def intent_of(pod: Json) -> Intent:
    """What a pod, or a pod template, says of its gang and queue. Raises IntentError, MalformedError."""
    return read_intent(*_intent_source(pod))


def intent_warnings(pod: Json) -> tuple[str, ...]:
    """Annotations and labels of a pod, or pod template, that have no effect. Raises MalformedError."""
    return _ineffective(*_intent_source(pod))


def _ineffective(annotations: dict[str, str], labels: dict[str, str], pod_group: str | None) -> tuple[str, ...]:
    return (
        *misspelt(annotations),
        *overridden(annotations, labels, pod_group),
        *unsupported(annotations),
    )


def _intent_source(pod: Json) -> IntentSource:
    return *annotations_and_labels(map_at(pod, "metadata")), native_pod_group(map_at(pod, "spec"))


def resolve(pod: Json, *, namespace: str, name: str, facts: Facts, without_devices: bool = False) -> PodGang:
    """The gang of a managed pod, or of a member without devices. Raises MalformedError.

    Its size comes, in this order, from the pod, another member, a PodGroup object (which the controller reads), or the Job. Pods of
    one workload may disagree: the template changed, and the newest count.
    """
    metadata, source = map_at(pod, "metadata"), _intent_source(pod)
    try:
        intent = read_intent(*source)
    except IntentError as error:
        return PodGang(intent=Intent(), faults=error.faults)
    warnings = (*_ineffective(*source), *queue_warnings(intent, facts))
    if intent.gang is None:
        if intent.size is not None and intent.size > 1:
            return PodGang(intent=intent, faults=(_no_gang(intent.size),))
        alone = {
            names.SUBGROUP_TOPOLOGY: intent.subgroup_topology,
            names.ALIGN: intent.align,
            names.MEMBERS: intent.members,
        }
        warnings += tuple(no_gang_for(key) for key, said in alone.items() if said is not None)
        return PodGang(intent=intent, warnings=warnings)
    group = leader_worker_group(metadata)
    gang = group if group is not None and intent.system is None else intent.gang
    members = tuple(member for member in facts.gangs.get((namespace, gang), ()) if member.name != name)
    size, size_from = intent.size, intent.size_from
    if size is None:
        stated = next((member for member in members if member.size is not None), None)
        size, size_from = (None, None) if stated is None else (stated.size, stated.size_from)
    if size is None and not intent.size_elsewhere:
        job = owner_job(metadata)
        size = None if job is None else facts.jobs.get((namespace, job))  # a Job that is older than the webhook
        if size is None or job is None:
            return PodGang(intent=intent, faults=(_no_size(gang, intent),))
        size_from = (JOB, job)
    resolved = intent
    if (gang, size) != (intent.gang, intent.size):
        resolved = replace(intent, gang=gang, size=size, size_from=size_from)
    owner = controller_of(metadata)
    made_by = None if owner is None else (str(owner.get("kind")), str(owner.get("name")))
    workload = workload_of(*source[:2], made_by)
    others = tuple(member for member in members if workload is None or member.workload != workload)
    faults = (
        *_disagreements(resolved, others, (namespace, gang)),
        *in_no_subgroup(pod, resolved, without_devices=without_devices),
    )
    return PodGang(intent=resolved, faults=faults, warnings=warnings)


_ALIKE = {
    "size": (names.GANG_SIZE, "give all members one size"),
    "queue": (names.QUEUE, "a gang waits in one queue"),
    "topology": (names.TOPOLOGY, "give all members one topology"),
    "models": (names.MODELS, "give all members the same"),
    "align": (names.ALIGN, "give all members the same"),
    "subgroup_size": (names.SUBGROUP_SIZE, "give all members one subgroup size"),
    "subgroup_topology": (names.SUBGROUP_TOPOLOGY, "give all members one topology of subgroups"),
}
"""What all members say alike, by the field of an Intent and of a GangMember: our key, and what to do."""


def _disagreements(intent: Intent, members: tuple[GangMember, ...], gang: Key) -> tuple[str, ...]:
    """The first existing member with another value, for each of size, queue, topology, models, alignment and subgroups."""
    faults: list[str] = []
    for field, (key, cure) in _ALIKE.items():
        own = getattr(intent, field)
        other = next((each for each in members if None is not getattr(each, field) != own), None)
        if own is not None and other is not None:
            said = (
                f"{str(own)!r}, but member {other.name} of gang {gang[0]}/{gang[1]} says {str(getattr(other, field))!r}"
            )
            faults.append(f"{intent.paths[key]}: {said}; {cure}, or this gang another name")
    return tuple(faults)


def in_no_subgroup(pod: Json, intent: Intent, *, without_devices: bool) -> Iterator[str]:
    """Where each subgroup has a topology or devices of its own, a pod with devices that is in none would wait forever."""
    key = names.SUBGROUP_TOPOLOGY if intent.subgroup_topology is not None else names.ALIGN
    if (
        intent.subgroup is not None
        or without_devices
        or not (intent.subgroup_topology is not None or by_subgroup(intent.align))
    ):
        return
    annotations, labels = annotations_and_labels(map_at(pod, "metadata"))
    if names.LWS_NAME in labels:
        return  # its own webhook may write the indexes after this one
    if intent.subgroup_size is None:
        yield (
            f"{intent.paths[key]}: no subgroup is named: write {names.SUBGROUP_SIZE}: <number> for so many "
            f"members with neighbouring indexes, or {names.SUBGROUP}: <name> on each pod"
        )
    elif not any(key in annotations or key in labels for key in names.INDEXES):
        yield (
            f"{intent.paths[names.SUBGROUP_SIZE]}: the pod has no index by which it would be in a subgroup: use an Indexed Job, a "
            f"JobSet, a StatefulSet, a LeaderWorkerSet or a job of Kubeflow, or write {names.SUBGROUP}: <name> on each pod"
        )


def queue_warnings(intent: Intent, facts: Facts) -> list[str]:
    """A warning where the named queue does not exist but other queues do; not where another system's queue is meant, whose namespace it is."""
    if intent.queue is None or not facts.queues or intent.queue in facts.queues:
        return []
    path, known = intent.paths[names.QUEUE], ", ".join(sorted(facts.queues)[:8])
    if not intent.foreign_queue:
        return [f"{path}: Queue {intent.queue!r} does not exist; its pods wait until it does. Known: {known}"]
    if facts.namespace_labels.get(names.QUEUE_SYSTEM, owners.FAIRLEAD) != owners.FAIRLEAD:
        return []
    return [f"{path}: Fairlead has no Queue {intent.queue!r}, so the queue of the namespace counts. Known: {known}"]


def no_gang_for(key: str) -> str:
    """The warning of an annotation that only members of a gang may have."""
    return f"metadata.annotations[{key}]: has no effect on a pod that is in no gang; name it in {names.GANG}"


def _no_gang(size: int) -> str:
    return (
        f"metadata.annotations[{names.GANG_SIZE}]: {str(size)!r}, but {names.GANG} is missing: "
        "name the gang that the pod is a member of"
    )


def _no_size(gang: str, intent: Intent) -> str:
    return (
        f"{intent.paths[names.GANG_SIZE]}: is missing: write how many members gang {gang!r} needs to run "
        "(a Job's pods get it from the Job)"
    )
