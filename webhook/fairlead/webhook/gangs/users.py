"""Whose a workload is: the user who created it, on its pods and pod templates, for whoever adds up what users spent.

Written when an object is created, over what it says itself, and changed by our own accounts only afterwards. A pod that a
controller makes of a Job's template keeps what the template says, since that was written when the Job was created; so does a Job
that is made of another workload. Of other templates (a Deployment's, a StatefulSet's) the webhook has not seen who created them:
what they say is taken off, and their pods have no user.
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
    """Of a workload that is created or updated. Raises MalformedError."""
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


def _user_of_template(review: Review, template: PodTemplate) -> str | None:
    if review.operation == "UPDATE":
        return _said(review.old or {}, (template.path,), template)
    if not is_maker(review.username):
        return review.username or None
    if controller_of(map_at(review.object or {}, "metadata")) is None:
        return review.username
    return _said(review.object or {}, (template.path, *(source[:-1] for source in template.metadata_sources)), template)


def _said(body: Json, paths: Iterable[Path], template: PodTemplate) -> str | None:
    """What the template, or else the object around it, says."""
    for path in paths:
        metadata = map_at(object_at(body, path), "metadata", dotted(path) or template.where)
        found = strings_at(metadata, "annotations", dotted((*path, "metadata"))).get(names.USER)
        if found is not None:
            return found
    return None


def _write(patch: PatchBuilder, path: Path, user: str | None) -> None:
    given = strings_at(map_at(object_at(patch.patched, path), "metadata"), "annotations", "metadata").get(names.USER)
    at = (*path, "metadata", "annotations", names.USER)
    if user is not None and given != user:
        patch.set(at, user)
    elif user is None and given is not None:
        patch.remove(at)
