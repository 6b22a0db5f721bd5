"""OpenAPI v3, one document per group version, as kubectl reads it: explain, apply, server-side validation. And v2 in brief.

Documents are built on request and cached while the kinds of their group version are the same; the index needs no document.
Schemas: every type once, by name, referring to one another. Built-in types come from the client's models, custom ones from their
definitions, with apiVersion, kind and metadata added as the real apiserver does. Paths: for every kind the operations that its verbs
allow. kubectl finds a kind by the group-version-kind of its operations, and reads from the PATCH operation whether the server
supports `dryRun`, `fieldValidation` and strategic merge patches.

For a kind that no document of version 3 has, such as one whose CRD is not installed yet, kubectl asks version 2, as protobuf, and
looks for `fieldValidation` among the parameters of a Namespace's PATCH. So that is what version 2 has, and the error is the real one:
"no matches for kind … ensure CRDs are installed first".
Sources: k8s.io/kube-openapi/pkg/handler3, k8s.io/apiserver's OpenAPI builder (1.36);
k8s.io/cli-runtime/pkg/resource/query_param_verifier.go; github.com/google/gnostic-models/openapiv2/OpenAPIv2.proto (field numbers).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from functools import lru_cache

from fairlead.sandbox.apiserver.kinds.base import Kind, Registry
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.kinds.schema import field_schema, schema_of
from fairlead.sandbox.release import NEWEST, Pair, Release

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
        paths |= _paths(kind)
    return _encode(
        {
            "openapi": "3.0.0",
            "info": _info(release),
            "paths": dict(sorted(paths.items())),
            "components": {"schemas": _components(kinds, release.unknown)},
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


_API_VERSION = (
    "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized "
    "schemas to the latest internal value, and may reject unrecognized values. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
)
_KIND = (
    "Kind is a string value representing the REST resource this object represents. Servers may infer this from the "
    "endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
)
_META = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
_PREFIX = "#/components/schemas/"


def _schema_name(model: str) -> str:
    """The schema name of a model: "V1Pod" is io.k8s.api.v1.Pod; kubectl shows the last part."""
    match = re.match(r"^([A-Z][a-z]+)?(V\d+(?:(?:alpha|beta)\d+)?)(?=[A-Z])(.*)", model)
    if match is None:
        return f"io.k8s.api.{model}"
    group = f"{match[1].lower()}." if match[1] else ""
    return f"io.k8s.api.{group}{match[2].lower()}.{match[3]}"


def _components(kinds: Iterable[Kind], hidden: frozenset[Pair] = frozenset()) -> Json:
    """All schemas that the kinds need, without fields that are `hidden`."""
    found: Json = {}
    for kind in kinds:
        strategy = kind.strategy
        gvk = [{"group": kind.group, "version": kind.version, "kind": kind.kind}]
        if isinstance(strategy, BuiltIn):
            _add(strategy.model, found, hidden)
            own = found[_schema_name(strategy.model)]
            own["x-kubernetes-group-version-kind"] = [*own.get("x-kubernetes-group-version-kind", []), *gvk]
        else:
            _add("V1ObjectMeta", found, hidden)
            found[_custom_name(kind)] = _custom(strategy.schema, gvk)
    return found


def _custom_name(kind: Kind) -> str:
    return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.kind}"


def _custom(schema: Json, gvk: list[Json]) -> Json:
    properties = {key: value for key, value in (schema.get("properties") or {}).items() if key != "metadata"}
    meta = {"allOf": [{"$ref": _PREFIX + _schema_name("V1ObjectMeta")}], "description": _META}
    head = {
        "apiVersion": {"type": "string", "description": _API_VERSION},
        "kind": {"type": "string", "description": _KIND},
        "metadata": meta,
    }
    return {**schema, "properties": {**head, **properties}, "x-kubernetes-group-version-kind": gvk}


def _add(model: str, found: Json, hidden: frozenset[Pair]) -> None:
    name = _schema_name(model)
    if name in found:
        return
    schema = schema_of(model)
    own: Json = {"type": "object"}
    found[name] = own
    if schema.description:
        own["description"] = schema.description
    properties: Json = {}
    for field in schema.fields.values():
        if (model, field.name) in hidden:
            continue
        reference = {"$ref": _PREFIX + _schema_name(field.ref)} if field.ref else None
        one = field_schema(field, dict(reference) if reference else None)
        if reference and not field.container:
            one = {"allOf": [reference], **{key: value for key, value in one.items() if key != "$ref"}}
        if field.description:
            one["description"] = field.description
        properties[field.name] = one
        if field.ref:
            _add(field.ref, found, hidden)
    own["properties"] = properties
    required = sorted(field.name for field in schema.fields.values() if field.required)
    if required:
        own["required"] = required


_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_READ = ("continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "timeoutSeconds", "watch")
_OPERATIONS = {
    "list": ("get", "list", _READ),
    "create": ("post", "post", _WRITE),
    "deletecollection": ("delete", "deletecollection", _READ),
    "get": ("get", "get", ()),
    "update": ("put", "put", _WRITE),
    "patch": ("patch", "patch", (*_WRITE, "force")),
    "delete": ("delete", "delete", ("dryRun", "gracePeriodSeconds", "propagationPolicy")),
}
"""By verb: method, action and parameters."""
_COLLECTION, _ITEM = ("list", "create", "deletecollection"), ("get", "update", "patch", "delete")
_PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"
_TYPES = {"limit": "integer", "timeoutSeconds": "integer", "gracePeriodSeconds": "integer", "watch": "boolean"}


def _paths(kind: Kind) -> Json:
    """Path → operations."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    item = f"{collection}/{{name}}"
    where = ["namespace"] if kind.namespaced else []
    out = {collection: _operations(kind, _COLLECTION, where), item: _operations(kind, _ITEM, [*where, "name"])}
    if kind.namespaced and "list" in kind.verbs:
        out[f"{root}/{kind.plural}"] = _operations(kind, ["list"], [])
    for subresource in kind.subresources:
        if subresource.verbs == ("get", "patch", "update"):
            out[f"{item}/{subresource.name}"] = out[item]
    return {path: operations for path, operations in out.items() if len(operations) > 1}


def _operations(kind: Kind, verbs: Iterable[str], where: list[str]) -> Json:
    out: Json = {"parameters": [_parameter(name, "path") for name in where]}
    for verb in verbs:
        if verb in kind.verbs:
            method, action, parameters = _OPERATIONS[verb]
            out[method] = {
                "operationId": f"{action}{kind.group.partition('.')[0].title()}{kind.version.title()}{kind.kind}",
                "parameters": [_parameter(name, "query") for name in parameters],
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            }
            if verb == "patch":
                types = _PATCH_TYPES if kind.strategy.custom_resource else (*_PATCH_TYPES, _STRATEGIC)
                body = {"content": {one: {"schema": {"type": "object"}} for one in types}}
                out[method]["requestBody"] = body
    return out


def _parameter(name: str, where: str) -> Json:
    found = {"name": name, "in": where, "schema": {"type": _TYPES.get(name, "string"), "uniqueItems": True}}
    return found if where == "query" else {**found, "required": True}


PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
RETURNED = PROTOBUF.replace("@", ".")
"""A media type has no @: kube-openapi answers so."""
_PATCHED = "/api/v1/namespaces/{name}"
_NAMESPACE = {"group": "", "kind": "Namespace", "version": "v1"}
_PARAMETER = "fieldValidation"


def second_as_json(release: Release) -> bytes:
    operation = {
        "operationId": "patchCoreV1Namespace",
        "parameters": [{"in": "query", "name": _PARAMETER, "type": "string", "uniqueItems": True}],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": _NAMESPACE,
    }
    document: Json = {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": f"v{release.version}"},
        "paths": {_PATCHED: {"patch": operation}},
        "definitions": {},
    }
    return _encode(document)


def second_as_protobuf(release: Release) -> bytes:
    """The same document. A field is written as its number, its length and its bytes."""
    info = _field(1, b"Kubernetes") + _field(2, f"v{release.version}".encode())
    query = _field(2, b"query") + _field(4, _PARAMETER.encode())
    parameter = _field(1, _field(2, _field(3, query)))  # ParametersItem: Parameter: NonBodyParameter: query
    extension = _field(1, b"x-kubernetes-group-version-kind") + _field(2, _field(2, json.dumps(_NAMESPACE).encode()))
    operation = _field(5, b"patchCoreV1Namespace") + _field(8, parameter) + _field(13, extension)
    path = _field(1, _PATCHED.encode()) + _field(2, _field(8, operation))
    return _field(1, b"2.0") + _field(2, info) + _field(8, _field(2, path))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
