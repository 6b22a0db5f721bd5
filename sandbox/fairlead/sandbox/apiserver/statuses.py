"""metav1.Status answers, word for word those of the real apiserver.

Clients branch on `reason`, kubectl prints `message`, and controllers read `details`. Each function returns the exception
that ends the request; `status_of` makes the body of it.
Source: k8s.io/apimachinery/pkg/api/errors/errors.go (1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.kinds.errors import FieldError, quote
from fairlead.sandbox.apiserver.kinds.request import Rejected, UserInfo

Json = dict[str, Any]


class ApiError(Rejected):
    """A request that ends with a Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        *,
        metadata: Json | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(code, reason, message, details)
        self.metadata = metadata or {}
        self.headers = headers or {}


def status_of(error: Rejected) -> Json:
    body: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": getattr(error, "metadata", {}),
        "status": "Failure",
        "message": error.message,
    }
    if error.reason:
        body["reason"] = error.reason
    if error.details is not None:
        body["details"] = error.details
    body["code"] = error.code
    return body


def success(kind: Kind, name: str, uid: str) -> Json:
    """The answer to a DELETE that removed the object."""
    details: Json = {"name": name}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    details["uid"] = uid
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _details(name: str, group: str, kind: str, **more: Any) -> Json:
    details: Json = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = kind
    details.update(more)
    return details


def not_found(kind: Kind, name: str) -> ApiError:
    return not_found_resource(kind.group, kind.plural, name)


def not_found_resource(group: str, plural: str, name: str) -> ApiError:
    resource = f"{plural}.{group}" if group else plural
    return ApiError(404, "NotFound", f"{resource} {quote(name)} not found", _details(name, group, plural))


def no_such_resource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(kind: Kind, name: str) -> ApiError:
    return ApiError(
        409,
        "AlreadyExists",
        f"{kind.group_resource} {quote(name)} already exists",
        _details(name, kind.group, kind.plural),
    )


def generate_name_conflict(kind: Kind, name: str) -> ApiError:
    message = f"{kind.group_resource} {quote(name)} already exists, the server was not able to generate a unique name for the object"
    return ApiError(409, "AlreadyExists", message, _details(name, kind.group, kind.plural, retryAfterSeconds=1))


def conflict(kind: Kind, name: str, why: str, *, by_kind: bool = False) -> ApiError:
    resource, shown = (kind.kind, kind.group_kind) if by_kind else (kind.plural, kind.group_resource)
    message = f"Operation cannot be fulfilled on {shown} {quote(name)}: {why}"
    return ApiError(409, "Conflict", message, _details(name, kind.group, resource))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def modified(kind: Kind, name: str) -> ApiError:
    return conflict(kind, name, MODIFIED)


def invalid(kind: Kind, name: str, errors: Sequence[FieldError]) -> ApiError:
    return invalid_kind(kind.group, kind.kind, name, errors)


def invalid_kind(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> ApiError:
    """422. The message is the one error, or a list without repeats; details list every cause (as in the real one)."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    shown = f"{kind}.{group}" if group else kind
    causes = [{"reason": e.type.reason, "message": e.message, "field": e.field} for e in errors]
    return ApiError(
        422, "Invalid", f"{shown} {quote(name)} is invalid: {listed}", _details(name, group, kind, causes=causes)
    )


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def cannot_decode(kind: Kind, why: str) -> ApiError:
    return cannot_decode_as(kind.kind, kind.version, kind.kind, why)


def cannot_decode_as(given: str, version: str, wanted: str, why: str) -> ApiError:
    return bad_request(f'{given} in version "{version}" cannot be handled as a {wanted}: {why}')


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    """403 on a resource; the message names it as far as the request did."""
    resource = f"{plural}.{group}" if group else plural
    details = _details(name, group, plural)
    if not plural:
        message = f"forbidden: {why}"
    elif not name:
        message = f"{resource} is forbidden: {why}"
    else:
        message = f"{resource} {quote(name)} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, details)


def forbidden_access(
    user: UserInfo, verb: str, group: str, plural: str, subresource: str, namespace: str, name: str
) -> ApiError:
    """403 by RBAC."""
    resource = f"{plural}/{subresource}" if subresource else plural
    scope = f"in the namespace {quote(namespace)}" if namespace else "at the cluster scope"
    why = f"User {quote(user.name)} cannot {verb} resource {quote(resource)} in API group {quote(group)} {scope}"
    return forbidden(group, plural, name, why)


def forbidden_path(user: UserInfo, verb: str, path: str) -> ApiError:
    why = f"User {quote(user.name)} cannot {verb} path {quote(path)}"
    return ApiError(403, "Forbidden", f"forbidden: {why}", {})


def expired(message: str, *, continue_token: str = "", revision: int = 0) -> ApiError:
    metadata: Json = {}
    if continue_token:
        metadata["continue"] = continue_token
    if revision:
        metadata["resourceVersion"] = str(revision)
    return ApiError(410, "Expired", message, metadata=metadata)


def too_large_revision(wanted: int, current: int) -> ApiError:
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        headers={"Retry-After": "1"},
    )


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ApiError(415, "UnsupportedMediaType", message)


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    return ApiError(406, "NotAcceptable", "only the following media types are accepted: " + ", ".join(accepted))


def generic(code: int, message: str) -> ApiError:
    """A code without a body of its own, with apimachinery's text."""
    if code == 415:
        return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    if code == 422:
        return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})
    if code == 405:
        return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})
    return ApiError(code, "", message)


def too_many_requests(message: str, retry_after_s: int, *, causes: Sequence[Json] = ()) -> ApiError:
    """429. An eviction that a budget forbids has a cause."""
    details: Json = {}
    if causes:
        details["causes"] = list(causes)
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s else {}
    return ApiError(429, "TooManyRequests", message, details, headers=headers)


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})
