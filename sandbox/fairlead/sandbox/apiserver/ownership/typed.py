"""Objects by their schema: which fields one sets, how two differ, and how an applied one is merged.

Pure. Maps are granular unless atomic, lists are atomic unless their schema calls them a map or a set, as in
structured-merge-diff; without a schema objects are granular and lists atomic.
Source: sigs.k8s.io/structured-merge-diff/v6/typed (Kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import same
from fairlead.sandbox.apiserver.ownership import fieldsets
from fairlead.sandbox.apiserver.ownership.fieldsets import FieldSet, Path

Json = dict[str, Any]

_OBJECT_META: Json = {
    "type": "object",
    "properties": {
        "finalizers": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {"type": "object", "x-kubernetes-map-type": "atomic"},
        },
        "managedFields": {"type": "array"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def with_object_meta(schema: Json) -> Json:
    """A kind's schema with the schema of ObjectMeta, which is the same for all kinds."""
    properties = {**(schema.get("properties") or {}), "metadata": _OBJECT_META}
    return {**schema, "properties": properties}


# -- schema
def _is_struct_field(schema: Json, name: str) -> bool:
    return name in (schema.get("properties") or {})


def _of_field(schema: Json, name: str) -> Json:
    properties = schema.get("properties") or {}
    found = properties.get(name)
    if found is None:
        found = schema.get("additionalProperties")
    return found if isinstance(found, dict) else {}


def _items(schema: Json) -> Json:
    found = schema.get("items")
    return found if isinstance(found, dict) else {}


def _atomic_map(schema: Json) -> bool:
    return schema.get("x-kubernetes-map-type") == "atomic"


def _list_type(schema: Json) -> str:
    kind: str = schema.get("x-kubernetes-list-type", "atomic")
    if kind == "map" and not schema.get("x-kubernetes-list-map-keys"):
        return "atomic"
    return kind


def _granular_list(schema: Json) -> bool:
    return _list_type(schema) in {"map", "set"}


def element_of(schema: Json, item: Any) -> str:
    """The path element of an item of a granular list."""
    if _list_type(schema) == "set" or not isinstance(item, dict):
        return fieldsets.value(item)
    keys = {}
    for name in schema["x-kubernetes-list-map-keys"]:
        if name in item:
            keys[name] = item[name]
        else:
            default = _of_field(_items(schema), name).get("default")
            if default is None and name == "protocol":
                default = "TCP"  # ports: defaulted in code, not in the schema
            if default is not None:
                keys[name] = default
    return fieldsets.key(keys)


# -- fields that an object sets
def set_of(obj: Json, schema: Json) -> FieldSet:
    """All fields of an applied configuration."""
    found = FieldSet()
    for path in _fields(obj, schema, ()):
        found.insert(path)
    return found


def _fields(value: Any, schema: Json, path: Path) -> Iterator[Path]:
    if isinstance(value, dict) and not _atomic_map(schema):
        for name, inner in value.items():
            here = (*path, fieldsets.field(name))
            yield from _fields(inner, _of_field(schema, name), here)
            if inner is None or inner == {} or not _is_struct_field(schema, name):
                yield here
    elif isinstance(value, list) and _granular_list(schema):
        for item in value:
            here = (*path, element_of(schema, item))
            if isinstance(item, dict):
                yield from _fields(item, _items(schema), here)
            yield here
    elif path:
        yield path


# -- how two objects differ
@dataclass
class Comparison:
    """`added` and `removed` name containers too, not only leaves."""

    added: FieldSet = field(default_factory=FieldSet)
    modified: FieldSet = field(default_factory=FieldSet)
    removed: FieldSet = field(default_factory=FieldSet)


_ABSENT = object()


def compare(old: Json, new: Json, schema: Json) -> Comparison:
    found = Comparison()
    _compare(old, new, schema, (), found)
    return found


def _compare(old: Any, new: Any, schema: Json, path: Path, found: Comparison) -> None:
    """Differences at and below a path."""
    if old is new:
        return
    if _both(dict, old, new):
        granular = not _atomic_map(schema)
        pairs = _map_pairs(old, new, schema) if granular else []
    elif _both(list, old, new):
        granular = _granular_list(schema)
        pairs = _list_pairs(old, new, schema) if granular else []
    else:
        granular, pairs = False, []
    if not granular or not pairs:
        if path:
            _leaf(old, new, path, found)
        return
    for element, before, after, below in pairs:
        _compare(before, after, below, (*path, element), found)
    if path and old is _ABSENT:
        found.added.insert(path)
    elif path and new is _ABSENT:
        found.removed.insert(path)


def _both(shape: type, old: Any, new: Any) -> bool:
    """Whether both sides have this shape, where null and absence have any."""
    sides = [one for one in (old, new) if one is not _ABSENT and one is not None]
    return bool(sides) and all(isinstance(one, shape) for one in sides)


def _leaf(old: Any, new: Any, path: Path, found: Comparison) -> None:
    if old is _ABSENT:
        found.added.insert(path)
    elif new is _ABSENT:
        found.removed.insert(path)
    elif not same(old, new):
        found.modified.insert(path)


_Pair = tuple[str, Any, Any, Json]


def _map_pairs(old: Any, new: Any, schema: Json) -> list[_Pair]:
    left = old if isinstance(old, dict) else {}
    right = new if isinstance(new, dict) else {}
    names = dict.fromkeys([*left, *right])
    return [
        (fieldsets.field(name), left.get(name, _ABSENT), right.get(name, _ABSENT), _of_field(schema, name))
        for name in names
    ]


def _list_pairs(old: Any, new: Any, schema: Json) -> list[_Pair]:
    left = {element_of(schema, item): item for item in old} if isinstance(old, list) else {}
    right = {element_of(schema, item): item for item in new} if isinstance(new, list) else {}
    names = dict.fromkeys([*left, *right])
    return [(name, left.get(name, _ABSENT), right.get(name, _ABSENT), _items(schema)) for name in names]


# -- merging an applied configuration
def merge(live: Any, applied: Any, schema: Json) -> Any:
    """The live object with the applied one merged into it; unchanged parts are shared."""
    if isinstance(live, dict) and isinstance(applied, dict) and not _atomic_map(schema):
        merged = dict(live)
        for name, inner in applied.items():
            merged[name] = merge(live[name], inner, _of_field(schema, name)) if name in live else inner
        return merged
    if isinstance(live, list) and isinstance(applied, list) and _granular_list(schema):
        return _merge_list(live, applied, schema)
    return applied


def _merge_list(live: list[Any], applied: list[Any], schema: Json) -> list[Any]:
    """In the applied order; items that only the live list has keep their positions between shared ones."""
    left = [(element_of(schema, item), item) for item in live]
    right = [(element_of(schema, item), item) for item in applied]
    in_left, in_right = dict(left), dict(right)
    shared = [element for element, _ in right if element in in_left]
    merged: list[Any] = []
    done: set[str] = set()
    at_left = at_right = 0

    def take(element: str) -> None:
        done.add(element)
        item = in_right[element]
        merged.append(merge(in_left[element], item, _items(schema)) if element in in_left else item)
        if shared and shared[0] == element:
            shared.pop(0)

    while at_left < len(left) or at_right < len(right):
        if at_left < len(left) and at_right < len(right):
            element = left[at_left][0]
            if element == right[at_right][0]:
                take(element)
                at_left, at_right = at_left + 1, at_right + 1
                continue
            if element in in_right and shared and shared[0] != element:
                at_left += 1  # shared, but later in the applied order
                continue
        if at_left < len(left):
            element, item = left[at_left]
            if element not in in_right:
                merged.append(item)
                at_left += 1
                continue
            if element in done:
                at_left += 1
        if at_right < len(right):
            take(right[at_right][0])
            at_right += 1
    return merged


def prune(value: Any, schema: Json, last: FieldSet, owned: FieldSet) -> Any:
    """Without the fields that the manager applied last time and no manager owns now."""
    if isinstance(value, dict) and not _atomic_map(schema):
        kept = {}
        for name, inner in value.items():
            element = fieldsets.field(name)
            if not last.has(element):
                kept[name] = inner
            elif owned.has(element):
                kept[name] = _prune_below(inner, _of_field(schema, name), element, last, owned)
        return kept
    if isinstance(value, list) and _granular_list(schema):
        rest = []
        for item in value:
            element = element_of(schema, item)
            if not last.has(element):
                rest.append(item)
            elif owned.has(element):
                rest.append(_prune_below(item, _items(schema), element, last, owned))
        return rest
    return value


def _prune_below(value: Any, schema: Json, element: str, last: FieldSet, owned: FieldSet) -> Any:
    if element not in last.children:
        return value
    return prune(value, schema, last.children[element], owned.children.get(element, FieldSet()))
