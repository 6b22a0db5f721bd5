"""Access to parts of values: fields, indices, presence, and their optional forms.

The general case behind the compiled accesses: for every container (maps, lists, optionals, objects such as a device, lazy
mappings that a caller passes in), with the messages of the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.cel.errors import EvaluationError
from fairlead.cel.values import NONE, Optional, UInt, lookup_key, type_name

_MISSING = object()


def no_such_key(key: object) -> EvaluationError:
    shown = key if isinstance(key, (str, int, float)) else type_name(key)
    return EvaluationError(f"no such key: {shown}")


def object_field(value: Any, name: str) -> Any:
    """A field of an object, which is an instance of a class with `cel_fields`."""
    fields = getattr(value, "cel_fields", None)
    if fields is None:
        return select(value, name)
    attribute = fields.get(name)
    if attribute is None:
        raise EvaluationError(f"no such field '{name}'")
    return getattr(value, attribute)


def select(value: Any, name: str) -> Any:
    """`value.name`."""
    if isinstance(value, Mapping):
        try:
            return value[name]
        except KeyError:
            raise no_such_key(name) from None
    if type(value) is Optional:
        return _within(value, optional_select, name)
    if hasattr(value, "cel_fields"):
        return object_field(value, name)
    raise EvaluationError(f"no such overload: {type_name(value)}.{name}")


def _within(held: Optional, look: Callable[[Any, Any], Optional], key: Any) -> Optional:
    """`.name` or `[key]` of an optional, which is an optional. Unlike `.?name`, it fails on a content that has no parts."""
    content = held.content
    if held.present and not (isinstance(content, (Mapping, list, tuple)) or hasattr(content, "cel_fields")):
        raise no_such_key(key)
    return look(held, key)


def _find(value: Any, name: str) -> Any:
    """The field, or _MISSING: for a scalar, too, that is no error. Raises EvaluationError for a list."""
    if isinstance(value, Mapping):
        try:
            return value[name]  # not .get: a device's domain map has a default
        except KeyError:
            return _MISSING
    if hasattr(value, "cel_fields"):
        attribute = value.cel_fields.get(name)
        return _MISSING if attribute is None else getattr(value, attribute)
    if isinstance(value, (list, tuple)):
        raise EvaluationError("unsupported index type 'string' in list")
    return _MISSING


def has_field(value: Any, name: str) -> bool:
    """`has(value.name)`."""
    if type(value) is Optional:
        return value.present and has_field(value.content, name)
    return _find(value, name) is not _MISSING


def optional_select(value: Any, name: str) -> Optional:
    """`value.?name`."""
    if type(value) is Optional:
        if not value.present:
            return NONE
        value = value.content
    found = _find(value, name)
    return NONE if found is _MISSING else Optional(found)


def _list_index(key: Any) -> int | None:
    if type(key) is int or type(key) is UInt:
        return int(key)
    if type(key) is float and key.is_integer():
        return int(key)
    return None


def index(value: Any, key: Any) -> Any:
    """`value[key]`."""
    if isinstance(value, (list, tuple)):
        position = _list_index(key)
        if position is None:
            raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")
        if not 0 <= position < len(value):
            raise EvaluationError(f"index out of bounds: {position}")
        return value[position]
    if isinstance(value, Mapping):
        try:
            return value[lookup_key(key)]
        except KeyError:
            raise no_such_key(key) from None
    if type(value) is Optional:
        return _within(value, optional_index, key)
    raise EvaluationError(f"no such overload: {type_name(value)}[{type_name(key)}]")


def optional_index(value: Any, key: Any) -> Optional:
    """`value[?key]`."""
    if type(value) is Optional:
        if not value.present:
            return NONE
        value = value.content
    if isinstance(value, (list, tuple)):
        position = _list_index(key)
        if position is None:
            raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")
        return Optional(value[position]) if 0 <= position < len(value) else NONE
    if isinstance(value, Mapping):
        try:
            return Optional(value[lookup_key(key)])
        except KeyError:
            return NONE
    return NONE


def traversal(*args: object) -> int:
    """The charge for reading strings within a loop: the product of a tenth of each length."""
    cost = 1
    for arg in args:
        if isinstance(arg, (str, bytes)):
            cost *= 1 + len(arg) // 10
    return cost
