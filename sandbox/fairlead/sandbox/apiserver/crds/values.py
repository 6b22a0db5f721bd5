"""An object against its structural schema: unknown fields pruned, defaults set, and validation with the real apiserver's messages.

Required, types, limits, enums, patterns, formats, list types, and the combinators; CEL rules are in `rules`. Pure but that pruning and
defaulting change the object in place; FieldErrors come in a stable order.
Source: k8s.io/kube-openapi/pkg/validation, apiextensions-apiserver/pkg/apiserver/{validation,schema/pruning,schema/defaulting} (1.36).
"""

from __future__ import annotations

import base64
import binascii
import copy
import ipaddress
import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

import re2

from fairlead.sandbox.apiserver.kinds.errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)
from fairlead.sandbox.apiserver.kinds.request import Json

_DURATION = re.compile(r"[-+]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w))+")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_IGNORED_AT_ROOT = {"apiVersion", "kind", "metadata"}


def validate(value: Any, schema: Json, path: str = "") -> Iterator[FieldError]:
    """Every violation. `path` is empty at the root."""
    if value is None:
        if schema.get("nullable") or not schema.get("type"):
            return
        yield _wrong_type("null", schema, path)
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            yield type_invalid(
                path, _type_of(value), f"{path} in body must be of type integer,string: {_shown_type(value)}"
            )
            return
    elif schema.get("type") and not _has_type(value, schema["type"]):
        yield _wrong_type(_type_of(value), schema, path)
        return
    if isinstance(value, dict):
        yield from _object(value, schema, path)
    elif isinstance(value, list):
        yield from _list(value, schema, path)
    elif isinstance(value, str):
        yield from _string(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number(value, schema, path)
    enum = schema.get("enum")
    if enum is not None and value not in enum:
        yield not_supported(path, value, [one if isinstance(one, str) else json.dumps(one) for one in enum])
    yield from _combined(value, schema, path)


def _combined(value: Any, schema: Json, path: str) -> Iterator[FieldError]:
    for one in schema.get("allOf") or []:
        yield from validate(value, one, path)
    if schema.get("anyOf") and not schema.get("x-kubernetes-int-or-string"):
        branches = [list(validate(value, one, path)) for one in schema["anyOf"]]
        if all(branches):
            yield from min(branches, key=len)
            yield _composed(path, "must validate at least one schema (anyOf)")
    if schema.get("oneOf"):
        passing = sum(1 for one in schema["oneOf"] if not any(True for _ in validate(value, one, path)))
        if passing != 1:
            found = "Found none valid" if passing == 0 else f"Found {passing} valid alternatives"
            yield _composed(path, f"must validate one and only one schema (oneOf). {found}")
    if schema.get("not") is not None and not any(True for _ in validate(value, schema["not"], path)):
        yield _composed(path, "must not validate the schema (not)")


def _composed(path: str, what: str) -> FieldError:
    """Combinators' errors have no field in the real one, but name it in the text."""
    return invalid("<nil>", "", f'"{path}" {what}')


def _object(value: Json, schema: Json, path: str) -> Iterator[FieldError]:
    for name in schema.get("required") or []:
        if name not in value:
            yield required(_join(path, name))
    count = len(value)
    if schema.get("maxProperties") is not None and count > schema["maxProperties"]:
        yield too_many(path, count, schema["maxProperties"])
    if schema.get("minProperties") is not None and count < schema["minProperties"]:
        yield invalid(path, count, f"{path} in body should have at least {schema['minProperties']} properties")
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, inner in value.items():
        here = _join(path, name)
        if not path and name in _IGNORED_AT_ROOT:
            continue
        if name in properties:
            yield from validate(inner, properties[name], here)
        elif isinstance(additional, dict):
            yield from validate(inner, additional, here)


def _list(value: list[Any], schema: Json, path: str) -> Iterator[FieldError]:
    if schema.get("maxItems") is not None and len(value) > schema["maxItems"]:
        yield too_many(path, len(value), schema["maxItems"])
    if schema.get("minItems") is not None and len(value) < schema["minItems"]:
        yield invalid(path, len(value), f"{path} in body should have at least {schema['minItems']} items")
    items = schema.get("items")
    if isinstance(items, dict):
        for index, one in enumerate(value):
            yield from validate(one, items, f"{path}[{index}]")
    yield from _list_type(value, schema, path)


def _list_type(value: list[Any], schema: Json, path: str) -> Iterator[FieldError]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in {"set", "map"}:
        return
    seen: set[str] = set()
    for index, one in enumerate(value):
        shown: Any = one
        if kind == "map":
            if not isinstance(one, dict):
                continue
            shown = {key: one.get(key) for key in schema.get("x-kubernetes-list-map-keys") or [] if key in one}
        mark = json.dumps(shown, sort_keys=True)
        if mark in seen:
            yield duplicate(f"{path}[{index}]", shown)
        seen.add(mark)


def _string(value: str, schema: Json, path: str) -> Iterator[FieldError]:
    if schema.get("maxLength") is not None and len(value) > schema["maxLength"]:
        yield too_long(path, schema["maxLength"])
    if schema.get("minLength") is not None and len(value) < schema["minLength"]:
        yield invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if schema.get("pattern") and not _pattern(schema["pattern"]).search(value):
        yield invalid(path, value, f"{path} in body should match '{schema['pattern']}'")
    if schema.get("format") and not has_format(value, schema["format"]):
        yield type_invalid(path, value, f"{path} in body must be of type {schema['format']}: {json.dumps(value)}")


def _number(value: float, schema: Json, path: str) -> Iterator[FieldError]:
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if low is not None:
        if schema.get("exclusiveMinimum"):
            if value <= low:
                yield invalid(path, value, f"{path} in body should be greater than {_plain(low)}")
        elif value < low:
            yield invalid(path, value, f"{path} in body should be greater than or equal to {_plain(low)}")
    if high is not None:
        if schema.get("exclusiveMaximum"):
            if value >= high:
                yield invalid(path, value, f"{path} in body should be less than {_plain(high)}")
        elif value > high:
            yield invalid(path, value, f"{path} in body should be less than or equal to {_plain(high)}")
    if step and (value / step) % 1:
        yield invalid(path, value, f"{path} in body should be a multiple of {_plain(step)}")
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        yield invalid(path, value, f"{path} in body must be of type {schema['format']}: {_plain(value)}")


@lru_cache(maxsize=1024)
def _pattern(text: str) -> Any:
    return re2.compile(text)


def has_format(value: str, name: str) -> bool:
    """The formats that apiextensions supports; unknown ones pass."""
    match name:
        case "date-time":
            return _parses(lambda: datetime.fromisoformat(value)) and "T" in value.upper()
        case "date":
            return len(value) == 10 and _parses(lambda: datetime.strptime(value, "%Y-%m-%d"))  # noqa: DTZ007
        case "byte":
            return _parses(lambda: base64.b64decode(value, validate=True))
        case "ipv4":
            return _parses(lambda: ipaddress.IPv4Address(value))
        case "ipv6":
            return _parses(lambda: ipaddress.IPv6Address(value))
        case "cidr":
            return _parses(lambda: ipaddress.ip_network(value, strict=False))
        case "uuid" | "uuid3" | "uuid4" | "uuid5":
            return bool(_UUID.fullmatch(value))
        case "duration":
            return bool(_DURATION.fullmatch(value)) or value == "0"
        case _:
            return True


def _parses(attempt: Any) -> bool:
    try:
        attempt()
    except (ValueError, binascii.Error):
        return False
    return True


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _has_type(value: Any, wanted: str) -> bool:
    found = _type_of(value)
    return (
        found == wanted
        or (wanted == "number" and found == "integer")
        or (wanted == "integer" and isinstance(value, float) and value.is_integer())
    )


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object" if isinstance(value, dict) else "null"


def _shown_type(value: Any) -> str:
    return f'"{_type_of(value)}"'


def _wrong_type(found: str, schema: Json, path: str) -> FieldError:
    return type_invalid(path, found, f'{path} in body must be of type {schema["type"]}: "{found}"')


_META = ("apiVersion", "kind", "metadata")


def prune(obj: Json, schema: Json) -> list[str]:
    """Drop fields that no schema names; returns their paths. The root's apiVersion, kind and metadata stay."""
    dropped: list[str] = []
    _prune(obj, schema, "", dropped, root=True)
    return dropped


def _prune(value: Any, schema: Json, path: str, dropped: list[str], *, root: bool = False) -> None:
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, one in enumerate(value):
                _prune(one, items, f"{path}[{index}]", dropped)
        return
    if not isinstance(value, dict):
        return
    root = root or bool(schema.get("x-kubernetes-embedded-resource"))
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    keep = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    for name in list(value):
        here = f"{path}.{name}" if path else name
        if root and name in _META:
            continue
        if name in properties:
            _prune(value[name], properties[name], here, dropped)
        elif isinstance(additional, dict):
            _prune(value[name], additional, here, dropped)
        elif additional is True or keep:
            continue
        else:
            del value[name]
            dropped.append(here)


def default(value: Any, schema: Json) -> None:
    """Set defaults, outermost first: a defaulted object is then defaulted itself."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for name, inner in properties.items():
            if "default" in inner and (name not in value or (value[name] is None and not inner.get("nullable"))):
                value[name] = copy.deepcopy(inner["default"])
            if name in value:
                default(value[name], inner)
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            for name, one in value.items():
                if name not in properties:
                    default(one, additional)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for one in value:
            default(one, schema["items"])
