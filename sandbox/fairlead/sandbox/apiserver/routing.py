"""From a method and a path to a target: group, version, resource, name, subresource, and the verb.

Authorization and handlers use the same target. Which resources exist is not known here.
Source: k8s.io/apiserver/pkg/endpoints/request/requestinfo.go (1.36).
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.sandbox.apiserver.selectors import SelectorError, parse_fields
from fairlead.sandbox.apiserver.wire.exchange import Request

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
