"""Strategic merge patch: lists of objects merge by key, and directives say what to drop, replace or order.

Pure: the patched document is new, the old one and the patch are not changed. Merge keys and strategies come from the
kind's schema (x-kubernetes-patch-strategy, x-kubernetes-patch-merge-key); a list without them is replaced.
Source: k8s.io/apimachinery/pkg/util/strategicpatch/patch.go (1.36).
"""

from __future__ import annotations

from typing import Any

from fairlead.sandbox.apiserver.kinds.request import clone, same

Json = dict[str, Any]

_PATCH = "$patch"
_RETAIN_KEYS = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"


class StrategicPatchError(ValueError):
    """The patch contradicts itself or the schema."""


def apply(document: Json, patch: Json, schema: Json) -> Json:
    """The patched document. Raises StrategicPatchError."""
    return _merge_map(clone(document), clone(patch), schema)


# -- schema
def _of_field(schema: Json, name: str) -> Json:
    """The schema of a field; an empty one where it is not known."""
    properties: Json = schema.get("properties") or {}
    if name in properties:
        found: Json = properties[name]
        return found
    additional = schema.get("additionalProperties")
    return additional if isinstance(additional, dict) else {}


def _strategies(schema: Json) -> list[str]:
    return [part.strip() for part in schema.get("x-kubernetes-patch-strategy", "").split(",") if part.strip()]


def _merge_key(schema: Json) -> str:
    key: str = schema.get("x-kubernetes-patch-merge-key", "")
    return key


# -- maps
def _merge_map(original: Json, patch: Json, schema: Json) -> Json:
    directive = patch.get(_PATCH)
    if directive is not None:
        if directive == "replace":
            return {key: _clean(value) for key, value in patch.items() if key != _PATCH and value is not None}
        if directive == "delete":
            return {}
        if directive != "merge":
            raise StrategicPatchError(f"Unknown patch type '{directive}' in map")
        patch.pop(_PATCH)
    _retain_keys(original, patch)
    _merge_ordered_lists(original, patch, schema)
    for key, value in patch.items():
        if key.startswith(_DELETE):
            _delete_primitives(original, key.removeprefix(_DELETE), value)
        elif value is None:
            original.pop(key, None)
        elif key not in original:
            original[key] = _clean(value)
        else:
            original[key] = _merge_value(original[key], value, _of_field(schema, key))
    return original


def _merge_value(original: Any, value: Any, schema: Json) -> Any:
    if isinstance(original, dict) and isinstance(value, dict):
        return _clean(value) if "replace" in _strategies(schema) else _merge_map(original, value, schema)
    if isinstance(original, list) and isinstance(value, list):
        return _merge_list(original, value, schema)
    return _clean(value)


def _retain_keys(original: Json, patch: Json) -> None:
    """`$retainKeys` names all keys that stay; others (of a union) are dropped."""
    if _RETAIN_KEYS not in patch:
        return
    retained = patch.pop(_RETAIN_KEYS)
    if not isinstance(retained, list):
        raise StrategicPatchError("retainKeys must be a list")
    for key, value in patch.items():
        if value is not None and key not in retained and not key.startswith("$"):
            raise StrategicPatchError(f"{key} is not in retainKeys {retained}")
    for key in [key for key in original if key not in retained]:
        del original[key]


def _delete_primitives(original: Json, key: str, values: Any) -> None:
    if not isinstance(values, list):
        raise StrategicPatchError(f"{_DELETE}{key} must be a list")
    if isinstance(original.get(key), list):
        original[key] = [one for one in original[key] if not any(same(one, value) for value in values)]


# -- lists
def _merge_ordered_lists(original: Json, patch: Json, schema: Json) -> None:
    """Lists with `$setElementOrder`: merged, then put in that order; the server's other elements keep their places."""
    for directive in [key for key in patch if key.startswith(_ORDER)]:
        order = patch.pop(directive)
        key = directive.removeprefix(_ORDER)
        if not isinstance(order, list):
            raise StrategicPatchError(f"{directive} must be a list")
        field = _of_field(schema, key)
        before, wanted = original.get(key), patch.get(key)
        _check_order(wanted, order, _merge_key(field), directive)
        if isinstance(before, list) and isinstance(wanted, list):
            merged = _merge_list(clone(before), wanted, field)
        elif isinstance(before, list):
            merged = before
        elif isinstance(wanted, list):
            merged = _clean(wanted)
        else:
            continue
        patch.pop(key, None)
        original[key] = _ordered(merged, order, before or [], _merge_key(field))


def _check_order(wanted: Any, order: list[Any], key: str, directive: str) -> None:
    """Every element that the patch merges must be in the order list."""
    for one in wanted if isinstance(wanted, list) else []:
        if isinstance(one, dict) and _PATCH in one:
            continue
        if _position(order, one, key) < 0:
            raise StrategicPatchError(f"{directive}: the order in patch list does not match the element order list")


def _merge_list(original: list[Any], patch: list[Any], schema: Json) -> list[Any]:
    if "merge" not in _strategies(schema):
        return [one for one in (_clean(one) for one in patch) if not _is_directive(one)]
    if not any(isinstance(one, dict) for one in [*original, *patch]):
        merged = list(original)
        merged += [one for one in patch if not any(same(one, other) for other in merged)]
        return _ordered(merged, patch, original, "")
    key = _merge_key(schema)
    if not key:
        raise StrategicPatchError("cannot merge lists without merge key")
    kept, wanted = _special_elements(original, patch, key)
    merged = list(kept)
    for one in wanted:
        if not isinstance(one, dict) or key not in one:
            raise StrategicPatchError(f"map: {one} does not contain declared merge key: {key}")
        position = _position(merged, one, key)
        if position < 0:
            merged.append(_clean(one))
        else:
            merged[position] = _merge_map(merged[position], one, schema.get("items") or {})
    return _ordered(merged, wanted, original, key)


def _is_directive(one: Any) -> bool:
    return isinstance(one, dict) and set(one) == {_PATCH}


def _special_elements(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Elements that say `$patch`: delete one, or replace the whole list."""
    kept, wanted, replace = list(original), [], False
    for one in patch:
        directive = one.get(_PATCH) if isinstance(one, dict) else None
        if directive is None:
            wanted.append(one)
        elif directive == "delete":
            if key not in one:
                raise StrategicPatchError(f"delete patch type with no merge key defined: {one}")
            kept = [other for other in kept if not (isinstance(other, dict) and same(other.get(key), one[key]))]
        elif directive == "replace":
            replace = True
            rest = {name: value for name, value in one.items() if name != _PATCH}
            if rest:
                wanted.append(rest)
        elif directive == "merge":
            wanted.append({name: value for name, value in one.items() if name != _PATCH})
        else:
            raise StrategicPatchError(f"Unknown patch type '{directive}' in list")
    return ([] if replace else kept), wanted


def _position(elements: list[Any], wanted: Any, key: str) -> int:
    for position, one in enumerate(elements):
        if key and isinstance(one, dict) and isinstance(wanted, dict):
            if key in one and same(one[key], wanted.get(key)):
                return position
        elif same(one, wanted):
            return position
    return -1


def _ordered(merged: list[Any], order: list[Any], server_order: list[Any], key: str) -> list[Any]:
    """The patch's elements in its order, merged with the rest in the server's order; the patch's first where neither is
    known to the server.
    """
    mine = [one for one in merged if _position(order, one, key) >= 0]
    rest = [one for one in merged if _position(order, one, key) < 0]
    mine.sort(key=lambda one: _position(order, one, key))
    rest.sort(key=lambda one: _position(server_order, one, key))
    merged_order: list[Any] = []
    while mine and rest:
        left, right = _position(server_order, rest[0], key), _position(server_order, mine[0], key)
        merged_order.append(rest.pop(0) if 0 <= left < right else mine.pop(0))
    return merged_order + mine + rest


def _clean(value: Any) -> Any:
    """A patch's value as it is stored: without nulls and directives."""
    if isinstance(value, dict):
        return {key: _clean(inner) for key, inner in value.items() if inner is not None and not key.startswith("$")}
    if isinstance(value, list):
        return [_clean(one) for one in value if not (isinstance(one, dict) and one.get(_PATCH) == "delete")]
    return value
