"""JSON from the apiserver as our types, where `null` reads as a field that is absent.

Go writes null for an empty list or map without omitempty (`"containers": null`), for zero times and for nil pointers, and
clients may send null for any field. msgspec refuses null where a type is not optional. So a value that is refused is read
once more without its nulls; one without such nulls costs nothing more.
Invariants:
- A null in the place of a list, a map or any field with a default decodes as if the field were absent.
- Values of fields without a type (opaque parameters of drivers) keep their nulls.
- What is nested too deeply to be walked reads as null (nesting.py).
- A whole object that is read as a dict has no nulls: its readers need not tell null from absent. Its metadata, where it has any,
  has the types that every object's has.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from fairlead.api.nulls import without_nulls
from fairlead.kube import nesting
from fairlead.kube.objects import ObjectMeta

T = TypeVar("T")

_Drop = Callable[[Any], Any]


class Decoder(Generic[T]):
    """A decoder of one type; `dict` is a whole object with all its fields."""

    def __init__(self, kind: type[T]) -> None:
        self._exact = msgspec.json.Decoder(kind)
        self._kind = kind
        untyped: Any = kind
        self._drop = _drop_for(untyped)
        self._holds_dicts = _holds_dicts(inspect.type_info(kind))

    def decode(self, body: bytes | msgspec.Raw) -> T:
        """Raises msgspec.MsgspecError. What is nested too deeply is read without its deepest values."""
        body = nesting.bounded(bytes(body))
        try:
            try:
                return self._decode(body)
            except RecursionError:  # in a field that is no opaque parameter
                return self._decode(nesting.cut(body))
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"JSON is malformed: {error}") from error

    def _decode(self, body: bytes) -> T:
        if self._holds_dicts:
            found = self._without_nulls(body) if b"null" in body else self._exact.decode(body)
            _check_metadata(found)
            return found
        try:
            return self._exact.decode(body)
        except msgspec.ValidationError:
            if b"null" not in body:
                raise
            return self._without_nulls(body)

    def _without_nulls(self, body: bytes | msgspec.Raw) -> T:
        raw = msgspec.json.decode(body)
        return msgspec.convert(raw if self._drop is None else self._drop(raw), self._kind)


def convert(raw: object, kind: type[T]) -> T:
    """A decoded JSON value as a kind. Raises msgspec.ValidationError."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        untyped: Any = kind
        drop = _drop_for(untyped)
        if drop is None:
            raise
        return msgspec.convert(drop(raw), kind)


def _check_metadata(found: object) -> None:
    """Checks the metadata of an object that is read as a dict, or of each in a page. Raises msgspec.ValidationError."""
    for one in getattr(found, "items", None) or () if isinstance(found, msgspec.Struct) else (found,):
        if isinstance(one, dict) and "metadata" in one:
            try:
                msgspec.convert(one["metadata"], ObjectMeta)
            except msgspec.ValidationError as error:
                raise msgspec.ValidationError(f"metadata: {error}") from error


@functools.cache
def _drop_for(kind: Any) -> _Drop | None:
    return _drop_of(inspect.type_info(kind))


def _holds_dicts(info: inspect.Type) -> bool:
    """Whether a type is a dict of anything, or a page of such."""
    if isinstance(info, inspect.DictType):
        return isinstance(info.value_type, inspect.AnyType)
    if isinstance(info, inspect.ListType):
        return _holds_dicts(info.item_type)
    if isinstance(info, inspect.UnionType):
        return any(_holds_dicts(one) for one in info.types)
    if isinstance(info, inspect.StructType):
        return any(_holds_dicts(field.type) for field in info.fields)
    return False


def _drop_of(info: inspect.Type) -> _Drop | None:
    """What drops the nulls from a value of this type; None where the type has no place for them."""
    if isinstance(info, inspect.StructType):
        return _of_struct(info)
    if isinstance(info, inspect.DictType):
        return without_nulls if isinstance(info.value_type, inspect.AnyType) else _of_map(_drop_of(info.value_type))
    if isinstance(info, inspect.ListType | inspect.VarTupleType):
        return _of_list(_drop_of(info.item_type))
    if isinstance(info, inspect.UnionType):
        return next((drop for one in info.types if (drop := _drop_of(one)) is not None), None)
    return None


def _of_struct(info: inspect.StructType) -> _Drop:
    drops = {field.encode_name: _drop_of(field.type) for field in info.fields}

    def drop(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {
            name: inner if (of := drops.get(name)) is None else of(inner)
            for name, inner in value.items()
            if inner is not None
        }

    return drop


def _of_map(of: _Drop | None) -> _Drop | None:
    if of is None:
        return None
    return lambda value: {name: of(one) for name, one in value.items()} if isinstance(value, Mapping) else value


def _of_list(of: _Drop | None) -> _Drop | None:
    if of is None:
        return None
    return lambda value: [of(one) for one in value] if isinstance(value, list | tuple) else value
