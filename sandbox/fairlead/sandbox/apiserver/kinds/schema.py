"""The fields of a built-in type: read from the official client's models, completed by facts of Go's types.

Decoding, pruning, printing and OpenAPI all read `schema_of`; no Kubernetes type is written down again. The models have names,
types and descriptions, but not which Go fields are pointers (a zero survives) and which structs are values (an empty one
is written as `{}`); these are in `gofacts`.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from fairlead.sandbox.apiserver.kinds import gofacts

Scalar = Literal["string", "integer", "number", "boolean", "time", "microtime", "bytes", "quantity", "any", "struct"]

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


@dataclass(frozen=True, slots=True)
class Field:
    """One JSON field: `container` says whether it is a list, a map or a single value of `scalar`."""

    name: str
    scalar: Scalar
    container: Literal["", "list", "map"]
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


@dataclass(frozen=True, slots=True)
class TypeSchema:
    model: str
    go_name: str
    fields: dict[str, Field]
    description: str


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
        if (model, name) in gofacts.NOT_IN_136:
            continue
        fields[name] = _field(model, name, types[name], info.is_required(), info.description or "")
    return TypeSchema(model, go_name(model), fields, _type_description(cls))


def _type_description(cls: Any) -> str:
    """The first paragraph of the model's docstring; the rest explains the generator."""
    return " ".join((cls.__doc__ or "").split("Attributes:")[0].split())


def _field(model: str, name: str, type_: str, required: bool, description: str) -> Field:
    container: Literal["", "list", "map"] = ""
    match = _CONTAINER.match(type_)
    inner = type_
    if match:
        container = "list" if match[1] == "List" else "map"
        inner = match[2]
    scalar: Scalar = _SCALARS.get(inner, "struct")
    ref = inner if scalar == "struct" else ""
    if (model, name) in gofacts.FREE_FORM or inner.startswith(("List[", "Dict[")):
        scalar, ref = "any", ""
    elif scalar == "string" and ((model, name) in gofacts.QUANTITIES or (name, container) in gofacts.QUANTITY_MAPS):
        scalar = "quantity"
    elif scalar == "time" and (model, name) in gofacts.MICRO_TIMES:
        scalar = "microtime"
    return Field(
        name=name,
        scalar=scalar,
        container=container,
        ref=ref,
        required=(required or (model, name) in gofacts.ALWAYS_WRITTEN) and (model, name) not in gofacts.OMITTED_EMPTY,
        pointer=_is_pointer(model, name, scalar),
        value_struct=_is_value_struct(model, name, scalar, container),
        # The models join lines with blanks: two stand where a paragraph ended.
        description=gofacts.DESCRIPTIONS.get((model, name), description.replace("  ", "\n\n")),
        go_type=_go_type(model, name, scalar, container, ref),
    )


def _is_pointer(model: str, name: str, scalar: Scalar) -> bool:
    if scalar == "string":
        return (model, name) in gofacts.POINTER_STRINGS
    if scalar == "integer":
        return (model, name) not in gofacts.PLAIN_INTS and name not in gofacts.PLAIN_INT_NAMES
    if scalar == "boolean":
        return (model, name) not in gofacts.PLAIN_BOOLS and name not in gofacts.PLAIN_BOOL_NAMES
    return True


def _is_value_struct(model: str, name: str, scalar: Scalar, container: str) -> bool:
    if container:
        return False
    if scalar in {"time", "microtime"}:
        return (model, name) in gofacts.VALUE_TIMES
    if scalar != "struct":
        return False
    return (model, name) in gofacts.VALUE_STRUCTS or name in gofacts.VALUE_STRUCT_NAMES.get(model, ())


def go_name(model: str) -> str:
    """The Go type behind a model: "V1Pod" is Pod, "CoreV1Event" is Event."""
    return re.sub(r"^(?:[A-Z][a-z]+)?V\d+(?:(?:alpha|beta)\d+)?(?=[A-Z])", "", model) or model


def _go_type(model: str, name: str, scalar: Scalar, container: str, ref: str) -> str:
    one = {
        "string": "string",
        "integer": "int64" if name in gofacts.INT64_NAMES or (model, name) in gofacts.INT64 else "int32",
        "number": "float64",
        "boolean": "bool",
        "time": "v1.Time",
        "microtime": "v1.MicroTime",
        "bytes": "[]uint8",
        "quantity": "resource.Quantity",
        "any": "runtime.RawExtension",
        "struct": f"v1.{go_name(ref)}",
    }[scalar]
    return {"": one, "list": f"[]{one}", "map": f"map[string]{one}"}[container]
