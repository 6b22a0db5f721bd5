"""JSON into a built-in type and back, as Go does it: types checked, unknown fields dropped and named, zero values in form.

A wrong type gives Go's message, and an object has exactly the fields that the real apiserver prints. `decode` changes the
object in place. It checks shapes only; values are validated by the kind. Bodies that are not stored objects (evictions, bindings, scales,
token requests, reviews) have no strategy that decodes them: `fit` does.
Source: sigs.k8s.io/json (strict mode), encoding/json's omitempty, apimachinery's Time and Quantity.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from fairlead.kube.quantity import Quantity
from fairlead.sandbox.apiserver.kinds.errors import quote
from fairlead.sandbox.apiserver.kinds.request import DecodeError, Json
from fairlead.sandbox.apiserver.kinds.schema import Field, TypeSchema, schema_of
from fairlead.sandbox.release import Pair

_TIME = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)$")
_ZERO: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "quantity": "0"}
QUANTITY_COMPLAINT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@dataclass(frozen=True, slots=True)
class _Fields:
    """`unknown` gathers the paths of fields that were dropped; `hidden` are those of the models that this release has not."""

    hidden: frozenset[Pair]
    unknown: list[str]


def decode(obj: Json, model: str, hidden: frozenset[Pair] = frozenset()) -> list[str]:
    """Check and normalise a whole object in place; returns `unknown field "spec.x"` for each field it dropped.

    `hidden` fields, as model and name, are unknown, too. Raises DecodeError with Go's text when a value has the wrong type.
    """
    fields = _Fields(hidden, [])
    _struct(obj, schema_of(model), (), "", fields)
    return [f"unknown field {quote(path)}" for path in fields.unknown]


def _struct(obj: Json, schema: TypeSchema, stack: tuple[str, ...], path: str, fields: _Fields) -> None:
    for name in list(obj):
        field = schema.fields.get(name)
        if field is None or (schema.model, name) in fields.hidden:
            fields.unknown.append(f"{path}{name}")
            del obj[name]
            continue
        if name == "metadata" and field.ref == "V1ObjectMeta" and not stack:
            continue  # the core decodes ObjectMeta of whole objects
        value = _value(obj[name], field, schema, (*stack, name), f"{path}{name}", fields)
        if value is None or _omitted(value, field):
            del obj[name]
        elif field.container and not value:
            obj[name] = None  # stored as protobuf, which has no empty list
        else:
            obj[name] = value
    for field in _always_written(schema.model):
        if field.name not in obj:
            _write_zero(obj, field)


@cache
def _always_written(model: str) -> tuple[Field, ...]:
    """The fields that Go writes even when they are not set: no omitempty, or structs by value."""
    return tuple(
        field
        for name, field in schema_of(model).fields.items()
        if name not in {"apiVersion", "kind"}
        and (
            field.value_struct
            if not field.container and field.scalar == "struct" and field.ref == "V1ObjectMeta"
            else field.required or field.value_struct
        )
    )


def _omitted(value: Any, field: Field) -> bool:
    if field.required:
        return False
    if field.container:
        return not value
    if field.pointer:
        return False
    return value in ("", 0, False)


def _write_zero(obj: Json, field: Field) -> None:
    if field.container or field.scalar not in {"struct", *_ZERO}:
        obj[field.name] = None
    elif field.scalar == "struct":
        obj[field.name] = zero(field.ref)
    else:
        obj[field.name] = _ZERO[field.scalar]


def zero(model: str) -> Json:
    """The zero value of a struct as Go prints it."""
    obj: Json = {}
    for field in _always_written(model):
        _write_zero(obj, field)
    return obj


def _value(value: Any, field: Field, owner: TypeSchema, stack: tuple[str, ...], path: str, fields: _Fields) -> Any:
    if value is None:
        return None
    if field.container == "list":
        if not isinstance(value, list):
            raise _mismatch(value, field.go_type, owner, stack)
        out = []
        for index, item in enumerate(value):
            one = _one(item, field, owner, stack, f"{path}[{index}]", fields)
            out.append(one)
        return out
    if field.container == "map":
        if not isinstance(value, dict):
            raise _mismatch(value, field.go_type, owner, stack)
        return {key: _one(item, field, owner, stack, f"{path}.{key}", fields) for key, item in value.items()}
    return _one(value, field, owner, stack, path, fields)


def _one(value: Any, field: Field, owner: TypeSchema, stack: tuple[str, ...], path: str, fields: _Fields) -> Any:
    scalar = field.scalar
    if scalar == "any":
        return value
    go_type = field.go_type.removeprefix("[]" if field.container == "list" else "map[string]")
    if value is None:  # an element of a list or a map
        return zero(field.ref) if scalar == "struct" else _ZERO.get(scalar)
    if scalar == "struct":
        if not isinstance(value, dict):
            raise _mismatch(value, go_type, owner, stack)
        _struct(value, schema_of(field.ref), stack, f"{path}.", fields)
        return value
    if scalar == "string":
        if not isinstance(value, str):
            raise _mismatch(value, go_type, owner, stack)
        return value
    if scalar == "boolean":
        if not isinstance(value, bool):
            raise _mismatch(value, go_type, owner, stack)
        return value
    if scalar == "integer":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _mismatch(value, go_type, owner, stack)
        if isinstance(value, float):
            if not value.is_integer():
                raise _mismatch(value, go_type, owner, stack)
            value = int(value)
        bits = 63 if go_type == "int64" else 31
        if not -(2**bits) <= value < 2**bits:
            raise _mismatch(value, go_type, owner, stack)
        return value
    if scalar == "number":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _mismatch(value, go_type, owner, stack)
        return value
    if scalar == "quantity":
        return _quantity(value)
    if scalar == "bytes":
        return _bytes(value, owner, stack)
    return _time(value, micro=scalar == "microtime")


def _mismatch(value: Any, go_type: str, owner: TypeSchema, stack: tuple[str, ...]) -> DecodeError:
    what = _json_type(value)
    if what == "number" and go_type.startswith("int"):
        what = f"number {value}"
    return DecodeError(
        f"json: cannot unmarshal {what} into Go struct field {owner.go_name}.{'.'.join(stack)} of type {go_type}"
    )


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _quantity(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise DecodeError(QUANTITY_COMPLAINT)
    try:
        return str(Quantity.parse(str(value).strip()))
    except ValueError as error:
        raise DecodeError(QUANTITY_COMPLAINT) from error


def _bytes(value: Any, owner: TypeSchema, stack: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        raise _mismatch(value, "[]uint8", owner, stack)
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DecodeError(f"illegal base64 data at input byte {_first_bad_byte(value)}") from error
    return value


def _first_bad_byte(text: str) -> int:
    match = re.match(r"[A-Za-z0-9+/]*", text)
    return match.end() if match else 0


def _time(value: Any, *, micro: bool) -> str | None:
    if not isinstance(value, str):
        raise DecodeError(f"json: cannot unmarshal {_json_type(value)} into Go value of type string")
    match = _TIME.match(value)
    if match is None:
        layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
        raise DecodeError(
            f"parsing time {quote(value)} as {quote(layout)}: cannot parse {quote(value)} as {quote('2006')}"
        )
    try:
        moment = datetime.fromisoformat(match[1] + (match[3] if match[3] != "Z" else "+00:00")).astimezone(UTC)
    except ValueError as error:
        raise DecodeError(f"parsing time {quote(value)}: {error}") from error
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    if not micro:
        return f"{text}Z"
    fraction = (match[2] or ".")[1:7].ljust(6, "0")
    return f"{text}.{fraction}Z"


_MODELS = {"TokenRequest": "AuthenticationV1TokenRequest"}


def fit(obj: Json, kind: str) -> None:
    """Check the types and drop what is not in the kind, in place. Raises DecodeError."""
    model = _MODELS.get(kind, f"V1{kind}")
    try:
        schema_of(model)
    except KeyError:
        return
    meta = obj.get("metadata", {})
    if meta is None:
        del obj["metadata"]
    elif not isinstance(meta, dict):
        what = "array" if isinstance(meta, list) else "string" if isinstance(meta, str) else "number"
        raise DecodeError(f"json: cannot unmarshal {what} into Go struct field {kind}.metadata of type v1.ObjectMeta")
    decode(obj, model)
