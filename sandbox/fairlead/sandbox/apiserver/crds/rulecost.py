"""The cost limit of CEL rules: the worst case per object, times the number of places where a rule applies.

The real apiserver refuses definitions whose rules could cost too much, which depends on maxItems, maxProperties and
maxLength in the schema; a definition must not pass here and fail there. Source:
apiextensions-apiserver/pkg/apis/apiextensions/validation (cost limits), k8s.io/apiserver/pkg/cel/common/schemas.go (1.36).
"""

from __future__ import annotations

from typing import Any

from fairlead.cel import Program
from fairlead.cel.cost.cost import estimate
from fairlead.cel.cost.ranges import Path, Range
from fairlead.sandbox.apiserver.crds.celtypes import escape
from fairlead.sandbox.apiserver.kinds.request import Json

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
