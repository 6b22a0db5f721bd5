"""The schemas of a document: every type once, by name, referring to one another.

Built-in types come from the client's models, custom ones from their definitions, with apiVersion, kind and metadata
added as the real apiserver does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.gofacts import Pair
from fairlead.sandbox.apiserver.kinds.openschema import field_schema
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.kinds.schema import schema_of

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
        one = field_schema(model, field, dict(reference) if reference else None)
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
