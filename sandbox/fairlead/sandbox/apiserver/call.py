"""One request on one resource: the argument of handlers, after authentication, authorization and routing."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.kinds.base import Context, Kind
from fairlead.sandbox.apiserver.kinds.errors import FieldError, not_supported, too_long
from fairlead.sandbox.apiserver.kinds.request import Json, UserInfo
from fairlead.sandbox.apiserver.routing import Target
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.storage.store import Key
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
