"""Discovery: which groups, versions and resources there are, plain and aggregated. CRDs appear as they are served.

Pure functions of the registry. Source: k8s.io/apiserver/pkg/endpoints/discovery (1.36).
"""

from __future__ import annotations

import base64
import hashlib

from fairlead.sandbox.apiserver.kinds.base import Kind, Registry, Subresource
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.release import Release

_CUSTOM_VERBS = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)  # apiextensions' order


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
