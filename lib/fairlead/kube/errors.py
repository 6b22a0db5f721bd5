"""Errors of requests to the apiserver, as one tree.

ApiError
├── BadRequest            400  malformed
├── Unauthorized          401
├── Forbidden             403
├── NotFound              404
├── MethodNotAllowed      405
├── Conflict              409  resourceVersion or uid did not match
│   └── AlreadyExists     409, reason AlreadyExists
├── Gone                  410  the resourceVersion or continue token is too old: list again
├── Invalid               422  validation refused the object; `.details.causes` name the fields
├── TooManyRequests       429  `.retry_after_s`
├── ServerError           5xx
└── Unreachable           no answer at all: refused, reset, timed out, TLS

What is retried is decided in `transport`.
"""

# ruff: noqa: N818 - named after what went wrong, in the API's own words

import msgspec

from fairlead.kube.nulls import Decoder
from fairlead.kube.objects import Status, StatusDetails


class ApiError(Exception):
    """A request that did not succeed. `status` is the HTTP status, 0 where there was no answer."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: StatusDetails | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details = details
        self.retry_after_s = retry_after_s

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later without a change to it or to the cluster's objects."""
        return isinstance(self, TooManyRequests | ServerError | Unreachable)


class BadRequest(ApiError): ...


class Unauthorized(ApiError): ...


class Forbidden(ApiError): ...


class NotFound(ApiError): ...


class MethodNotAllowed(ApiError): ...


class Conflict(ApiError): ...


class AlreadyExists(Conflict): ...


class Gone(ApiError): ...


class Invalid(ApiError): ...


class TooManyRequests(ApiError): ...


class ServerError(ApiError): ...


class Unreachable(ApiError): ...


RETRY_AFTER_MAX_S = 365 * 86_400
"""More than anybody waits; JSON has numbers that no float holds."""
_statuses = Decoder(Status)
_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def from_status(status: Status, *, code: int | None = None, retry_after_s: float | None = None) -> ApiError:
    """The error that a Status object describes."""
    code = code or status.code
    kind = _BY_STATUS.get(code, ServerError if code >= 500 else ApiError)
    if kind is Conflict and status.reason == "AlreadyExists":
        kind = AlreadyExists
    if kind is ApiError and status.reason in {"Expired", "Gone"}:
        kind = Gone
    if retry_after_s is None and status.details and status.details.retry_after_seconds is not None:
        retry_after_s = float(min(status.details.retry_after_seconds, RETRY_AFTER_MAX_S))
    return kind(
        status.message or f"the apiserver answered {code} {status.reason}".strip(),
        status=code,
        reason=status.reason,
        details=status.details,
        retry_after_s=retry_after_s,
    )


def from_response(code: int, body: bytes, *, retry_after: str | None = None) -> ApiError:
    """The error of an HTTP answer >= 400, whether its body is a Status, text, or nothing."""
    seconds: float | None = None
    if retry_after and retry_after.isascii() and retry_after.strip().isdigit():
        seconds = float(retry_after)
    try:
        status = _statuses.decode(body)
    except msgspec.DecodeError:
        text = body[:500].decode(errors="replace").strip()
        status = Status(message=f"the apiserver answered {code}: {text}" if text else "")
    return from_status(status, code=code, retry_after_s=seconds)
