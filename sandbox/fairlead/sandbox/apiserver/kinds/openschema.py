"""A built-in type as one nested OpenAPI schema, with the extensions that patches and server-side apply read.

Patches, apply and kubectl share this derivation from `schema_of`. Sub-schemas of one model are one dict, shared; a type that
contains itself is cut off at the second level (only JSONSchemaProps does).
"""

from __future__ import annotations

from functools import cache

from fairlead.sandbox.apiserver.kinds import mergekeys
from fairlead.sandbox.apiserver.kinds.gofacts import Pair
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.kinds.schema import Field, schema_of

SCALARS: dict[str, Json] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
    "quantity": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "string"}, {"type": "number"}]},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}


@cache
def nested_schema(model: str, hidden: frozenset[Pair] = frozenset()) -> Json:
    """The schema of a whole model, without $ref and `hidden` fields. Shared by all callers: do not change it."""
    return _nested(model, (), hidden)


@cache
def _nested(model: str, above: tuple[str, ...], hidden: frozenset[Pair]) -> Json:
    if model in above:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = schema_of(model)
    properties: Json = {}
    # Only for a type that can contain itself do the types above count: for all others the cache must hit.
    path = (*above, model) if model == "V1JSONSchemaProps" else above
    for name, field in schema.fields.items():
        if (model, name) not in hidden:
            properties[name] = field_schema(model, field, _nested(field.ref, path, hidden) if field.ref else None)
    out: Json = {"type": "object", "properties": properties}
    required = [name for name, field in schema.fields.items() if field.required]
    if required:
        out["required"] = required
    if (model, "@") in mergekeys.ATOMIC_MAPS:
        out["x-kubernetes-map-type"] = "atomic"
    return out


def field_schema(model: str, field: Field, struct: Json | None) -> Json:
    """The schema of one field; `struct` stands for the value where it is one (a nested schema, or a $ref)."""
    one: Json = struct if struct is not None else dict(SCALARS[field.scalar])
    if field.scalar == "integer":
        one["format"] = "int64" if "int64" in field.go_type else "int32"
    if field.container == "map":
        out: Json = {"type": "object", "additionalProperties": one}
        if (model, field.name) in mergekeys.ATOMIC_MAPS:
            out["x-kubernetes-map-type"] = "atomic"
        return out
    if field.container == "list":
        return {"type": "array", "items": one, **list_extensions(model, field.name)}
    if (model, field.name) in mergekeys.RETAIN_KEYS:
        return {**one, "x-kubernetes-patch-strategy": "retainKeys"}
    return one


def list_extensions(model: str, name: str) -> Json:
    pair = (model, name)
    out: Json = {}
    if pair in mergekeys.LIST_KEYS:
        out["x-kubernetes-list-type"] = "map"
        out["x-kubernetes-list-map-keys"] = list(mergekeys.LIST_KEYS[pair])
    elif pair in mergekeys.SETS:
        out["x-kubernetes-list-type"] = "set"
    else:
        out["x-kubernetes-list-type"] = "atomic"
    if pair in mergekeys.PATCH_KEYS:
        out["x-kubernetes-patch-merge-key"] = mergekeys.PATCH_KEYS[pair]
        out["x-kubernetes-patch-strategy"] = "merge,retainKeys" if pair in mergekeys.RETAIN_KEYS else "merge"
    elif pair in mergekeys.SETS and pair[0] in {"V1ObjectMeta", "V1NodeSpec"}:
        out["x-kubernetes-patch-strategy"] = "merge"
    return out
