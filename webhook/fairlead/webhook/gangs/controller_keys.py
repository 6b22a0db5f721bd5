"""Annotations that only Fairlead itself writes: by them pods are evicted, devices held for others, and claims made.

A user who wrote them would decide about all of that, so they are taken off new pods, refused in pod templates, and fixed on every
stored pod, managed or not: a pod that asks for nothing yet may hold a claim later. Which they are the table of trust says. Writes of
a pod's status and bindings do not come here: the policy `fairlead-controller-pods` judges them.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import names, trust, trust_kinds
from fairlead.webhook.gangs import users
from fairlead.webhook.objects.fields import Json, map_at, strings_at
from fairlead.webhook.review.patch import PatchBuilder

CONTROLLER_ANNOTATIONS = trust.written_by("controller", on="Pod", form="annotation", guard=trust_kinds.WEBHOOK_MARKS)
"""The controller writes them on pods that exist."""
RESERVED = (
    *CONTROLLER_ANNOTATIONS,
    *trust.written_by("webhook", on="Pod", form="annotation", guard=trust_kinds.WEBHOOK_SIGNED),
)
"""With what the webhook itself writes, on new pods only: where their claims come from."""


def forged(metadata: Json, keys: tuple[str, ...] = CONTROLLER_ANNOTATIONS, where: str = "metadata") -> Iterator[str]:
    """Faults of a new pod, or of a pod template, that carries one of the keys. Raises MalformedError."""
    annotations = strings_at(metadata, "annotations", where)
    for key in keys:
        if key in annotations:
            writer = "webhook" if key == names.CLAIM_SOURCES else "controller"
            yield f"{where}.annotations[{key}]: only the {writer} writes this; remove it"


def strip(patch: PatchBuilder) -> tuple[str, ...]:
    """Take the controller's off a new pod: a copy of an evicted pod carries them. Returns warnings. Raises MalformedError."""
    annotations = strings_at(map_at(patch.patched, "metadata"), "annotations", "metadata")
    found = [key for key in CONTROLLER_ANNOTATIONS if key in annotations]
    for key in found:
        patch.remove(("metadata", "annotations", key))
    return tuple(f"metadata.annotations[{key}]: only the controller writes this; it was taken off" for key in found)


def changed(before: Json, after: Json, *, by_controller: bool) -> Iterator[str]:
    """Faults of two versions of a stored pod's metadata. No account may change the sources of claims. Raises MalformedError."""
    old, new = strings_at(before, "annotations", "metadata"), strings_at(after, "annotations", "metadata")
    labels = [strings_at(one, "labels", "metadata").get(names.REVIEWED) for one in (before, after)]
    if labels[0] != labels[1]:
        yield f"metadata.labels[{names.REVIEWED}]: is written once, when the webhook admits the pod; leave it as it is"
    if old.get(names.CLAIM_SOURCES) != new.get(names.CLAIM_SOURCES):
        cure = "leave it as it is, or delete the pod and create it again"
        yield f"metadata.annotations[{names.CLAIM_SOURCES}]: is written once, when the webhook admits the pod; {cure}"
    if not by_controller:
        yield from users.changed(before, after)
    for key in () if by_controller else CONTROLLER_ANNOTATIONS:
        if old.get(key) != new.get(key):
            yield f"metadata.annotations[{key}]: only the controller writes this; leave it as it is"
