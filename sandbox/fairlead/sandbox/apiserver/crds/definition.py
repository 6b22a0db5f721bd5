"""Validation of CustomResourceDefinitions: names, versions, a structural schema, rules that compile, and JSON paths.

Paths of printer columns and scale subresources have steps, indices, [*] and one kind of filter, as in
`.status.conditions[?(@.type=="Ready")].status`; anything else is refused when the definition is written.
Source: apiextensions-apiserver/pkg/apis/apiextensions/validation, k8s.io/client-go/util/jsonpath (1.36).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import re2

from fairlead.cel import Environment
from fairlead.sandbox.apiserver.crds import rules
from fairlead.sandbox.apiserver.crds.celtypes import DEFINITION_LIMIT, most_elements, over_limit
from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.names import label_1035_complaints, subdomain_complaints

_TOTAL = "x-kubernetes-validations estimated cost total for entire OpenAPIv3 schema"
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_TYPES = {"array", "boolean", "integer", "number", "object", "string"}
_FORBIDDEN_KEYS = (
    "$ref",
    "definitions",
    "dependencies",
    "deprecated",
    "discriminator",
    "id",
    "patternProperties",
    "readOnly",
    "writeOnly",
    "xml",
    "$schema",
)


def definition(obj: Json, environment: Environment) -> Iterator[FieldError]:
    """Every complaint about a whole definition; its rules are of that environment."""
    spec, name = obj.get("spec") or {}, obj["metadata"].get("name", "")
    names = spec.get("names") or {}
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if name != wanted:
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    group = spec.get("group", "")
    if not group:
        yield required("spec.group")
    else:
        complaints = subdomain_complaints(group)
        yield from checks.each(complaints, "spec.group", group)
        if not complaints and "." not in group:
            yield invalid("spec.group", group, "should be a domain with at least one dot")
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        yield not_supported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    for key in ("plural", "kind"):
        if not names.get(key):
            yield required(f"spec.names.{key}")
    for key in ("plural", "singular"):
        if names.get(key):
            yield from checks.each(label_1035_complaints(names[key]), f"spec.names.{key}", names[key])
    for key in ("kind", "listKind"):
        if names.get(key):
            lowered = names[key].lower()
            yield from (
                invalid(f"spec.names.{key}", names[key], f"may have mixed case, but should otherwise match: {one}")
                for one in label_1035_complaints(lowered)
            )
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")
    yield from _versions(spec.get("versions") or [], environment)
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        yield not_supported("spec.conversion.strategy", spec["conversion"]["strategy"], ("None",))


def _versions(versions: list[Json], environment: Environment) -> Iterator[FieldError]:
    if not versions:
        yield required("spec.versions")
        return
    seen = set()
    for index, version in enumerate(versions):
        here, name = f"spec.versions[{index}]", version.get("name", "")
        yield from checks.each(label_1035_complaints(name), f"{here}.name", name)
        if name in seen:
            yield invalid("spec.versions", [one.get("name") for one in versions], "must contain unique version names")
        seen.add(name)
        yield from _version(version, here, environment)
    storage = sum(1 for one in versions if one.get("storage"))
    if storage != 1:
        yield invalid(
            "spec.versions",
            [one.get("name") for one in versions],
            "must have exactly one version marked as storage version",
        )


def _version(version: Json, path: str, environment: Environment) -> Iterator[FieldError]:
    root = (version.get("schema") or {}).get("openAPIV3Schema")
    if root is None:
        yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
    else:
        here = f"{path}.schema.openAPIV3Schema"
        if root.get("type") != "object":
            if not root.get("type"):
                yield required(f"{here}.type", "must not be empty at the root")
            else:
                yield invalid(f"{here}.type", root["type"], 'must be "object" at the root')
        if root.get("nullable"):
            yield forbidden(f"{here}.nullable", "nullable cannot be true at the root")
        checked = rules.Checked(environment)
        yield from _schema(root, here, checked, root=True)
        complaint = over_limit(_TOTAL, sum(checked.costs), DEFINITION_LIMIT)
        if complaint:
            yield forbidden(here, complaint)
    for index, column in enumerate(version.get("additionalPrinterColumns") or []):
        here = f"{path}.additionalPrinterColumns[{index}]"
        for key in ("name", "type", "jsonPath"):
            if not column.get(key):
                yield required(f"{here}.{key}")
        if column.get("type") and column["type"] not in _COLUMN_TYPES:
            yield not_supported(f"{here}.type", column["type"], _COLUMN_TYPES)
        yield from _path(column.get("jsonPath"), f"{here}.jsonPath")
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        for key, prefix in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
            value = scale.get(key, "")
            if not value:
                yield required(f"{path}.subresources.scale.{key}")
            elif not value.startswith(prefix):
                yield invalid(f"{path}.subresources.scale.{key}", value, f"should be a json path under {prefix[:-1]}")
    selectable = set()
    for index, one in enumerate(version.get("selectableFields") or []):
        here = f"{path}.selectableFields[{index}].jsonPath"
        yield from _path(one.get("jsonPath"), here)
        if one.get("jsonPath") in selectable:
            yield duplicate(here, one.get("jsonPath"))
        selectable.add(one.get("jsonPath"))


def _path(text: str | None, path: str) -> Iterator[FieldError]:
    if not text:
        return
    try:
        parse(text)
    except PathError as error:
        yield invalid(path, text, str(error))


def _schema(
    schema: Any, path: str, checked: rules.Checked, *, root: bool = False, logical: bool = False, places: int = 1
) -> Iterator[FieldError]:
    """Structural: every value has a type, combinators only constrain. `logical`: inside allOf, anyOf, oneOf, not."""
    if not isinstance(schema, dict):
        yield invalid(path, schema, "must be a schema")
        return
    for key in _FORBIDDEN_KEYS:
        if key in schema:
            yield forbidden(f"{path}.{key}", f"{key} is not supported")
    if schema.get("uniqueItems"):
        yield forbidden(
            f"{path}.uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        )
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    kind = schema.get("type", "")
    if not logical and not kind and not free:
        yield required(f"{path}.type", "must not be empty for specified object fields")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, sorted(_TYPES))
    if logical:
        for key in ("default", "nullable", "x-kubernetes-preserve-unknown-fields", "additionalProperties"):
            if key in schema:
                yield forbidden(f"{path}.{key}", "must not be set inside of a logical combinator")
    if kind == "array" and not logical and schema.get("items") is None:
        yield required(f"{path}.items", "must be specified")
    if schema.get("properties") and schema.get("additionalProperties") not in (None, False):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if schema.get("pattern"):
        try:
            re2.compile(schema["pattern"])
        except re2.error as error:
            yield invalid(
                f"{path}.pattern", schema["pattern"], f"must be a valid regular expression, but isn't: {error}"
            )
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    yield from rules.complaints(schema, path, checked=checked, root=root, places=places)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _schema(inner, f"{path}.properties[{name}]", checked, logical=logical, places=places)
    many = places * (most_elements(schema) or 1)
    if isinstance(schema.get("additionalProperties"), dict):
        inner = schema["additionalProperties"]
        yield from _schema(inner, f"{path}.additionalProperties", checked, logical=logical, places=many)
    if isinstance(schema.get("items"), dict):
        yield from _schema(schema["items"], f"{path}.items", checked, logical=logical, places=many)
    elif isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    for key in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(schema.get(key) or []):
            yield from _schema(inner, f"{path}.{key}[{index}]", checked, logical=True)
    if schema.get("not") is not None:
        yield from _schema(schema["not"], f"{path}.not", checked, logical=True)


_STEP = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\])+)|\[(?P<index>-?\d+)\]|\[(?P<star>\*)\]|\['(?P<quoted>[^']*)'\]"""
    r"""|\[\?\(@\.(?P<key>[^=!<>\s]+)\s*(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]"""
)
Step = tuple[str, Any]


class PathError(ValueError):
    """Not a supported path."""


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[Step, ...]:
    """Raises PathError.

    >>> parse(".spec.weight")
    (('name', 'spec'), ('name', 'weight'))
    """
    rest = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if not rest.startswith((".", "[")):
        raise PathError(f"json path {text!r}: must start with a dot")
    steps: list[Step] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            raise PathError(f"json path {text!r}: cannot follow {rest[position:]!r}")
        if match["name"] is not None:
            steps.append(("name", re.sub(r"\\(.)", r"\1", match["name"])))
        elif match["quoted"] is not None:
            steps.append(("name", match["quoted"]))
        elif match["index"] is not None:
            steps.append(("index", int(match["index"])))
        elif match["star"]:
            steps.append(("star", None))
        else:
            steps.append(("filter", (match["key"], match["op"], match["value"].strip("\"'"))))
        position = match.end()
    return tuple(steps)


def find(obj: Any, text: str) -> list[Any]:
    """All values at the path."""
    found = [obj]
    for kind, argument in parse(text):
        found = [inner for one in found for inner in _follow(one, kind, argument)]
    return found


def _follow(value: Any, kind: str, argument: Any) -> list[Any]:
    if kind == "name":
        return [value[argument]] if isinstance(value, dict) and argument in value else []
    if kind == "star":
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if not isinstance(value, list):
        return []
    if kind == "index":
        return [value[argument]] if -len(value) <= argument < len(value) else []
    key, operator, wanted = argument
    return [one for one in value if isinstance(one, dict) and (str(one.get(key)) == wanted) == (operator == "==")]
