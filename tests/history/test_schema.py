"""The recorded format, version 1, as a file freezes it: who changes a type of the engine changes what recordings mean.

The file lists each type that facts consist of, with the names, types and defaults of its fields as they are written.
`python -m tests.history.test_schema` writes it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, inspect
from msgspec.structs import fields

from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.values import encode
from fairlead.history.facts.form import VERSION, Facts

RECORDED = Path(__file__).parent / "data" / f"format-{VERSION}.txt"
ANEW = "`python -m tests.history.test_schema` writes the file anew"
Schema = dict[str, str]  # "Type.field", as written: type and default
WORDS: dict[type[inspect.Type], str] = {
    inspect.AnyType: "any", inspect.BoolType: "boolean", inspect.CustomType: "amount", inspect.FloatType: "number",
    inspect.IntType: "integer", inspect.NoneType: "null", inspect.StrType: "text",
}  # fmt: skip


def schema(root: type[msgspec.Struct]) -> Schema:
    found: Schema = {}
    to_come: list[inspect.Type] = [inspect.type_info(root)]
    known = set()
    while to_come:
        kind = to_come.pop()
        to_come += _parts(kind)
        if isinstance(kind, inspect.StructType) and kind.cls not in known:
            known.add(kind.cls)
            for each in kind.fields:
                found[f"{kind.cls.__name__}.{each.encode_name}"] = _said(each.type) + _default(each)
                to_come.append(each.type)
    return dict(sorted(found.items()))


def _parts(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        yield from kind.types
    elif isinstance(kind, inspect.TupleType):
        yield from kind.item_types
    elif isinstance(kind, inspect.VarTupleType):
        yield kind.item_type
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type


def _said(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.StructType):
        return kind.cls.__name__
    if isinstance(kind, inspect.LiteralType):
        return " | ".join(f'"{each}"' for each in kind.values)
    inner = [_said(each) for each in _parts(kind)]
    if isinstance(kind, inspect.UnionType):
        return " | ".join(sorted(inner))
    if isinstance(kind, inspect.DictType):
        return f"{{text: {inner[0]}}}"
    if isinstance(kind, inspect.VarTupleType):
        return f"[{inner[0]}…]"
    return f"[{', '.join(inner)}]" if isinstance(kind, inspect.TupleType) else WORDS[type(kind)]


def _default(field: inspect.Field) -> str:
    if field.required:
        return ""
    if field.default_factory is not NODEFAULT:
        return f" = {encode(field.default_factory()).decode()}"
    return " = unset" if field.default is NODEFAULT else f" = {encode(field.default).decode()}"


def faults(before: Schema, now: Schema) -> list[str]:
    """What is to be done before the format is version 1 again."""
    found = [
        f"{name} is gone: recordings have it, and would be read without it. Keep it under its name; a field that means something else "
        f"makes version {VERSION + 1}"
        for name in before.keys() - now.keys()
    ]
    for name, said in now.items():
        if name not in before:
            found.append(
                f"{name} is new: {ANEW}" if " = " in said
                else f"{name} is new and has no default: recordings do not have it. Give it a default that means what was so before"
            )  # fmt: skip
        elif said != before[name]:
            found.append(
                f"{name} was {before[name]!r} and is {said!r}: where all recordings still mean what they meant, {ANEW}; else it "
                f"makes version {VERSION + 1}"
            )
    return sorted(found)


def recorded() -> Schema:
    lines = RECORDED.read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines)


def test_the_format_is_what_it_was():
    assert not (found := faults(recorded(), schema(Facts))), "\n".join(found)


Declared = list[tuple[str, Any, Any]]  # name, type, `msgspec.field` with the default; None: without


def with_fields(changed: Callable[[Declared], object]) -> list[str]:
    """The faults when the gangs that wait have other fields."""
    declared: Declared = []
    for each in fields(GangRequest):
        default = {"default": each.default, "default_factory": each.default_factory}
        known = {part: value for part, value in default.items() if value is not NODEFAULT}
        declared.append((each.name, each.type, msgspec.field(**known) if known else None))
    changed(declared)
    given: list[Any] = [each if each[2] is not None else each[:2] for each in declared]
    kind = msgspec.defstruct("GangRequest", given, rename="camel", kw_only=True)
    of_gangs = schema(GangRequest).keys()
    return faults({name: said for name, said in recorded().items() if name in of_gangs}, schema(kind))


PRIORITY = next(number for number, each in enumerate(fields(GangRequest)) if each.name == "priority")


def replaced(*field: Any) -> Callable[[Declared], None]:
    return lambda declared: declared.__setitem__(PRIORITY, field)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _: None, []),
        (lambda declared: declared.pop(PRIORITY), ["GangRequest.priority is gone: "]),
        (
            replaced("rank", int, msgspec.field(default=0)),
            ["GangRequest.priority is gone: ", "GangRequest.rank is new: `"],
        ),
        (
            lambda declared: declared.append(("deadline", float | None, None)),
            ["GangRequest.deadline is new and has no default"],
        ),
        (replaced("priority", float, msgspec.field(default=0)), ["GangRequest.priority was 'integer = 0' and is "]),
        (replaced("priority", int, msgspec.field(default=1)), ["GangRequest.priority was 'integer = 0' and is "]),
    ],
    ids=["none", "a field is removed", "renamed", "added without a default", "of another type", "of another default"],
)
def test_a_changed_field_is_found(change: Callable[[Declared], object], told: list[str]):
    found = with_fields(change)
    assert len(found) == len(told) and all(map(str.startswith, found, told)), found


if __name__ == "__main__":
    RECORDED.write_text("".join(f"{name}: {said}\n" for name, said in schema(Facts).items()))
