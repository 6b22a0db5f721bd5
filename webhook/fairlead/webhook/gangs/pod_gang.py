"""Gangs at the door: what a pod's annotations say, and whether the members agree.

Exists so that a gang that could never be complete is refused when it is made, by name, instead of waiting
for ever. Knows the members that exist; two that arrive at the same moment are the controller's to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from fairlead.api import foreign, names
from fairlead.api.intent import KEYS, Intent, IntentError, misspelt, read_intent, unheard, without_counterpart
from fairlead.webhook.objects.fields import Json, map_at, strings_at
from fairlead.webhook.objects.pod_templates import group_of, pod_group_of
from fairlead.webhook.review.facts import Facts, Key, Member, owner_job
from fairlead.webhook.review.patch import Draft

CONTROLLERS = (names.EVICT_AT, names.EVICTION, names.HOLDS_UNTIL)
"""Annotations by which the controller evicts pods and keeps devices for others: who writes them decides about those."""


Words = tuple[dict[str, str], dict[str, str], str | None]
"""What names a pod's gang and queue: annotations, labels, native PodGroup."""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's intent with what the other members say filled in; faults if it cannot stand."""

    intent: Intent
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def intent_of(pod: Json) -> Intent:
    """Of a pod, or a pod template. Raises IntentError, MalformedError."""
    return read_intent(*_words(pod))


def warnings_of(pod: Json) -> tuple[str, ...]:
    """What of a pod's, or template's, words nobody reads. Raises MalformedError."""
    return _warnings(*_words(pod))


def _warnings(annotations: Mapping[str, str], labels: Mapping[str, str], pod_group: str | None) -> tuple[str, ...]:
    return (
        *misspelt(annotations),
        *unheard(annotations, labels, pod_group),
        *without_counterpart(annotations, labels),
    )


def _words(pod: Json) -> Words:
    metadata = map_at(pod, "metadata")
    annotations, labels = strings_at(metadata, "annotations", "metadata"), strings_at(metadata, "labels", "metadata")
    return annotations, labels, pod_group_of(map_at(pod, "spec"))


def settle(pod: Json, *, namespace: str, name: str, facts: Facts) -> Settled:
    """Judge one managed pod's annotations. Raises MalformedError."""
    metadata, words = map_at(pod, "metadata"), _words(pod)
    annotations = words[0]
    forged = tuple(
        f"metadata.annotations[{key}]: only the controller writes this; remove it"
        for key in CONTROLLERS
        if key in annotations
    )
    try:
        intent = read_intent(*words)
    except IntentError as error:
        return Settled(intent=Intent(), faults=(*error.faults, *forged))
    if forged:
        return Settled(intent=intent, faults=forged)
    warnings = [*_warnings(*words), *queue_warnings(intent, facts)]
    if intent.gang is None:
        if intent.size is not None and intent.size > 1:
            return Settled(intent=intent, faults=(_no_gang(intent.size),))
        return Settled(intent=intent, warnings=tuple(warnings))
    group = group_of(metadata)
    if group is not None and group != intent.gang and intent.system is None:
        intent = replace(intent, gang=group)
    assert intent.gang is not None
    members = tuple(m for m in facts.gangs.get((namespace, intent.gang), ()) if m.name != name)
    size = intent.size if intent.size is not None else next((m.size for m in members if m.size is not None), None)
    elsewhere = size is None and intent.size_elsewhere  # in a PodGroup object, which the controller reads
    if size is None and not elsewhere and (job := owner_job(metadata)) is not None:
        size = facts.jobs.get((namespace, job))  # a Job that was made before the webhook was there
    if size is None and not elsewhere:
        return Settled(intent=intent, faults=(_no_size(intent),))
    settled = intent if size == intent.size else replace(intent, size=size)
    return Settled(
        intent=settled, faults=_disagreements(settled, members, (namespace, intent.gang)), warnings=tuple(warnings)
    )


def strip(draft: Draft) -> tuple[str, ...]:
    """Takes the controller's own annotations off a new pod: a copy of one that was evicted carries them. Warnings."""
    annotations = strings_at(map_at(draft.object, "metadata"), "annotations", "metadata")
    found = [key for key in CONTROLLERS if key in annotations]
    for key in found:
        draft.remove(("metadata", "annotations", key))
    return tuple(f"metadata.annotations[{key}]: only the controller writes this; it was taken off" for key in found)


def changed(before: Json, after: Json) -> tuple[str, ...]:
    """The annotations of ours that differ between two versions of an object's metadata, and the queue label."""
    old, new = strings_at(before, "annotations", "metadata"), strings_at(after, "annotations", "metadata")
    found = [f"metadata.annotations[{key}]: {_change(old, new, key)}" for key in KEYS if old.get(key) != new.get(key)]
    found += [
        f"metadata.annotations[{key}]: only the controller writes this; leave it as it is"
        for key in CONTROLLERS
        if old.get(key) != new.get(key)
    ]
    old, new = strings_at(before, "labels", "metadata"), strings_at(after, "labels", "metadata")
    if old.get(names.QUEUE) != new.get(names.QUEUE):
        found.append(f"metadata.labels[{names.QUEUE}]: {_change(old, new, names.QUEUE)}")
    return tuple(found)


def foreign_changed(before: Json, after: Json) -> tuple[str, ...]:
    """What differs between two versions of a pod in other systems' words. What is once said stays; what was not said may be
    added, as Volcano's controller does after a pod is made, unless that changes the gang, its size or the queue.
    """
    old, new = _words(before), _words(after)
    found: list[str] = []
    added: list[foreign.Word] = []
    for word in foreign.WORDS:
        was, now = word.said(*old[:2]), word.said(*new[:2])
        if was is not None and was != now:
            found.append(f"{word.path}: {_cannot(now)}, {_stays(was)}")
        elif was is None and now is not None:
            added.append(word)
    if added and not found:
        found += _overrules(added, old, new)
    return tuple(found)


def _overrules(added: list[foreign.Word], old: Words, new: Words) -> Iterator[str]:
    try:
        before = read_intent(*old)
    except IntentError:
        return  # the pod cannot run as it is
    try:
        after = read_intent(*new)
    except IntentError as error:
        yield from error.faults
        return
    for what, was, now in (
        ("gang", before.gang, after.gang),
        ("gang size", before.size, after.size),
        ("queue", before.queue, after.queue),
    ):
        if was is not None and was != now:
            where = " and ".join(word.path for word in added)
            yield f"{where}: cannot be added: the pod's {what} would become {now!r}, {_stays(was)}"


def _change(old: Mapping[str, str], new: Mapping[str, str], key: str) -> str:
    return f"{_cannot(new.get(key))}, {_stays(old.get(key))}"


def _cannot(new: str | None) -> str:
    return "cannot be removed" if new is None else f"cannot become {new!r}"


def _stays(old: object) -> str:
    said = "is not there" if old is None else f"is {old!r}"
    return f"it {said} since the pod was admitted; delete the pod and create it anew"


def _disagreements(intent: Intent, members: tuple[Member, ...], gang: Key) -> tuple[str, ...]:
    """What the pod says otherwise than the first member that says anything of it."""
    if not members:
        return ()
    pairs: tuple[tuple[str, object, Iterator[tuple[str, object]], str], ...] = (
        (names.GANG_SIZE, intent.size, ((m.name, m.size) for m in members), "give all members one size"),
        (names.QUEUE, intent.queue, ((m.name, m.queue) for m in members), "a gang waits in one queue"),
        (names.TOPOLOGY, intent.topology, ((m.name, m.topology) for m in members), "give all members one topology"),
    )
    faults: list[str] = []
    for key, mine, theirs, cure in pairs:
        other = next(((name, value) for name, value in theirs if None not in {mine, value} and value != mine), None)
        if other is not None:
            name, value = other
            said = f"{str(mine)!r}, but member {name} of gang {gang[0]}/{gang[1]} says {str(value)!r}"
            faults.append(f"{intent.said[key]}: {said}; {cure}, or this gang another name")
    return tuple(faults)


def queue_warnings(intent: Intent, facts: Facts) -> list[str]:
    """Of a queue that is not there, where there are any."""
    if intent.queue is None or not facts.queues or intent.queue in facts.queues:
        return []
    known = ", ".join(sorted(facts.queues)[:8])
    meanwhile = (
        "until it does, the queue of the namespace counts" if intent.borrowed_queue else "its pods wait until it does"
    )
    return [f"{intent.said[names.QUEUE]}: Queue {intent.queue!r} does not exist; {meanwhile}. Known: {known}"]


def _no_gang(size: int) -> str:
    return (
        f"metadata.annotations[{names.GANG_SIZE}]: {str(size)!r}, but {names.GANG} is missing: "
        "name the gang that the pod is a member of"
    )


def _no_size(intent: Intent) -> str:
    return (
        f"{intent.said[names.GANG_SIZE]}: is missing: write how many members gang {intent.gang!r} needs to run "
        "(a Job's pods get it from the Job)"
    )
