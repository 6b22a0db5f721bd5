"""One request from bytes to answer: authentication, impersonation, authorization, and the handler.

The whole apiserver but its socket is one function, `Dispatcher.handle`, which tests call. Errors become Status bodies here.
Impersonation (`kubectl --as`) is permitted by the verb `impersonate` on users, groups, uids and userextras
(k8s.io/apiserver/pkg/endpoints/filters/impersonation.go, 1.36).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from urllib.parse import unquote

from fairlead.sandbox.apiserver import discovery, faults, rendering, statuses
from fairlead.sandbox.apiserver.authn import identity
from fairlead.sandbox.apiserver.call import Call, Target, target_of
from fairlead.sandbox.apiserver.kinds.base import Context, Kind
from fairlead.sandbox.apiserver.kinds.request import Access, Rejected, UserInfo
from fairlead.sandbox.apiserver.patches import patching
from fairlead.sandbox.apiserver.state import Authorizer, Completed, State
from fairlead.sandbox.apiserver.subresources.handlers import SUBRESOURCES
from fairlead.sandbox.apiserver.verbs import deletion, reading, watching, writing
from fairlead.sandbox.apiserver.wire.exchange import Request, Response, Stream, encode

log = logging.getLogger(__name__)

Handler = Callable[[Call], Awaitable[Response | Stream]]


async def _get(call: Call) -> Response:
    return reading.get(call)


async def _list(call: Call) -> Response:
    return reading.list_objects(call)


async def _watch(call: Call) -> Stream:
    return watching.watch(call)


_HANDLERS: dict[str, Handler] = {
    "get": _get,
    "list": _list,
    "watch": _watch,
    "create": writing.create,
    "update": writing.update,
    "patch": patching.patch,
    "delete": deletion.delete,
    "deletecollection": deletion.delete_collection,
}


class Dispatcher:
    """`address` is the host:port that discovery shows."""

    def __init__(self, state: State, injected: faults.Faults, *, address: str = "127.0.0.1:443") -> None:
        self.state = state
        self.address = address
        self._faults = injected

    async def handle(self, request: Request) -> Response | Stream | None:
        """The answer. None: drop the connection (an injected fault)."""
        warnings: list[str] = []
        try:
            return await self._handle(request, warnings)
        except Rejected as error:
            return _refusal(error, request, warnings)
        except Exception as error:
            log.exception("apiserver: %s %s failed", request.method, request.path)
            return _refusal(statuses.internal(f"{type(error).__name__}: {error}"), request, warnings)

    async def _handle(self, request: Request, warnings: list[str]) -> Response | Stream | None:
        target = target_of(request)
        user = self.state.tokens.user_of(request.headers.get("authorization", ""))
        if user is None:
            raise statuses.unauthorized()
        user = effective(user, request.headers, self.state.authorizer)
        fault = await self._faults.matching(target, user)
        if fault is not None and not fault.after:
            if fault.drop:
                return None
            if fault.code:
                raise faults.error_of(fault)
        try:
            answer = await self._answer(request, target, user, warnings)
        except Rejected as error:
            self._completed(request, target, user, error.code)
            raise
        self._completed(request, target, user, answer.status)
        if fault is not None and fault.after:
            if fault.drop:
                return None
            raise faults.error_of(fault)
        return answer

    def _completed(self, request: Request, target: Target, user: UserInfo, code: int) -> None:
        if self.state.on_completed is None or not target.is_resource:
            return
        applies = target.verb == "patch" and request.content_type == patching.APPLY_PATCH
        verb = "apply" if applies else target.verb
        dry_run = bool(request.param("dryRun"))
        self.state.on_completed(Completed(user, verb, target.resource, target.subresource, code, dry_run))

    async def _answer(self, request: Request, target: Target, user: UserInfo, warnings: list[str]) -> Response | Stream:
        self._authorize(target, user)
        if not target.is_resource:
            return discovery.answer(request, target, self.state, self.address)
        kind = self.state.registry.find(target.group, target.version, target.resource)
        if kind is None:
            return discovery.missing(self.state, target.group)
        if target.namespace and not kind.namespaced and kind.plural != "namespaces":
            raise statuses.no_such_resource()
        if kind.deprecation_warning:
            warnings.append(kind.deprecation_warning)
        context = Context(user, self.state, target.verb, target.subresource, warnings=warnings)
        call = Call(self.state, request, target, kind, user, context)
        answer = await self._handler(call, kind)(call)
        answer.warnings = warnings
        return answer

    def _authorize(self, target: Target, user: UserInfo) -> None:
        if not target.is_resource:
            if target.path not in discovery.PUBLIC and not self.state.allows(
                user, Access(target.verb, path=target.path)
            ):
                raise statuses.forbidden_path(user, target.verb, target.path)
            return
        namespace = target.namespace
        access = Access(target.verb, target.group, target.resource, target.subresource, namespace, target.name)
        if not self.state.allows(user, access):
            raise statuses.forbidden_access(
                user, target.verb, target.group, target.resource, target.subresource, namespace, target.name
            )

    def _handler(self, call: Call, kind: Kind) -> Handler:
        target = call.target
        if target.subresource:
            sub = kind.subresource(target.subresource)
            if sub is None:
                raise statuses.no_such_resource()
            handler = SUBRESOURCES.get((target.subresource, target.verb)) or _HANDLERS.get(target.verb)
            if target.verb not in sub.verbs or handler is None:
                raise statuses.generic(405, "")
            return handler
        virtual = SUBRESOURCES.get((f"{target.group}/{target.resource}", target.verb))
        if virtual is not None:
            return virtual
        by_name = bool(call.request.segments) and call.request.segments[-1] == target.name
        if target.verb not in kind.verbs or (target.verb in {"create", "update", "patch"} and not self._complete(call)):
            raise statuses.generic(405, "")
        if target.verb == "create" and target.name and by_name:
            raise statuses.generic(405, "")
        return _HANDLERS[target.verb]

    @staticmethod
    def _complete(call: Call) -> bool:
        """Writes of namespaced objects need a namespace; PUT and PATCH need a name."""
        if call.kind.namespaced and not call.target.namespace:
            return False
        return call.target.verb == "create" or bool(call.target.name)


def _refusal(error: Rejected, request: Request, warnings: list[str]) -> Response:
    status = statuses.status_of(error)
    try:
        wanted = rendering.negotiate(request.accept)
    except statuses.ApiError:
        wanted = rendering.Wanted()
    headers = dict(getattr(error, "headers", {}))
    if isinstance(after_s := (error.details or {}).get("retryAfterSeconds"), int) and after_s > 0:
        headers["Retry-After"] = str(after_s)
    if wanted.yaml:
        response = rendering.respond(status, wanted, error.code)
        response.headers.update(headers)
        response.warnings = warnings
        return response
    return Response(error.code, encode(status), headers=headers, warnings=warnings)


_USER, _GROUP, _UID, _EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"


def effective(user: UserInfo, headers: Mapping[str, str], authorizer: Authorizer) -> UserInfo:
    """The user of the request, or the one in its Impersonate-* headers. Raises 403, 500."""
    name = headers.get(_USER, "")
    groups = [one.strip() for one in headers.get(_GROUP, "").split(",") if one.strip()]
    extra = {
        unquote(header.removeprefix(_EXTRA)): tuple(one.strip() for one in value.split(","))
        for header, value in headers.items()
        if header.startswith(_EXTRA)
    }
    uid = headers.get(_UID, "")
    if not name:
        if groups or extra or uid:
            raise statuses.internal(f"requested {groups or extra or uid} without impersonating a user")
        return user
    for access in _required(name, groups, extra, uid):
        if not authorizer.allows(user, access):
            raise statuses.forbidden_access(
                user, access.verb, access.group, access.resource, access.subresource, access.namespace, access.name
            )
    return identity(name, groups, extra, uid)


def _required(name: str, groups: list[str], extra: Mapping[str, tuple[str, ...]], uid: str) -> Iterator[Access]:
    """The permissions that the real user needs."""
    group = "authentication.k8s.io"
    parts = name.split(":")
    if name.startswith("system:serviceaccount:") and len(parts) == 4:
        yield Access("impersonate", resource="serviceaccounts", namespace=parts[2], name=parts[3])
    else:
        yield Access("impersonate", resource="users", name=name)
    for one in groups:
        yield Access("impersonate", resource="groups", name=one)
    if uid:
        yield Access("impersonate", group, "uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield Access("impersonate", group, "userextras", key, name=value)
