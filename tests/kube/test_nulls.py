"""Every type that the programs decode reads a null as a field that is absent, wherever the null stands."""

import copy
import functools
import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from fairlead.kube import listing, resources
from fairlead.kube.core import Pod
from fairlead.kube.nulls import convert
from fairlead.kube.objects import Object, Struct
from fairlead.kube.resource import ResourceClaim, ResourceSlice
from tests.support.engine.examples import examples

PROGRAMS = ("kube", "api", "engine", "driver", "webhook", "controller", "ui", "cli")
Place = tuple[str | int, ...]


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def decoded_types() -> list[type]:
    """Every API struct of the three programs, found by importing all their modules."""
    for program in PROGRAMS:
        package = importlib.import_module(f"fairlead.{program}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found: set[type[Any]] = set(_subclasses(Struct))
    return sorted(found - {Object}, key=lambda cls: (cls.__module__, cls.__name__))


TYPES = decoded_types()


def full(info: inspect.Type) -> Any:
    """A value of the type in which nothing is absent."""
    match info:
        case inspect.StructType():
            return {field.encode_name: full(field.type) for field in info.fields}
        case inspect.UnionType():
            return full(next(one for one in info.types if not isinstance(one, inspect.NoneType)))
        case inspect.DictType(value_type=inspect.AnyType()):
            return {"a": {"b": ["c"]}}
        case inspect.DictType():
            return {"key": full(info.value_type)}
        case inspect.ListType() | inspect.VarTupleType():
            return [full(info.item_type)]
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 7
        case inspect.FloatType():
            return 0.5
        case inspect.AnyType():
            return {"strategy": None, "list": [None]}
        case inspect.StrType():
            return "8"
    raise AssertionError(f"{info} is new here")


def places(info: inspect.Type, at: Place = ()) -> Iterator[Place]:
    """Where a null may stand: every field with a default, at any depth of `full`'s value."""
    match info:
        case inspect.StructType():
            for field in info.fields:
                if not field.required:
                    yield (*at, field.encode_name)
                yield from places(field.type, (*at, field.encode_name))
        case inspect.UnionType():
            yield from places(next(one for one in info.types if not isinstance(one, inspect.NoneType)), at)
        case inspect.DictType() if not isinstance(info.value_type, inspect.AnyType):
            yield from places(info.value_type, (*at, "key"))
        case inspect.ListType() | inspect.VarTupleType():
            yield from places(info.item_type, (*at, 0))


def edited(document: Any, chosen: tuple[Place, ...], *, absent: bool) -> Any:
    """The document with a null, or nothing, at each place that it still has."""
    document = copy.deepcopy(document)
    for place in chosen:
        holder: Any = document
        for step in place[:-1]:
            holder = holder.get(step) if isinstance(holder, dict) else holder[int(step)]
            if holder is None:
                break
        if isinstance(holder, dict) and place[-1] in holder:
            if absent:
                del holder[place[-1]]
            else:
                holder[place[-1]] = None
    return document


def as_read(kind: Any, document: Any) -> list[object]:
    """What every way of reading makes of a document: as one object, in a list, from a decoded value."""
    body = json.dumps(document).encode()
    page = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [document]}).encode()
    (item,) = listing.decode(kind, page).items or [None]
    return [listing.decoder(kind).decode(body), item, convert(document, kind)]


def info_of(kind: type) -> inspect.Type:
    """The type as the wire has it: what a program computes from other fields is left out."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    info.fields = tuple(field for field in info.fields if field.encode_name != "models")
    return info


def _apart(everywhere: tuple[Place, ...]) -> Iterator[tuple[Place, ...]]:
    """Ten places at a time, each place once; all of one depth, so that none is within another and all of them count."""
    for depth in sorted({len(place) for place in everywhere}):
        level = [place for place in everywhere if len(place) == depth]
        for start in range(0, len(level), 10):
            yield tuple(level[start : start + 10])


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_null_reads_as_absent_at_every_place_of_every_type(kind: Any) -> None:
    document, everywhere = _shape(kind)
    parents = {place[:depth] for place in everywhere for depth in range(len(place))}
    deepest = tuple(place for place in everywhere if place not in parents)
    for chosen in [*_apart(everywhere), everywhere, deepest]:
        want = msgspec.convert(edited(document, chosen, absent=True), kind)
        assert as_read(kind, edited(document, chosen, absent=False)) == [want] * 3, chosen


@functools.cache
def _shape(kind: type) -> tuple[Any, tuple[Place, ...]]:
    info = info_of(kind)
    return full(info), tuple(places(info))


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_any_set_of_nulls_reads_as_the_same_fields_absent(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([Pod, ResourceClaim, ResourceSlice]))
    document, everywhere = _shape(kind)
    chosen = tuple(data.draw(st.lists(st.sampled_from(everywhere), max_size=12)))
    want = msgspec.convert(edited(document, chosen, absent=True), kind)
    assert as_read(kind, edited(document, chosen, absent=False)) == [want] * 3


def test_opaque_parameters_keep_their_nulls() -> None:
    document = {
        "spec": {"devices": {"requests": None, "config": [{"opaque": {"parameters": {"a": None, "b": [None]}}}]}}
    }
    claim = listing.decoder(ResourceClaim).decode(json.dumps(document).encode())
    assert claim.spec.devices.requests == ()
    assert claim.spec.devices.config[0].opaque is not None
    assert claim.spec.devices.config[0].opaque.parameters == {"a": None, "b": [None]}


def test_every_resource_with_a_type_is_among_those_that_are_tried() -> None:
    named = {value.type for value in vars(resources).values() if isinstance(value, resources.Resource)}
    assert named - {dict} <= set(TYPES)
