"""A structural schema in CEL: declared types for the checker, and values bound as these types.

A rule that reads a field which the schema does not have is refused, as by the real apiserver; dates and durations are not
plain strings. Names that are no CEL identifiers are escaped as Kubernetes does.
Source: k8s.io/apiserver/pkg/cel/common/schemas.go, pkg/cel/escaping.go (1.36).
"""

from __future__ import annotations

import base64
import re
from typing import Any

from fairlead.cel import RULE, Environment
from fairlead.cel import types as t
from fairlead.cel.library.clock import parse_duration, parse_timestamp
from fairlead.cel.syntax.parser import KEYWORDS
from fairlead.sandbox.apiserver.kinds.request import Json

_META: Json = {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}
_ROOT: Json = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _META}
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def escape(name: str) -> str:
    """A property's name in an expression.

    >>> escape("a-b"), escape("namespace"), escape("x")
    ('a__dash__b', '__namespace__', 'x')
    """
    if name in KEYWORDS:
        return f"__{name}__"
    for plain, escaped in _ESCAPES:
        name = name.replace(plain, escaped)
    return name


def environment(schema: Json, *, root: bool = False, base: Environment = RULE) -> Environment:
    """`base` with `self` and `oldSelf` declared as this schema says."""
    objects: dict[str, dict[str, t.Type]] = {}
    own = _type({**schema, "properties": {**(schema.get("properties") or {}), **_ROOT}} if root else schema, objects)
    return base.extend(variables={"self": own, "oldSelf": own}, objects=objects)


def _type(schema: Json, objects: dict[str, dict[str, t.Type]]) -> t.Type:
    if schema.get("x-kubernetes-int-or-string"):
        return t.DYN
    match schema.get("type"):
        case "boolean":
            return t.BOOL
        case "integer":
            return t.INT
        case "number":
            return t.DOUBLE
        case "string":
            formats = {"byte": t.BYTES, "duration": t.DURATION, "date": t.TIMESTAMP, "date-time": t.TIMESTAMP}
            return formats.get(schema.get("format", ""), t.STRING)
        case "array" if isinstance(schema.get("items"), dict):
            return t.list_of(_type(schema["items"], objects))
        case "object":
            return _object(schema, objects)
        case _:
            return t.DYN


def _object(schema: Json, objects: dict[str, dict[str, t.Type]]) -> t.Type:
    if isinstance(schema.get("additionalProperties"), dict):
        return t.map_of(t.STRING, _type(schema["additionalProperties"], objects))
    if schema.get("additionalProperties") is True:
        return t.map_of(t.STRING, t.DYN)
    properties = dict(schema.get("properties") or {})
    if schema.get("x-kubernetes-embedded-resource"):
        properties = {**properties, **_ROOT}
    name = f"object{len(objects)}"
    objects[name] = {}
    for key, inner in properties.items():
        if _PLAIN.fullmatch(escape(key)):
            objects[name][escape(key)] = _type(inner, objects)
    return t.object_type(name)


def changes(schema: Any) -> bool:
    """Whether values of this schema are bound as something other than their JSON."""
    if not isinstance(schema, dict):
        return False
    if schema.get("type") == "string" and schema.get("format") in {"byte", "duration", "date", "date-time"}:
        return True
    if schema.get("type") == "number":
        return True
    properties = schema.get("properties") or {}
    if any(escape(key) != key for key in properties):
        return True
    return any(changes(one) for one in [*properties.values(), schema.get("items"), schema.get("additionalProperties")])


def bind(value: Any, schema: Any) -> Any:
    """A (valid) value as the types of its schema; itself where they are JSON's."""
    if value is None or not isinstance(schema, dict):
        return value
    if isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        return {
            escape(key) if key in properties else key: bind(inner, properties.get(key, additional))
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [bind(one, schema.get("items")) for one in value]
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and schema.get("type") == "string":
        return _text(value, schema.get("format", ""))
    return value


def _text(value: str, form: str) -> Any:
    try:
        match form:
            case "date-time":
                return parse_timestamp(value)
            case "date":
                return parse_timestamp(f"{value}T00:00:00Z")
            case "duration":
                return parse_duration(value)
            case "byte":
                return base64.b64decode(value)
    except ValueError:
        return value  # Go's formats admit more than CEL's: the rule sees the text
    return value
