"""JSON documents with every field that a type knows, so that a null, or anything else, can come into each place."""

from __future__ import annotations

from typing import Any

from msgspec import inspect


def full(kind: Any) -> Any:
    """A value of the type, as JSON: two items in each list, one entry in each map, every optional field set."""
    return _of(inspect.type_info(kind))


def _of(info: inspect.Type) -> Any:
    match info:
        case inspect.StructType():
            return {field.encode_name: _of(field.type) for field in info.fields}
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return [_of(info.item_type), _of(info.item_type)]
        case inspect.TupleType():
            return [_of(each) for each in info.item_types]
        case inspect.DictType():
            return {str(_of(info.key_type)): _of(info.value_type)}
        case inspect.UnionType():
            return _of(next(each for each in info.types if not isinstance(each, inspect.NoneType)))
        case inspect.LiteralType():
            return info.values[0]
        case inspect.IntType():
            return 3
        case inspect.FloatType():
            return 1.5
        case inspect.BoolType():
            return True
        case inspect.StrType():
            return "1"
        case _:
            return {"a": [1, None]}
