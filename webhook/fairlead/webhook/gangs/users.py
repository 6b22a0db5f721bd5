"""Whose a workload is: the user who created it, on its pods and pod templates, for whoever adds up what users spent.

Written when an object is created, over what it says itself, and changed by our own accounts only afterwards; where another user
changes what a template runs, it is that user's from then on. A pod that a controller makes of a Job's template keeps what the
template says, since that was written when the Job was created; so does a Job that is made of another workload whose templates
come here. **Only what was written here is believed**: of such a Job the pod template, not the metadata around it, which its
maker copies from where nothing was written; of a JobSet that a TrainJob makes its metadata, not the pod templates, which are
those of a runtime. Of other templates (a Deployment's, a StatefulSet's) the webhook has not seen who created them: what they
say is taken off, and their pods have no user.
Example: a CronJob is created without claims, so without a review, with `user: bob` in `jobTemplate.metadata`, and gets its claims
by a patch of mallory's: its pod template says mallory, and so do its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairlead.api import names
from fairlead.webhook.objects.fields import Json, Path, dotted, map_at, object_at, strings_at
from fairlead.webhook.objects.pod_templates import PodTemplate
from fairlead.webhook.objects.pods import controller_of
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.patch import PatchBuilder

_ACCOUNT = "system:serviceaccount:"
MAKER_NAMESPACES = ("kube-system", "jobset-system", "lws-system", "kubeflow-system")
"""Of the controllers that make Jobs and pods of templates: Kubernetes', and those of JobSet, LeaderWorkerSet and Trainer as they are installed."""
MAKERS = frozenset({"system:kube-controller-manager"})
"""Kubernetes' controllers where they have no accounts of their own."""


REVIEWED = frozenset(
    {("batch", "CronJob"), ("jobset.x-k8s.io", "JobSet"), ("kubeflow.org", "MPIJob"), ("ray.io", "RayJob")}
)
"""Owners of Jobs whose templates were reviewed, by group and kind."""
TRAIN_JOB = ("trainer.kubeflow.org", "TrainJob")


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


def changed(before: Json, after: Json, where: str = "metadata") -> Iterator[str]:
    """A fault where two versions of stored metadata differ in it. Raises MalformedError."""
    if strings_at(before, "annotations", where).get(names.USER) != strings_at(after, "annotations", where).get(
        names.USER
    ):
        yield f"{where}.annotations[{names.USER}]: is written once, when the webhook admits the object; leave it as it is"


def train_job_changed(review: Review) -> Iterator[str]:
    """A fault where an update of a TrainJob says another user. Raises MalformedError."""
    before, after = (map_at(version or {}, "spec") for version in (review.old, review.object))
    yield from changed(before, after, "spec")


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
    if made_of == TRAIN_JOB:
        return _said(object_, ())
    return _said(object_, template.path) if made_of in REVIEWED else None


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
