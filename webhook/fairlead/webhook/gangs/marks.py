"""What only Fairlead itself writes on pods and pod templates: its marks, whose a workload is, the trace of its gang.

By the marks pods are evicted, devices held for others, and claims made. A user who wrote them would decide about all of that, so they are
taken off new pods, refused in pod templates, and fixed on every stored pod, managed or not, for a pod that asks for nothing yet may hold a
claim later. Which they are the table of trust says. Updates, statuses and bindings of pods do not come here: policies judge them.

The user who created a workload is written when an object is created, over what it says itself, and changed by our own accounts only
afterwards; where another user changes what a template runs, it is that user's from then on. A pod that a controller makes of a Job's template
keeps what the template says, since that was written when the Job was created; so does a Job that is made of another workload whose templates
come here. **Only what was written here is believed**: of such a Job the pod template, not the metadata around it, which its
maker copies from where nothing was written; of a JobSet that a TrainJob makes its metadata, not the pod templates, which are
those of a runtime. Of other templates (a Deployment's, a StatefulSet's) the webhook has not seen who created them: what they
say is taken off, and their pods have no user.
Example: a CronJob is created without claims, so without a review, with `user: bob` in `jobTemplate.metadata`, and gets its claims
by a patch of mallory's: its pod template says mallory, and so do its pods.

The trace context is the user's where there is one, else one that all members of the gang that have one owner, or none, get in all replicas
and in any order. A value that is no traceparent is replaced, with a warning: a wrong one must cost neither the pod nor its trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairlead.api import names, trace_context, trust
from fairlead.api.trace_context import TraceContext, TraceContextError
from fairlead.webhook.objects.fields import Json, Path, dotted, map_at, object_at, strings_at, text_at
from fairlead.webhook.objects.pod_templates import PodTemplate, pod_templates
from fairlead.webhook.objects.pods import controller_of
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.verdict import PatchBuilder

CONTROLLER_ANNOTATIONS = trust.written_by("controller", on="Pod", form="annotation", guard=trust.WEBHOOK_MARKS)
"""The controller writes them on pods that exist."""
RESERVED = (
    *CONTROLLER_ANNOTATIONS,
    *trust.written_by("webhook", on="Pod", form="annotation", guard=trust.WEBHOOK_SIGNED),
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


_ACCOUNT = "system:serviceaccount:"
MAKER_NAMESPACES = ("kube-system", "jobset-system", "lws-system", "kubeflow-system")
"""Of the controllers that make Jobs and pods of templates: Kubernetes', and those of JobSet, LeaderWorkerSet and Trainer as they are installed."""
MAKERS = frozenset({"system:kube-controller-manager"})
"""Kubernetes' controllers where they have no accounts of their own."""


REVIEWED_OWNERS = frozenset(
    {("batch", "CronJob"), ("jobset.x-k8s.io", "JobSet"), ("kubeflow.org", "MPIJob"), ("ray.io", "RayJob")}
)
"""Owners of Jobs whose templates were reviewed, by group and kind."""
TRAIN_JOB_OWNER = ("trainer.kubeflow.org", "TrainJob")


def is_maker(username: str) -> bool:
    """Whether it makes objects of others' templates."""
    namespace = username.removeprefix(_ACCOUNT).partition(":")[0]
    return username in MAKERS or (username.startswith(_ACCOUNT) and namespace in MAKER_NAMESPACES)


def user_of_pod(review: Review) -> str | None:
    """Who a new pod is of; None: not known. Raises MalformedError."""
    if not is_maker(review.username):
        return review.username or None
    metadata = map_at(review.object or {}, "metadata")
    owner = controller_of(metadata)
    if owner is None or (owner.get("kind"), owner.get("apiVersion")) != ("Job", "batch/v1"):
        return None
    return strings_at(metadata, "annotations", "metadata").get(names.USER)


def stamp_pod(review: Review, patch: PatchBuilder) -> None:
    """Raises MalformedError."""
    _write(patch, (), user_of_pod(review))


def stamp_templates(review: Review, patch: PatchBuilder, templates: Iterable[PodTemplate]) -> None:
    """Writes the user into the templates of a workload that is created or updated. Raises MalformedError."""
    for template in templates:
        _write(patch, template.path, _user_of_template(review, template))


def user_of_train_job(review: Review) -> str | None:
    """Raises MalformedError."""
    if is_maker(review.username):
        return strings_at(map_at(review.object or {}, "spec"), "annotations", "spec").get(names.USER)
    return review.username or None


def user_changed(before: Json, after: Json, where: str = "metadata") -> Iterator[str]:
    """A fault where two versions of stored metadata differ in it. Raises MalformedError."""
    if strings_at(before, "annotations", where).get(names.USER) != strings_at(after, "annotations", where).get(
        names.USER
    ):
        yield f"{where}.annotations[{names.USER}]: is written once, when the webhook admits the object; leave it as it is"


def forged_templates(review: Review) -> Iterator[str]:
    """Faults of templates with annotations that only Fairlead writes; what is stored already is not judged again. Raises MalformedError."""
    for template in pod_templates(review.group_resource, review.object or {}):
        before, after = _versions(review, template)
        known = set(forged(before, RESERVED, f"{template.where}.metadata"))
        yield from (fault for fault in forged(after, RESERVED, f"{template.where}.metadata") if fault not in known)


def templates_changed(review: Review) -> Iterator[str]:
    """Faults of an update of an object whose templates do not change, but their annotations may. Raises MalformedError."""
    yield from forged_templates(review)
    if (review.group, review.kind) == TRAIN_JOB_OWNER:
        before, after = (map_at(version or {}, "spec") for version in (review.old, review.object))
        yield from user_changed(before, after, "spec")
    for template in pod_templates(review.group_resource, review.object or {}):
        yield from user_changed(*_versions(review, template), f"{template.where}.metadata")


def _versions(review: Review, template: PodTemplate) -> tuple[Json, Json]:
    """The template's metadata, before and after."""
    before, after = (object_at(version or {}, template.path) for version in (review.old, review.object))
    return map_at(before, "metadata", template.where), map_at(after, "metadata", template.where)


def _user_of_template(review: Review, template: PodTemplate) -> str | None:
    object_, old = review.object or {}, review.old or {}
    if review.operation == "UPDATE":
        if not is_maker(review.username) and _runs(object_, template) != _runs(old, template):
            return review.username or None
        return _said(old, template.path)
    if not is_maker(review.username):
        return review.username or None
    owner = controller_of(map_at(object_, "metadata"))
    if owner is None:
        return review.username
    made_of = str(owner.get("apiVersion")).partition("/")[0], owner.get("kind")
    if made_of == TRAIN_JOB_OWNER:
        return _said(object_, ())
    return _said(object_, template.path) if made_of in REVIEWED_OWNERS else None


def _runs(version: Json, template: PodTemplate) -> Json:
    return map_at(object_at(version, template.path), "spec", template.where)


def _said(body: Json, path: Path) -> str | None:
    """What the metadata at that path say."""
    metadata = map_at(object_at(body, path), "metadata", dotted(path))
    return strings_at(metadata, "annotations", dotted((*path, "metadata"))).get(names.USER)


def _write(patch: PatchBuilder, path: Path, user: str | None) -> None:
    given = strings_at(map_at(object_at(patch.patched, path), "metadata"), "annotations", "metadata").get(names.USER)
    at = (*path, "metadata", "annotations", names.USER)
    if user is not None and given != user:
        patch.set(at, user)
    elif user is None and given is not None:
        patch.remove(at)


def stamp_trace(
    patch: PatchBuilder, gang: str | None, review: Review, ratio: float | None
) -> tuple[TraceContext | None, tuple[str, ...]]:
    """The pod's context, now in its annotation, and warnings; nothing without traces. Raises MalformedError.

    `ratio`: which part of those traces is sampled that begin here.
    """
    if ratio is None:
        return None, ()
    metadata = map_at(patch.patched, "metadata")
    written = strings_at(metadata, "annotations", "metadata").get(names.TRACEPARENT)
    warnings: tuple[str, ...] = ()
    if written is not None:
        try:
            return trace_context.parse(written), ()
        except TraceContextError as error:
            warnings = (f"metadata.annotations[{names.TRACEPARENT}]: {error}; the gang has a trace of its own",)
    if gang is None:  # a pod by itself, whose name the apiserver may not have made yet
        context = trace_context.begin(review.uid, ratio=ratio)
    else:
        owner = controller_of(metadata)
        uid = "" if owner is None else text_at(owner, "uid", "metadata.ownerReferences")
        context = trace_context.begin(review.namespace, gang, uid, ratio=ratio)
    patch.set(("metadata", "annotations", names.TRACEPARENT), str(context))
    return context, warnings
