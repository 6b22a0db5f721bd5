"""Authorization checks in policies: `authorizer.group("apps").resource("deployments").check("create").allowed()`.

The functions only build a Question; the callable of the Authorizer that the caller binds answers it. Selectors have no
authorizer, but the functions exist there as well, as in Kubernetes.
Source: k8s.io/apiserver/pkg/cel/library/authz.go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from fairlead.cel import types as t
from fairlead.cel.declare import Library, Overload

AUTHZ: Final = Library("kubernetes.authz")
AUTHORIZER_TYPE: Final = t.opaque("kubernetes.authorization.Authorizer")
_PATH: Final = t.opaque("kubernetes.authorization.PathCheck")
_GROUP: Final = t.opaque("kubernetes.authorization.GroupCheck")
_RESOURCE: Final = t.opaque("kubernetes.authorization.ResourceCheck")
_DECISION: Final = t.opaque("kubernetes.authorization.Decision")


@dataclass(frozen=True, slots=True)
class Question:
    """Whether `user` (None: the user of the request) may do `verb`."""

    verb: str = ""
    path: str | None = None
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    cel_type_name: ClassVar[str] = _DECISION.name
    allowed: bool
    reason: str = ""
    error: str = ""


Authorize = Callable[[Question], Decision]


@dataclass(frozen=True, slots=True, eq=False)
class Authorizer:
    """The value of the variable `authorizer`; `authorize` decides."""

    cel_type_name: ClassVar[str] = AUTHORIZER_TYPE.name
    authorize: Authorize
    question: Question = Question()


class _PathCheck(Authorizer):
    __slots__ = ()
    cel_type_name: ClassVar[str] = _PATH.name


class _GroupCheck(Authorizer):
    __slots__ = ()
    cel_type_name: ClassVar[str] = _GROUP.name


class _ResourceCheck(Authorizer):
    __slots__ = ()
    cel_type_name: ClassVar[str] = _RESOURCE.name


def _with(kind: type[Authorizer], field: str) -> Callable[[Authorizer, str], Authorizer]:
    return lambda held, text: kind(held.authorize, replace(held.question, **{field: text}))


def _check(held: Authorizer, verb: str) -> Decision:
    return held.authorize(replace(held.question, verb=verb))


def _service_account(held: Authorizer, namespace: str, name: str) -> Authorizer:
    return Authorizer(held.authorize, replace(held.question, user=f"system:serviceaccount:{namespace}:{name}"))


def _member(
    name: str, params: tuple[t.Type, ...], result: t.Type, overload_id: str, call: Callable[..., object]
) -> None:
    AUTHZ.overloads.append(Overload(overload_id, name, params, result, member=True, call=call))


_member("path", (AUTHORIZER_TYPE, t.STRING), _PATH, "authorizer_path", _with(_PathCheck, "path"))
_member("group", (AUTHORIZER_TYPE, t.STRING), _GROUP, "authorizer_group", _with(_GroupCheck, "group"))
_member(
    "serviceAccount",
    (AUTHORIZER_TYPE, t.STRING, t.STRING),
    AUTHORIZER_TYPE,
    "authorizer_serviceaccount",
    _service_account,
)
_member("resource", (_GROUP, t.STRING), _RESOURCE, "groupcheck_resource", _with(_ResourceCheck, "resource"))
for _name, _field in (
    ("subresource", "subresource"), ("namespace", "namespace"), ("name", "name"),
    ("fieldSelector", "field_selector"), ("labelSelector", "label_selector"),
):  # fmt: skip
    _member(_name, (_RESOURCE, t.STRING), _RESOURCE, f"resourcecheck_{_name.lower()}", _with(_ResourceCheck, _field))
_member("check", (_PATH, t.STRING), _DECISION, "pathcheck_check", _check)
_member("check", (_RESOURCE, t.STRING), _DECISION, "resourcecheck_check", _check)
_member("allowed", (_DECISION,), t.BOOL, "decision_allowed", lambda decision: decision.allowed)
_member("reason", (_DECISION,), t.STRING, "decision_reason", lambda decision: decision.reason)
_member("errored", (_DECISION,), t.BOOL, "decision_errored", lambda decision: bool(decision.error))
_member("error", (_DECISION,), t.STRING, "decision_error", lambda decision: decision.error)
