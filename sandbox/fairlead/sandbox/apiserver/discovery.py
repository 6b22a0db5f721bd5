"""Paths that are about no resource: health, version, OpenAPI, and discovery, plain and aggregated.

Discovery is pure functions of the registry: CRDs appear as they are served. Source: k8s.io/apiserver/pkg/endpoints/discovery (1.36).
"""

from __future__ import annotations

import base64
import hashlib

from fairlead.sandbox.apiserver import openapi, rendering, statuses
from fairlead.sandbox.apiserver.call import Target
from fairlead.sandbox.apiserver.kinds.base import Kind, Registry, Subresource
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.rendering import aggregated_discovery, negotiate
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.wire.exchange import JSON, Request, Response, json_response, text_response
from fairlead.sandbox.release import Release

# In apiextensions' order.
_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]


def version(release: Release) -> Json:
    """What GET /version answers."""
    major, minor = map(str, release.minor)
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(release.minor[1] - 1),
        "gitVersion": f"v{release.version}",
        "gitCommit": "$Format:%H$",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": release.go,
        "compiler": "gc",
        "platform": "linux/amd64",
    }


def core_versions(address: str) -> Json:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(registry: Registry) -> Json:
    groups = [_group(name, versions) for name, versions in registry.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Json | None:
    versions = registry.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions and name else None


def _group(name: str, versions: list[str]) -> Json:
    shown = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def resources(registry: Registry, group_name: str, version: str) -> Json | None:
    """APIResourceList of a group version; None where there is none."""
    kinds = registry.in_version(group_name, version)
    if not kinds:
        return None
    body: Json = {"kind": "APIResourceList"}
    if group_name:
        body["apiVersion"] = "v1"  # the core's list goes without, by an accident of history
    body["groupVersion"] = f"{group_name}/{version}" if group_name else version
    body["resources"] = [one for kind in kinds for one in _resource(kind)]
    return body


def _resource(kind: Kind) -> list[Json]:
    """A kind's entry and those of its subresources."""
    verbs = kind.verbs
    if kind.strategy.custom_resource:
        verbs = tuple(verb for verb in _CUSTOM_VERBS if verb in verbs)
    main: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(verbs),
    }
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    if kind.storage_version_hash and {"create", "list"} <= set(kind.verbs):
        main["storageVersionHash"] = _storage_version_hash(kind)
    return [main, *(_subresource(kind, sub) for sub in sorted(kind.subresources, key=lambda sub: sub.name))]


def _storage_version_hash(kind: Kind) -> str:
    """Equal for two resources with the same objects, such as the two groups' events: clients compare it."""
    group = kind.storage.partition("/")[0]
    digest = hashlib.sha256(f"{group}/{kind.storage_version or kind.version}/{kind.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _subresource(kind: Kind, sub: Subresource) -> Json:
    entry: Json = {"name": f"{kind.plural}/{sub.name}", "singularName": "", "namespaced": kind.namespaced}
    if sub.version and (sub.group, sub.version) != (kind.group, kind.version):
        entry["group"] = sub.group
        entry["version"] = sub.version
    entry["kind"] = sub.kind or kind.kind
    entry["verbs"] = list(sub.verbs)
    return entry


def aggregated(registry: Registry, *, core: bool, version: str = "v2") -> Json:
    """APIGroupDiscoveryList of /api (core) or /apis."""
    items = []
    for name, versions in registry.groups().items():
        if (name == "") == core:
            shown = [_aggregated_version(registry, name, one) for one in versions]
            items.append({"metadata": {"name": name} if name else {}, "versions": shown})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated_version(registry: Registry, group_name: str, version: str) -> Json:
    kinds = registry.in_version(group_name, version)
    return {"version": version, "resources": [_aggregated(kind) for kind in kinds], "freshness": "Current"}


def _response_kind(kind: Kind, sub: Subresource | None = None) -> Json:
    """Built-in resources leave group and version empty (the list's own); custom resources and Scale name them."""
    if sub is not None and sub.version and (sub.group, sub.version) != (kind.group, kind.version):
        return {"group": sub.group, "version": sub.version, "kind": sub.kind or kind.kind}
    if kind.strategy.custom_resource:
        return {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return {"group": "", "version": "", "kind": (sub.kind if sub else "") or kind.kind}


def _aggregated(kind: Kind) -> Json:
    entry: Json = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    subresources = [
        {"subresource": sub.name, "responseKind": _response_kind(kind, sub), "verbs": list(sub.verbs)}
        for sub in sorted(kind.subresources, key=lambda sub: sub.name)
    ]
    if subresources:
        entry["subresources"] = subresources
    return entry


PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_HEALTH = ("/healthz", "/livez", "/readyz")


def answer(request: Request, target: Target, state: State, address: str) -> Response:
    """The document at a path; 404 in plain text where there is none, as in the real one."""
    if target.verb not in {"get", "head"}:
        raise statuses.generic(405, "")
    path, parts = target.path, request.segments
    if path in _HEALTH or path.startswith(tuple(f"{one}/" for one in _HEALTH)):
        return text_response("ok")
    if path == "/version":
        return json_response(version(state.release))
    if path == "/":
        return json_response({"paths": sorted(_known(state))})
    if parts[:1] == ("openapi",):
        return _openapi(request, parts, state)
    if path in {"/api", "/apis"}:
        return _groups(request, path, state, address)
    body = None
    if parts[0] == "api" and len(parts) == 2:
        body = resources(state.registry, "", parts[1])
    elif parts[0] == "apis" and len(parts) == 2:
        body = group(state.registry, parts[1])
    elif parts[0] == "apis" and len(parts) == 3:
        body = resources(state.registry, parts[1], parts[2])
    if body is None and parts[0] in {"api", "apis"}:
        return missing(state, parts[1] if parts[0] == "apis" else "")
    if body is None:
        return text_response("404 page not found\n", 404)
    return rendering.respond(body, negotiate(request.accept))


def missing(state: State, group: str) -> Response:
    """404: a Status where the group is a built-in one, plain text elsewhere, as in the real one."""
    if any(kind.group == group and not kind.strategy.custom_resource for kind in state.registry):
        raise statuses.no_such_resource()
    return text_response("404 page not found\n", 404)


def _groups(request: Request, path: str, state: State, address: str) -> Response:
    wanted = aggregated_discovery(request.accept)
    if wanted is not None:
        body = aggregated(state.registry, core=path == "/api", version=wanted.version)
        response = rendering.respond(body, wanted)
        response.content_type = (
            f"{wanted.content_type};g=apidiscovery.k8s.io;v={wanted.version};as=APIGroupDiscoveryList"
        )
        return response
    body = core_versions(address) if path == "/api" else group_list(state.registry)
    return rendering.respond(body, negotiate(request.accept))


def _known(state: State) -> list[str]:
    found = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
    for group, versions in state.registry.groups().items():
        if group:
            found += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
    return found


def _openapi(request: Request, parts: tuple[str, ...], state: State) -> Response:
    if parts == ("openapi", "v2"):
        if openapi.PROTOBUF in request.accept:
            return Response(200, openapi.second_as_protobuf(state.release), openapi.RETURNED)
        return Response(200, openapi.second_as_json(state.release), JSON)
    if parts[1:2] != ("v3",):
        return text_response("404 page not found\n", 404)
    path = "/".join(parts[2:])
    document = openapi.document(path, state.registry, state.release)
    if document is None:
        return text_response("404 page not found\n", 404)
    return Response(200, document, JSON if path else "text/plain; charset=utf-8")
