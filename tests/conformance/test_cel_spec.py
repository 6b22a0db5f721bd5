"""The public CEL conformance cases, one test each: the figure in lib/fairlead/cel/README.md.

The packed file holds those cases of google/cel-spec
(Apache License 2.0) that need no protobuf messages; it was made from the npm package `@bufbuild/cel-spec`, which holds
all of them as JSON-like JavaScript:

    npm pack @bufbuild/cel-spec@0.6.1 && tar xzf bufbuild-cel-spec-0.6.1.tgz
    node -e "import('./package/dist/esm/testdata/conformance.js').then(m => console.log(JSON.stringify(m.tests)))" > tests.json
    python -m tests.conformance.test_cel_spec tests.json

Source: https://github.com/google/cel-spec/tree/v0.25.1/tests/simple/testdata
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.cel import CompileError, Environment, EvaluationError
from fairlead.cel import compile as compile_cel
from fairlead.cel import types as t
from fairlead.cel.declare import Library, Overload
from fairlead.cel.equality import equal
from fairlead.cel.kubernetes import COMMON
from fairlead.cel.library.clock import parse_duration, parse_timestamp
from fairlead.cel.syntax.macros import BINDINGS
from fairlead.cel.values import TypeValue, UInt, items_of, map_key, no_overload, type_name
from tests.support.cel_spec import BLOCK_MACROS, ENCODERS, FORMAT_V4, MATH, MATH_MACROS, STRINGS_REVERSE

PACKED = Path(__file__).with_name("cel_spec.jsonl.gz")
SPEC = replace(
    COMMON.extend(libraries=(FORMAT_V4, STRINGS_REVERSE, MATH, ENCODERS), macros=(BINDINGS, MATH_MACROS, BLOCK_MACROS)),
    homogeneous_literals=False,
    validate_literals=False,
    fold_constants=False,
    quoted_fields=True,
)
_MESSAGES = re.compile(
    r"TestAllTypes|google\.protobuf\.(?!Timestamp\b|Duration\b)|TestRequired|GlobalEnum|NestedEnum|Ext\(|NullValue|messageType|cel\.expr"
)


def needs_messages(case: dict[str, Any]) -> bool:
    text = json.dumps(case)
    if case.get("container") == "google.protobuf":
        return True
    if "@type" in text and re.search(r"googleapis.com/google.protobuf.(?!Timestamp|Duration)", text):
        return True
    return _MESSAGES.search(text) is not None


def pack(source: Path) -> None:
    """Writes the packed file."""

    def cases(suite: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for test in suite.get("tests") or ():
            yield path, test["original"]
        for inner in suite.get("suites") or ():
            yield from cases(inner, f"{path}/{inner['name']}" if path else inner["name"])

    with gzip.GzipFile(PACKED, "wb", mtime=0) as out:
        for path, case in cases(json.loads(source.read_text()), ""):
            if not needs_messages(case):
                case.pop("description", None)
                out.write(json.dumps({"path": path, **case}, separators=(",", ":")).encode() + b"\n")


def packed() -> list[dict[str, Any]]:
    with gzip.open(PACKED, "rt") as lines:
        return [json.loads(line) for line in lines]


def read_value(value: dict[str, Any]) -> Any:
    """A `cel.expr.Value` in protobuf's JSON."""
    ((kind, held),) = value.items()
    if kind == "int64Value":
        return int(held)
    if kind == "uint64Value":
        return UInt(int(held))
    if kind == "doubleValue":
        return float(str(held).replace("Infinity", "inf"))
    if kind == "bytesValue":
        return base64.b64decode(held)
    if kind == "nullValue":
        return None
    if kind == "typeValue":
        return TypeValue(held)
    if kind == "listValue":
        return [read_value(item) for item in held.get("values", ())]
    if kind == "mapValue":
        return {map_key(read_value(e["key"])): read_value(e["value"]) for e in held.get("entries", ())}
    if kind == "objectValue":
        if held["@type"].endswith("Duration"):
            return parse_duration(held["value"])
        return parse_timestamp(held["value"])
    assert kind in {"boolValue", "stringValue"}, kind
    return held


_WELL_KNOWN = {"TIMESTAMP": t.TIMESTAMP, "DURATION": t.DURATION, "ANY": t.ANY}
_PRIMITIVE = {
    "BOOL": t.BOOL,
    "INT64": t.INT,
    "UINT64": t.UINT,
    "DOUBLE": t.DOUBLE,
    "STRING": t.STRING,
    "BYTES": t.BYTES,
}


def read_type(type_: dict[str, Any]) -> t.Type:
    """A `cel.expr.Type` in protobuf's JSON."""
    ((kind, held),) = type_.items()
    if kind == "primitive":
        return _PRIMITIVE[held]
    if kind == "wellKnown":
        return _WELL_KNOWN[held]
    if kind == "listType":
        return t.list_of(read_type(held["elemType"]))
    if kind == "mapType":
        return t.map_of(read_type(held["keyType"]), read_type(held["valueType"]))
    if kind == "type":
        return t.type_of(read_type(held)) if held else t.TYPE
    if kind == "typeParam":
        return t.param(held)
    if kind == "abstractType":
        return t.opaque(held["name"], *map(read_type, held.get("parameterTypes", ())))
    return {"dyn": t.DYN, "null": t.NULL}[kind]


def same(got: Any, want: Any) -> bool:
    """Equal and of the same types, all the way down; NaN is itself."""
    if type_name(got) != type_name(want):
        return False
    if isinstance(want, float) and want != want:  # noqa: PLR0124
        return bool(got != got)  # noqa: PLR0124
    if isinstance(want, list):
        return len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, dict):
        keys = dict(items_of(want))
        return (
            len(got) == len(want)
            and all(key in got and same(got[key], want[key]) for key in want)
            and bool(keys or not got)
        )
    return equal(got, want)


def environment_of(case: dict[str, Any]) -> Environment:
    variables = {
        declared["name"]: read_type(declared["ident"]["type"])
        for declared in case.get("typeEnv", ())
        if "ident" in declared
    }
    for name in case.get("bindings", {}):
        variables.setdefault(name, t.DYN)
    declared = Library("declared by the case")
    for entry in case.get("typeEnv", ()):
        for overload in entry.get("function", {}).get("overloads", ()):
            params = tuple(map(read_type, overload.get("params", ())))
            declared.overloads.append(
                Overload(
                    overload["overloadId"],
                    entry["name"],
                    params,
                    read_type(overload["resultType"]),
                    member=overload.get("isInstanceFunction", False),
                    call=no_overload,
                )
            )
    environment = SPEC.extend(variables=variables, libraries=(declared,))
    return replace(environment, container=case.get("container", ""), checked=not case.get("disableCheck", False))


def complaint(case: dict[str, Any]) -> str | None:
    """Why the case fails; None when it passes."""
    bindings = {name: read_value(bound["value"]) for name, bound in case.get("bindings", {}).items()}
    try:
        program = compile_cel(case["expr"], environment_of(case))
        got = None if case.get("checkOnly") else program.evaluate_raw(bindings)
    except (CompileError, EvaluationError) as error:
        return None if "evalError" in case else f"failed: {error}"
    if "evalError" in case:
        return f"should have failed: {got!r}"
    typed = case.get("typedResult", {})
    if "deducedType" in typed and (want_type := read_type(typed["deducedType"])) != program.type:
        return f"type {program.type}, want {want_type}"
    want = typed.get("result") or case.get("value") or {"boolValue": True}
    if not case.get("checkOnly") and not same(got, read_value(want)):
        return f"got {got!r}, want {want}"
    return None


# Where Kubernetes (cel-go) and the specification differ, Kubernetes is right here: path/name of the case to the reason.
DIFFERENT: dict[str, str] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names: dict[str, int] = {}
    cases = []
    for case in packed():
        name = f"{case['path']}/{case.get('name', '')}"
        names[name] = names.get(name, 0) + 1
        cases.append(pytest.param(case, id=name if names[name] == 1 else f"{name}#{names[name]}"))
    metafunc.parametrize("case", cases)


@pytest.mark.one_in(4)
def test_cel_spec_case_passes(case: dict[str, Any]) -> None:
    name = f"{case['path']}/{case.get('name', '')}"
    if name in DIFFERENT:
        pytest.skip(DIFFERENT[name])
    assert complaint(case) is None


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
