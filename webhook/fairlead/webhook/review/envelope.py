"""AdmissionReview (admission.k8s.io/v1) as bytes: decoded into a Review, and encoded from a Verdict.

Whatever bytes arrive are either a Review or a BadReviewError with an HTTP status. Decides nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

import msgspec

from fairlead.api import texts
from fairlead.kube import nesting
from fairlead.webhook.objects.fields import Json, MalformedError, map_at, text_at
from fairlead.webhook.review import size
from fairlead.webhook.review.verdict import WARNING_CHARS_MAX, WARNINGS_CHARS_MAX, Verdict, deny

API_VERSION = "admission.k8s.io/v1"
RETRY_AFTER_S = 1
_REASONS = {403: "Forbidden", 422: "Invalid", 429: "TooManyRequests"}


class BadReviewError(Exception):
    """The bytes are no AdmissionReview that can be answered; `status` is the HTTP status of the answer."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        self.status = status
        super().__init__(message)


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """One admission request: a user's operation on an object. `object` is None on DELETE, `old` on CREATE."""

    uid: str
    group: str
    resource: str
    subresource: str
    kind: str
    operation: str
    namespace: str
    name: str
    username: str
    groups: frozenset[str]
    dry_run: bool
    object: Json | None
    old: Json | None

    @property
    def group_resource(self) -> str:
        """The resource with its group: `pods`, `jobs.batch`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def subject(self) -> str:
        """How messages begin: `Pod ml/train-0`; a name that the apiserver has yet to generate shows as `ml/train-*`."""
        metadata = (self.object or self.old or {}).get("metadata")
        generated = metadata.get("generateName") if isinstance(metadata, dict) else None
        name = self.name or (f"{generated}*" if generated else "")
        where = f"{self.namespace}/{name}" if self.namespace and self.group_resource != "namespaces" else name
        return f"{self.kind} {where}" if where else self.kind

    def about(self, faults: Iterable[str]) -> list[str]:
        """Each fault with the subject before it."""
        return [f"{self.subject}: {fault}" for fault in faults]


class OversizedReviewError(BadReviewError):
    """A review that is not decoded; `answer` refuses the object by its uid, so that the user is told."""

    def __init__(self, uid: str, subject: str) -> None:
        counted = f"holds more than {size.VALUES_MAX} lists, objects and fields, too many to be judged; make it smaller"
        self.verdict = deny("size", f"{subject}: {counted}", code=422)
        self.uid = uid
        super().__init__(self.verdict.message, status=413)


class _OuterKind(msgspec.Struct, frozen=True):
    kind: str = ""


class _OuterRequest(msgspec.Struct):
    uid: str
    kind: _OuterKind = _OuterKind()
    namespace: str = ""
    name: str = ""


class _Outer(msgspec.Struct):
    """What a refusal needs of a review; the rest is skipped without being kept."""

    request: _OuterRequest


def decode(body: bytes) -> Review:
    """Raises BadReviewError."""
    if size.has_too_many_values(body):
        try:
            outer = msgspec.json.decode(body, type=_Outer).request
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise BadReviewError("the body is no AdmissionReview, and too large to be read", status=413) from None
        where = f"{outer.namespace}/{outer.name}" if outer.namespace else outer.name
        raise OversizedReviewError(outer.uid, f"{outer.kind.kind} {where}".strip())
    try:
        envelope = msgspec.json.decode(nesting.bounded(body))
    except RecursionError:
        raise BadReviewError("the review is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadReviewError(f"the body is not JSON: {error}") from None
    if not isinstance(envelope, dict):
        raise BadReviewError("the body is not an AdmissionReview: expected a JSON object")
    kind, version = envelope.get("kind"), envelope.get("apiVersion")
    if kind != "AdmissionReview" or version != API_VERSION:
        raise BadReviewError(f"expected an AdmissionReview of {API_VERSION}, not {version} {kind}")
    try:
        return _request(envelope)
    except MalformedError as error:
        raise BadReviewError(str(error)) from None


def _request(envelope: Json) -> Review:
    request = map_at(envelope, "request")
    uid = text_at(request, "uid", "request")
    if not uid:
        raise BadReviewError("request.uid: is required")
    resource = map_at(request, "resource", "request")
    user = map_at(request, "userInfo", "request")
    groups = user.get("groups") or []
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise MalformedError("request.userInfo.groups: expected a list of texts")
    review = Review(
        uid=uid,
        group=text_at(resource, "group", "request.resource"),
        resource=text_at(resource, "resource", "request.resource"),
        subresource=text_at(request, "subResource", "request"),
        kind=text_at(map_at(request, "kind", "request"), "kind", "request.kind"),
        operation=text_at(request, "operation", "request"),
        namespace=text_at(request, "namespace", "request"),
        name=text_at(request, "name", "request"),
        username=text_at(user, "username", "request.userInfo"),
        groups=frozenset(groups),
        dry_run=request.get("dryRun") is True,
        object=map_at(request, "object", "request") or None,
        old=map_at(request, "oldObject", "request") or None,
    )
    if not review.resource or review.operation not in {"CREATE", "UPDATE", "DELETE", "CONNECT"}:
        raise BadReviewError(f"request: {review.operation!r} of resource {review.resource!r} means nothing")
    if review.operation in {"CREATE", "UPDATE"} and review.object is None:
        raise BadReviewError(f"request.object: is required with operation {review.operation}")
    return review


def encode(uid: str, verdict: Verdict) -> bytes:
    """The AdmissionReview that answers the review of that uid."""
    response: Json = {"uid": uid, "allowed": verdict.allowed}
    if verdict.patch and verdict.allowed:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(list(verdict.patch))).decode()
    if not verdict.allowed:
        response["status"] = {
            "status": "Failure",
            "message": texts.plain(verdict.message),
            "reason": _REASONS.get(verdict.code, "BadRequest"),
            "code": verdict.code,
        }
        if verdict.code == 429:  # the apiserver makes a Retry-After of it, which every Kubernetes client heeds
            response["status"]["details"] = {"retryAfterSeconds": RETRY_AFTER_S}
    if verdict.warnings:
        response["warnings"] = _cut_to_limits(verdict.warnings)
    if verdict.audit:
        response["auditAnnotations"] = verdict.audit
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _cut_to_limits(warnings: tuple[str, ...]) -> list[str]:
    """The warnings that the apiserver shows: long ones cut, those beyond the total counted."""
    kept: list[str] = []
    left = WARNINGS_CHARS_MAX
    for index, warning in enumerate(warnings):
        text = texts.line(" ".join(warning.split()))
        text = text if len(text) <= WARNING_CHARS_MAX else f"{text[: WARNING_CHARS_MAX - 1]}…"
        if len(text) > left - 40:
            kept.append(f"and {len(warnings) - index} more")
            break
        kept.append(text)
        left -= len(text)
    return kept
