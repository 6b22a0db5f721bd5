"""The fields of a built-in type: read from the official client's models, completed by facts of Go's types (gotypes.yaml).

Decoding, pruning, printing, patches, server-side apply and OpenAPI all read `schema_of`; no Kubernetes type is written down again.
The models have names, types and descriptions, but not which Go fields are pointers (a zero survives), which structs are values
(an empty one is written as `{}`), and how lists merge. As one nested OpenAPI schema (`nested_schema`) sub-schemas of one model are
one dict, shared; a type that contains itself is cut off at the second level (only JSONSchemaProps does).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.files import table
from fairlead.sandbox.release import Pair

Scalar = Literal["string", "integer", "number", "boolean", "time", "microtime", "bytes", "quantity", "any", "struct"]
Container = Literal["", "list", "map"]

_CONTAINER = re.compile(r"^(List|Dict)\[(?:str, )?(.+)\]$")
_SCALARS: dict[str, Scalar] = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "datetime": "time",
    "bytes": "bytes",
    "object": "any",
}
_GO: dict[Scalar, str] = {
    "string": "string",
    "integer": "int32",
    "number": "float64",
    "boolean": "bool",
    "time": "v1.Time",
    "microtime": "v1.MicroTime",
    "bytes": "[]uint8",
    "quantity": "resource.Quantity",
    "any": "runtime.RawExtension",
}
_OPENAPI: dict[Scalar, Json] = {
    "string": {"type": "string"},
    "number": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
    "quantity": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "string"}, {"type": "number"}]},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}


@dataclass(frozen=True, slots=True)
class Field:
    """One JSON field: `container` says whether it is a list, a map or a single value of `scalar`."""

    name: str
    scalar: Scalar
    container: Container
    ref: str
    """The model's name where scalar is "struct", else empty."""
    required: bool
    """Written even when zero (Go: no omitempty)."""
    pointer: bool
    """A zero value that the user gave survives (Go: a pointer)."""
    value_struct: bool
    """An absent struct is written as {} (or an absent time as null)."""
    description: str
    go_type: str
    facts: Mapping[str, str]
    """By the words of gotypes.yaml."""


@dataclass(frozen=True, slots=True)
class TypeSchema:
    model: str
    go_name: str
    fields: dict[str, Field]
    description: str
    atomic: bool = False
    """Server-side apply replaces it whole."""


@cache
def _known() -> Json:
    found: Json = table(__file__, "gotypes.yaml")
    return {**found, "names": {word: set(names.split()) for word, names in found["names"].items()}}


def _facts(model: str, name: str) -> Mapping[str, str]:
    words = _known()["fields"].get(model, {}).get(name, "").split()
    return {word: value for word, _, value in (each.partition("=") for each in words)}


@cache
def schema_of(model: str) -> TypeSchema:
    """The schema of a model of `kubernetes.client`, such as "V1Pod". Raises KeyError for a name it does not have."""
    cls = getattr(importlib.import_module("kubernetes.client"), model, None)
    if cls is None:
        raise KeyError(f"kubernetes.client has no model {model!r}")
    fields: dict[str, Field] = {}
    types = {cls.attribute_map[attribute]: type_ for attribute, type_ in cls.openapi_types.items()}
    for attribute, info in cls.model_fields.items():
        name = info.serialization_alias or attribute
        facts = _facts(model, name)
        if "later" not in facts:
            text = _known()["descriptions"].get(model, {}).get(name)
            # The models join lines with blanks: two stand where a paragraph ended.
            description = text or (info.description or "").replace("  ", "\n\n")
            fields[name] = _field(name, types[name], facts, required=info.is_required(), description=description)
    return TypeSchema(model, go_name(model), fields, _type_description(cls), "atomic" in _facts(model, "@"))


def _type_description(cls: Any) -> str:
    """The first paragraph of the model's docstring; the rest explains the generator."""
    return " ".join((cls.__doc__ or "").split("Attributes:")[0].split())


def _field(name: str, type_: str, facts: Mapping[str, str], *, required: bool, description: str) -> Field:
    container: Container = ""
    inner = type_
    if match := _CONTAINER.match(type_):
        container = "list" if match[1] == "List" else "map"
        inner = match[2]
    names = _known()["names"]
    scalar: Scalar = _SCALARS.get(inner, "struct")
    if "free" in facts or inner.startswith(("List[", "Dict[")):
        scalar = "any"
    elif scalar == "string" and ("quantity" in facts or (container == "map" and name in names["quantity"])):
        scalar = "quantity"
    elif scalar == "time" and "micro" in facts:
        scalar = "microtime"
    ref = inner if scalar == "struct" else ""
    go = f"v1.{go_name(ref)}" if ref else _GO[scalar]
    if scalar == "integer" and ("int64" in facts or name in names["int64"]):
        go = "int64"
    plain = scalar in {"integer", "boolean"} and ("plain" in facts or name in names["plain"])
    return Field(
        name=name,
        scalar=scalar,
        container=container,
        ref=ref,
        required=(required or "written" in facts) and "omitted" not in facts,
        pointer="pointer" in facts if scalar == "string" else not plain,
        value_struct=not container and "value" in facts,
        description=description,
        go_type={"": "", "list": "[]", "map": "map[string]"}[container] + go,
        facts=facts,
    )


def go_name(model: str) -> str:
    """The Go type behind a model: "V1Pod" is Pod, "CoreV1Event" is Event."""
    return re.sub(r"^(?:[A-Z][a-z]+)?V\d+(?:(?:alpha|beta)\d+)?(?=[A-Z])", "", model) or model


# -- as OpenAPI


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
            properties[name] = field_schema(field, _nested(field.ref, path, hidden) if field.ref else None)
    out: Json = {"type": "object", "properties": properties}
    required = [name for name, field in schema.fields.items() if field.required]
    if required:
        out["required"] = required
    if schema.atomic:
        out["x-kubernetes-map-type"] = "atomic"
    return out


def field_schema(field: Field, struct: Json | None) -> Json:
    """The schema of one field; `struct` stands for the value where it is one (a nested schema, or a $ref)."""
    if field.scalar == "integer":
        one: Json = {"type": "integer", "format": "int64" if "int64" in field.go_type else "int32"}
    else:
        one = struct if struct is not None else dict(_OPENAPI[field.scalar])
    if field.container == "map":
        out: Json = {"type": "object", "additionalProperties": one}
        return out | {"x-kubernetes-map-type": "atomic"} if "atomic" in field.facts else out
    if field.container == "list":
        return {"type": "array", "items": one, **_list_extensions(field.facts)}
    return {**one, "x-kubernetes-patch-strategy": "retainKeys"} if "retain" in field.facts else one


def _list_extensions(facts: Mapping[str, str]) -> Json:
    kind = "map" if "keys" in facts else "set" if "set" in facts else "atomic"
    out: Json = {"x-kubernetes-list-type": kind}
    if "keys" in facts:
        out["x-kubernetes-list-map-keys"] = facts["keys"].split(",")
    if "patch" in facts:
        out["x-kubernetes-patch-merge-key"] = facts["patch"]
    if "patch" in facts or "merge" in facts:
        out["x-kubernetes-patch-strategy"] = "merge,retainKeys" if "retain" in facts else "merge"
    return out
