"""A structural schema in CEL: declared types for the checker, values bound as these types, and what a rule on it costs at most.

A rule that reads a field which the schema does not have is refused, as by the real apiserver; dates and durations are not
plain strings; names that are no CEL identifiers are escaped. The real apiserver refuses definitions whose rules could cost too much,
which depends on maxItems, maxProperties and maxLength: a definition must not pass here and fail there. The cost is the worst case per
object, times the number of places where a rule applies.
Source: k8s.io/apiserver/pkg/cel/common/schemas.go, pkg/cel/escaping.go; apiextensions' validation (cost limits), 1.36.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from fairlead.cel import RULE, Environment, Program
from fairlead.cel import types as t
from fairlead.cel.cost.cost import estimate
from fairlead.cel.cost.ranges import Path, Range
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


RULE_LIMIT = 10_000_000
DEFINITION_LIMIT = 100_000_000
REQUEST_BYTES = 3 * 1024 * 1024
_MIN_BYTES = {"string": 2, "integer": 1, "number": 1, "boolean": 4, "array": 2}


def cost_of(program: Program, schema: Json, places: int) -> int:
    """The worst case of a rule on `schema` that applies at up to `places` places of one object."""

    def sizes(path: Path) -> Range | None:
        # As in the real one, the first step is ignored: what it names has the root's size.
        found: Any = schema
        for step in path[1:]:
            found = _step(found, step)
            if found is None:
                return None
        return Range(0, most_elements(found) or 0)

    return estimate(program.checked, sizes).max * places


def _step(schema: Any, step: str) -> Any:
    if not isinstance(schema, dict):
        return None
    if step == "@items":
        return schema.get("items")
    if step == "@values":
        return schema.get("additionalProperties")
    if step == "@keys":
        return {"type": "string"}
    properties = schema.get("properties") or {}
    return next((inner for name, inner in properties.items() if escape(name) == step), None)


def most_elements(schema: Any) -> int | None:
    """Bytes of a string, items of a list, entries of a map at most; None for what has no size."""
    if not isinstance(schema, dict):
        return None
    if schema.get("x-kubernetes-int-or-string"):
        return REQUEST_BYTES - 2  # whatever its maxLength
    match schema.get("type"):
        case "string":
            if schema.get("maxLength") is not None:
                return int(schema["maxLength"]) * (1 if schema.get("format") == "byte" else 4)
            if schema.get("enum"):
                return max(len(str(one)) for one in schema["enum"]) + 2
            return REQUEST_BYTES - 2
        case "array":
            if schema.get("maxItems") is not None:
                return int(schema["maxItems"])
            return (REQUEST_BYTES - 2) // (least_bytes(schema.get("items")) + 1)
        case "object" if schema.get("additionalProperties"):
            if schema.get("maxProperties") is not None:
                return int(schema["maxProperties"])
            return (REQUEST_BYTES - 2) // (least_bytes(schema["additionalProperties"]) + 6)
        case _:
            return None


def least_bytes(schema: Any) -> int:
    """The least size of a value as JSON."""
    if not isinstance(schema, dict):
        return 1
    kind = schema.get("type", "")
    if kind != "object":
        return _MIN_BYTES.get(kind, 1)
    properties = schema.get("properties") or {}
    needed = [name for name in schema.get("required") or [] if name in properties]
    return 2 + sum(
        len(name) + 4 + least_bytes(properties[name]) for name in needed if "default" not in properties[name]
    )


def over_limit(what: str, cost: int, limit: int) -> str:
    """The complaint about a cost above its limit; empty where it is not."""
    if cost <= limit:
        return ""
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and "
        "maxLength where arrays, maps, and strings are declared)"
    )
