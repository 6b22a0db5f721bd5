"""One request on one resource: its target, from method and path, and the argument of handlers.

Authorization and handlers use the same target. Which resources exist is not known to `target_of`.
Source: k8s.io/apiserver/pkg/endpoints/request/requestinfo.go (1.36).
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.kinds.base import Context, Kind
from fairlead.sandbox.apiserver.kinds.errors import FieldError, not_supported, too_long
from fairlead.sandbox.apiserver.kinds.request import Json, UserInfo
from fairlead.sandbox.apiserver.selectors import SelectorError, parse_fields
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.store import Key
from fairlead.sandbox.apiserver.wire.exchange import Request

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"


@dataclass
class Call:
    """The request, its target and kind, the user, and the context that strategies see."""

    state: State
    request: Request
    target: Target
    kind: Kind
    user: UserInfo
    context: Context

    @property
    def namespace(self) -> str:
        return self.target.namespace if self.kind.namespaced else ""

    @property
    def key(self) -> Key:
        return self.namespace, self.target.name

    def number(self, name: str) -> int | None:
        """A number in the query. Raises 400."""
        try:
            return self.request.number(name)
        except ValueError as error:
            raise statuses.bad_request(str(error)) from error

    @property
    def field_manager(self) -> str:
        """`fieldManager`, else the first word of the User-Agent, as the real one does."""
        given = self.request.param("fieldManager")
        return given or self.request.headers.get("user-agent", "unknown").partition("/")[0][:128] or "unknown"

    @property
    def field_validation(self) -> str:
        return self.request.param("fieldValidation") or WARN


def check_write_options(request: Request, options_kind: str) -> bool:
    """Whether this is a dry run. Raises 422 for values that writes do not support."""
    errors: list[FieldError] = []
    dry_run = request.query.get("dryRun", ())
    if any(one not in {"All", ""} for one in dry_run):
        errors.append(not_supported("dryRun", list(dry_run), ["All"]))
    validation = request.param("fieldValidation")
    if options_kind != "DeleteOptions" and validation not in {"", STRICT, WARN, IGNORE}:
        errors.append(not_supported("fieldValidation", validation, [IGNORE, STRICT, WARN]))
    if len(request.param("fieldManager")) > 128:
        errors.append(too_long("fieldManager", 128))
    if errors:
        raise statuses.invalid_kind("meta.k8s.io", options_kind, "", errors)
    return "All" in dry_run


def options_of(call: Call, options_kind: str, extra: Json | None = None) -> Json:
    """The options as admission shows them to webhooks and policies."""
    options: Json = {"kind": options_kind, "apiVersion": "meta.k8s.io/v1", **(extra or {})}
    if call.context.dry_run:
        options["dryRun"] = ["All"]
    if options_kind != "DeleteOptions":
        if call.request.param("fieldManager"):
            options["fieldManager"] = call.request.param("fieldManager")
        if call.request.param("fieldValidation"):
            options["fieldValidation"] = call.request.param("fieldValidation")
        if call.request.flag("force") and options_kind == "PatchOptions":
            options["force"] = True
    return options


_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = {"status", "finalize"}


@dataclass(frozen=True)
class Target:
    """What a request is about. `resource` is empty for non-resource paths, whose verb is the method in lower case."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: tuple[str, ...] = ()  # what follows the subresource (proxy paths)

    @property
    def is_resource(self) -> bool:
        return self.resource != ""


def target_of(request: Request) -> Target:
    """Never fails: a path that does not parse as a resource is a non-resource path."""
    path = "/" + "/".join(request.segments)
    plain = Target(request.method.lower(), path)
    parts = request.segments
    if parts[:1] == ("api",) and len(parts) >= 3:
        group, version, parts = "", parts[1], parts[2:]
    elif parts[:1] == ("apis",) and len(parts) >= 4:
        group, version, parts = parts[1], parts[2], parts[3:]
    else:
        return plain
    verb = _VERBS.get(request.method, "")
    if parts[0] == "watch":
        if len(parts) == 1:
            return plain
        verb, parts = "watch", parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    resource = parts[0]
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    if resource == "namespaces" and name:
        namespace = name
    if not name:
        if verb == "get":
            verb = "watch" if request.flag("watch") else "list"
        if verb == "delete":
            verb = "deletecollection"
    if verb in {"list", "watch", "deletecollection"} and not name:
        name = _selected_name(request)
    return Target(verb, path, group, version, namespace, resource, name, subresource, parts[3:])


def _selected_name(request: Request) -> str:
    """`fieldSelector=metadata.name=x` makes a list a request for x, so that resourceNames can allow it."""
    text = request.param("fieldSelector")
    if not text:
        return ""
    try:
        return parse_fields(text).exact("metadata.name") or ""
    except SelectorError:
        return ""
