"""A document's schemas and paths, as far as kubectl reads them.

Schemas: every type once, by name, referring to one another. Built-in types come from the client's models, custom ones from their
definitions, with apiVersion, kind and metadata added as the real apiserver does. Paths: for every kind the operations that its verbs
allow. kubectl finds a kind by the group-version-kind of its operations, and reads from the PATCH operation whether the server
supports `dryRun`, `fieldValidation` and strategic merge patches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.kinds.schema import field_schema, schema_of
from fairlead.sandbox.release import Pair

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


def name_of(model: str) -> str:
    """The schema name of a model: "V1Pod" is io.k8s.api.v1.Pod; kubectl shows the last part."""
    match = re.match(r"^([A-Z][a-z]+)?(V\d+(?:(?:alpha|beta)\d+)?)(?=[A-Z])(.*)", model)
    if match is None:
        return f"io.k8s.api.{model}"
    group = f"{match[1].lower()}." if match[1] else ""
    return f"io.k8s.api.{group}{match[2].lower()}.{match[3]}"


def components(kinds: Iterable[Kind], hidden: frozenset[Pair] = frozenset()) -> Json:
    """All schemas that the kinds need, without fields that are `hidden`."""
    found: Json = {}
    for kind in kinds:
        strategy = kind.strategy
        gvk = [{"group": kind.group, "version": kind.version, "kind": kind.kind}]
        if isinstance(strategy, BuiltIn):
            _add(strategy.model, found, hidden)
            own = found[name_of(strategy.model)]
            own["x-kubernetes-group-version-kind"] = [*own.get("x-kubernetes-group-version-kind", []), *gvk]
        else:
            _add("V1ObjectMeta", found, hidden)
            found[_custom_name(kind)] = _custom(strategy.schema, gvk)
    return found


def _custom_name(kind: Kind) -> str:
    return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.kind}"


def _custom(schema: Json, gvk: list[Json]) -> Json:
    properties = {key: value for key, value in (schema.get("properties") or {}).items() if key != "metadata"}
    meta = {"allOf": [{"$ref": _PREFIX + name_of("V1ObjectMeta")}], "description": _META}
    head = {
        "apiVersion": {"type": "string", "description": _API_VERSION},
        "kind": {"type": "string", "description": _KIND},
        "metadata": meta,
    }
    return {**schema, "properties": {**head, **properties}, "x-kubernetes-group-version-kind": gvk}


def _add(model: str, found: Json, hidden: frozenset[Pair]) -> None:
    name = name_of(model)
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
        reference = {"$ref": _PREFIX + name_of(field.ref)} if field.ref else None
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
_PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"
_READ = ("continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "timeoutSeconds", "watch")
_OK: Json = {"200": {"description": "OK"}}


def paths_of(kind: Kind) -> Json:
    """Path → operations."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    item = f"{collection}/{{name}}"
    where = [_in_path("namespace")] if kind.namespaced else []
    out: Json = {
        collection: {**_collection(kind), "parameters": where},
        item: {**_item(kind), "parameters": [*where, _in_path("name")]},
    }
    if kind.namespaced and "list" in kind.verbs:
        out[f"{root}/{kind.plural}"] = {"get": _operation(kind, "list", _READ), "parameters": []}
    for subresource in kind.subresources:
        if subresource.verbs == ("get", "patch", "update"):
            out[f"{item}/{subresource.name}"] = {**_item(kind), "parameters": [*where, _in_path("name")]}
    return {path: operations for path, operations in out.items() if len(operations) > 1}


def _collection(kind: Kind) -> Json:
    out: Json = {}
    if "list" in kind.verbs:
        out["get"] = _operation(kind, "list", _READ)
    if "create" in kind.verbs:
        out["post"] = _operation(kind, "post", _WRITE)
    if "deletecollection" in kind.verbs:
        out["delete"] = _operation(kind, "deletecollection", _READ)
    return out


def _item(kind: Kind) -> Json:
    out: Json = {}
    if "get" in kind.verbs:
        out["get"] = _operation(kind, "get", ())
    if "update" in kind.verbs:
        out["put"] = _operation(kind, "put", _WRITE)
    if "patch" in kind.verbs:
        types = _PATCH_TYPES if kind.strategy.custom_resource else (*_PATCH_TYPES, _STRATEGIC)
        out["patch"] = _operation(kind, "patch", (*_WRITE, "force"))
        out["patch"]["requestBody"] = {"content": {one: {"schema": {"type": "object"}} for one in types}}
    if "delete" in kind.verbs:
        out["delete"] = _operation(kind, "delete", ("dryRun", "gracePeriodSeconds", "propagationPolicy"))
    return out


def _operation(kind: Kind, action: str, parameters: tuple[str, ...]) -> Json:
    return {
        "operationId": f"{action}{kind.group.partition('.')[0].title()}{kind.version.title()}{kind.kind}",
        "parameters": [_query(name) for name in parameters],
        "responses": _OK,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }


def _query(name: str) -> Json:
    types = {"limit": "integer", "timeoutSeconds": "integer", "gracePeriodSeconds": "integer", "watch": "boolean"}
    return {"name": name, "in": "query", "schema": {"type": types.get(name, "string"), "uniqueItems": True}}


def _in_path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}
