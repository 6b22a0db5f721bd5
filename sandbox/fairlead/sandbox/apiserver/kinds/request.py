"""What kinds and admission see of a request's user, and how they refuse it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = dict[str, Any]


class DecodeError(Exception):
    """The body does not fit the kind: 400, `<Kind> in version "v1" cannot be handled as a <Kind>: <this text>`."""


class Rejected(Exception):  # noqa: N818 (a verdict, not a fault)
    """A request refused with a metav1.Status of the raiser's choice. Admission raises it; strategies return FieldErrors."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details


@dataclass(frozen=True)
class UserInfo:
    """An authenticated user."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def as_json(self) -> Json:
        """The user as authentication.k8s.io/v1 UserInfo."""
        shown: Json = {"username": self.name}
        if self.uid:
            shown["uid"] = self.uid
        if self.groups:
            shown["groups"] = list(self.groups)
        if self.extra:
            shown["extra"] = {key: list(values) for key, values in self.extra.items()}
        return shown


@dataclass(frozen=True)
class Access:
    """One question to the authorizer. With `path` it is about a non-resource URL."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


def timestamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
