"""OpenAPI v3, one document per group version, as kubectl reads it: explain, apply, server-side validation.

Documents are built on request and cached while the kinds of their group version are the same; the index needs no
document. Version 2 is in `second`.
Source: k8s.io/kube-openapi/pkg/handler3, k8s.io/apiserver's OpenAPI builder (1.36).
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache

from fairlead.sandbox.apiserver.kinds.base import Kind, Registry
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.openapi.components import components, paths_of
from fairlead.sandbox.release import NEWEST, Release

_PLAIN = (".well-known/openid-configuration", "api", "apis", "openid/v1/jwks", "version")


def document(path: str, registry: Registry, release: Release = NEWEST) -> bytes | None:
    """The index for "", a group version's document for "api/v1" or "apis/<group>/<version>"; None for other paths."""
    if not path:
        return _index(registry, release)
    if path in _plain_paths(registry):
        return _encode({"openapi": "3.0.0", "info": _info(release), "paths": {}, "components": {"schemas": {}}})
    parts = path.split("/")
    if parts[0] == "api" and len(parts) == 2:
        kinds = registry.in_version("", parts[1])
    elif parts[0] == "apis" and len(parts) == 3:
        kinds = registry.in_version(parts[1], parts[2])
    else:
        return None
    return _made(tuple(kinds), release) if kinds else None


def _info(release: Release) -> Json:
    return {"title": "Kubernetes", "version": f"v{release.version}"}


@lru_cache(maxsize=64)
def _made(kinds: tuple[Kind, ...], release: Release) -> bytes:
    paths: Json = {}
    for kind in kinds:
        paths |= paths_of(kind)
    return _encode(
        {
            "openapi": "3.0.0",
            "info": _info(release),
            "paths": dict(sorted(paths.items())),
            "components": {"schemas": components(kinds, release.unknown)},
        }
    )


def _plain_paths(registry: Registry) -> list[str]:
    return [*_PLAIN, *(f"apis/{group}" for group in registry.groups() if group)]


def _index(registry: Registry, release: Release) -> bytes:
    paths = {path: _entry(path, path) for path in _plain_paths(registry)}
    for group, versions in registry.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = _entry(path, _identity(registry.in_version(group, version), release))
    return _encode({"paths": dict(sorted(paths.items()))})


def _entry(path: str, identity: str) -> Json:
    digest = hashlib.sha512(identity.encode()).hexdigest().upper()
    return {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}


def _identity(kinds: list[Kind], release: Release) -> str:
    """A hash of a group version's kinds, known without building the document: clients cache by it."""
    shown: list[object] = [
        (
            kind.plural,
            kind.kind,
            [one.name for one in kind.subresources],
            kind.strategy.schema if kind.strategy.custom_resource else type(kind.strategy).__name__,
        )
        for kind in kinds
    ]
    if release != NEWEST:
        shown.append(release.version)
    return json.dumps(shown, sort_keys=True)


def _encode(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
