"""Generated expressions of the shared language mean the same to Google's C++ implementation.

Three outcomes are compared: refused, failed, or a value with its type. Extensions of Kubernetes are out of its reach. Left out where
C++ differs from cel-go, which Kubernetes runs: fractions of seconds in text, and `"".split("")`,
and a list or map looked for among the keys of a map.
"""

import datetime as dt
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.cel import CompileError, EvaluationError
from fairlead.cel import compile as compile_cel
from fairlead.cel.declare import Overload
from fairlead.cel.kubernetes import CEL
from fairlead.cel.library.strings import STRINGS
from fairlead.cel.syntax.macros import BINDINGS
from fairlead.cel.types import BOOL, DYN, INT
from fairlead.cel.values import Duration, Optional, Timestamp, TypeValue, items_of, type_name
from tests.support.engine.examples import examples

cpp = pytest.importorskip("cel_expr_python.cel", reason="cel-expr-python has no wheel for this platform")
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings  # noqa: E402

ENVIRONMENT = replace(
    CEL.extend(libraries=(STRINGS,), macros=(BINDINGS,), variables={"x": DYN}),
    homogeneous_literals=False,
    validate_literals=False,
    fold_constants=False,
)


def _fails(_: object) -> object:
    raise EvaluationError("int(duration) is cel-go's alone")


# What C++ does otherwise when it runs: int(duration) fails, int(dyn(true)) is 1.
AS_CPP = replace(
    ENVIRONMENT,
    functions={
        **ENVIRONMENT.functions,
        "int": (
            *(replace(o, call=_fails) if o.id == "duration_to_int64" else o for o in ENVIRONMENT.functions["int"]),
            Overload("bool_to_int64", "int", (BOOL,), INT, member=False, call=int),
        ),
    },
)
# And when it checks types: Kubernetes switches on comparison across numeric types, the binding cannot.
UNCROSSED = replace(
    ENVIRONMENT,
    functions={
        name: tuple(o for o in overloads if name[:2] not in {"_<", "_>"} or o.params[0] == o.params[1])
        for name, overloads in ENVIRONMENT.functions.items()
    },
)
X = {"i": 1, "s": "text", "b": True, "d": 1.5, "n": None, "l": [1, 2, 3], "m": {"k": "v"}}
ORACLE = cpp.NewEnv(
    variables={"x": cpp.Type.DYN},
    extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
)
_NAMES = {
    "google.protobuf.Timestamp": "TIMESTAMP", "google.protobuf.Duration": "DURATION", "null_type": "NULL", "optional_type": "OPTIONAL",
}  # fmt: skip


def plain(value: Any) -> Any:
    """Values of either implementation, made comparable."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {repr(plain(key)): plain(item) for key, item in items_of(value)}
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return "nan" if value != value else value  # noqa: PLR0124
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, Timestamp):
        return ("timestamp", value.ns // 1000)
    if isinstance(value, Duration):
        return ("duration", value.ns // 1000)
    if isinstance(value, dt.datetime):
        return (
            "timestamp",
            (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1),
        )
    if isinstance(value, dt.timedelta):
        return ("duration", value // dt.timedelta(microseconds=1))
    if isinstance(value, (TypeValue, Optional)) or type(value).__module__.startswith("cel_expr"):
        return type_kind(type_name(value)) if isinstance(value, (TypeValue, Optional)) else "opaque"
    return value


def type_kind(name: str) -> str:
    return _NAMES.get(name, name).upper()


def ours(text: str) -> tuple[str, Any]:
    try:
        compile_cel(text, UNCROSSED)
        program = compile_cel(text, AS_CPP)
    except CompileError:
        return "refused", None
    try:
        value = program.evaluate_raw({"x": X})
    except EvaluationError:
        return "failed", None
    return type_kind(type_name(value)), plain(value)


def theirs(text: str) -> tuple[str, Any]:
    try:
        program = ORACLE.compile(text)
    except RuntimeError:
        return "refused", None
    value = program.eval(data={"x": X})
    kind = str(value.type()).partition("<")[0]
    if kind == "ERROR":
        return "failed", None
    return kind, plain(value.plain_value())


integers = st.integers(-5, 5).map(str) | st.sampled_from(["9223372036854775807", "-9223372036854775808", "2147483648"])
strings = st.sampled_from(["''", "'a'", "'abc'", "'äé'", "'A1'", "x.s", "'1'", "'true'", "'1.5'"])
LEAVES = {
    "int": integers | st.sampled_from(["x.i", "size('abc')", "int('7')"]),
    "uint": st.integers(0, 5).map(lambda n: f"{n}u") | st.just("18446744073709551615u"),
    "double": st.sampled_from(["0.0", "1.5", "-2.5", "1e300", "x.d", "double(3)"]),
    "string": strings,
    "bytes": st.sampled_from(["b''", "b'a'", "b'\\xff'", "bytes('é')"]),
    "bool": st.sampled_from(["true", "false", "x.b", "has(x.i)", "has(x.zz)"]),
    "null": st.just("null"),
    "list": st.sampled_from(["[]", "[1, 2, 3]", "['a', 'b']", "x.l", "[true]", "[[1], []]"]),
    "map": st.sampled_from(["{}", "{'k': 1}", "{1: 'a', 2: 'b'}", "x.m", "{true: 1}", "{1u: 2}"]),
    "duration": st.sampled_from(["duration('1h')", "duration('-90s')", "duration('0s')"]),
    "timestamp": st.sampled_from(["timestamp('2026-01-02T03:04:05Z')", "timestamp('1970-01-01T00:00:05Z')"]),
    "dyn": st.sampled_from(
        [
            "x.i",
            "x.s",
            "x.d",
            "x.l",
            "x.m",
            "x.n",
            "x.zz",
            "dyn(1)",
            "dyn('a')",
            "dyn([1])",
            "x.l[0]",
            "x.m.k",
            "x.m.zz",
        ]
    ),
}
KINDS = sorted(LEAVES)
FORMS = {
    "int": ["({int} %op% {int})", "-({int})", "size({string|list|map|bytes})", "({bool} ? {int} : {int})", "int({int|uint|double|string})",
            "{duration}.getSeconds()", "{string}.indexOf({string})", "{timestamp}.getFullYear()"],
    "uint": ["({uint} %op% {uint})", "uint({int|uint|double|string})"],
    "double": ["({double} + {double})", "({double} * {double})", "({double} / {double})", "-({double})", "double({string|int|uint})"],
    "string": ["({string} + {string})", "string({int|uint|bool|string|bytes|duration|timestamp})", "{string}.lowerAscii()", "{string}.substring({int})",
               "{string}.replace({string}, {string})", "({bool} ? {string} : {string})", "{string}.charAt({int})"],
    "bytes": ["({bytes} + {bytes})", "bytes({string})"],
    "bool": ["({any} == {any})", "({any} != {any})", "({int|uint|double} %rel% {int|uint|double})", "({bool} && {bool})", "({bool} || {bool})", "!({bool})",
             "({any} in {list})", "('k' in {map})", "(1 in {map})", "(true in {map})", "{string}.startsWith({string})", "{string}.contains({string})", "{list}.all(v, {bool})",
             "{list}.exists(v, v == {dyn})", "{list}.exists_one(v, {bool})", "({string} %rel% {string})", "({duration} %rel% {duration})", "{string}.matches('^[a-z]+$')",
             "({dyn} %rel% {dyn})", "bool({string})"],
    "null": ["null"],
    "list": ["[{any}, {any}]", "({list} + {list})", "{list}.map(v, {any})", "{list}.filter(v, {bool})", "{list}.map(v, v)", "{string}.split('b')"],
    "map": ["{'a': {any}, 'b': {any}}", "{{int}: {string}}"],
    "duration": ["({duration} + {duration})", "({timestamp} - {timestamp})", "({duration} - {duration})"],
    "timestamp": ["({timestamp} + {duration})", "({timestamp} - {duration})"],
    "dyn": ["{list}[{int}]", "{map}[{string}]", "dyn({any})", "x.?zz.orValue({dyn})", "x.?i.orValue({dyn})", "({dyn} + {dyn})", "cel.bind(v, {any}, {dyn})", "x[?{string}].orValue({dyn})"],
}  # fmt: skip


@st.composite
def expressions(draw: st.DrawFn, kind: str | None = None, depth: int = 3) -> str:
    kind = kind or draw(st.sampled_from(KINDS))
    if draw(st.integers(0, 24)) == 0:  # now and then of a wrong type
        kind = draw(st.sampled_from(KINDS))
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(LEAVES[kind])

    def sub(wanted: str) -> str:
        return draw(expressions(wanted, depth - 1))

    def some(*wanted: str) -> str:
        return sub(draw(st.sampled_from(wanted)))

    def anything() -> str:
        return some(*KINDS)

    def pick(*options: str) -> str:
        return draw(st.sampled_from(options))

    # `{int}` is an integer expression, `{any}` one of any kind; only the form that is drawn is filled in.
    form = draw(st.sampled_from(FORMS[kind]))
    parts = re.split(r"\{([a-z|]+)\}", form)
    for index in range(1, len(parts), 2):
        parts[index] = anything() if parts[index] == "any" else some(*parts[index].split("|"))
    text = "".join(parts)
    return text.replace("%op%", pick("+", "-", "*", "/", "%")).replace("%rel%", pick("<", "<=", ">", ">=", "==", "!="))


# The same expressions each time, so that a run says something about the change; raise max_examples to search for more.
@pytest.mark.slow
@settings(max_examples=examples(1500), deadline=None, derandomize=True)
@given(expressions())
def test_generated_expressions_mean_the_same_in_cpp(text: str) -> None:
    assert ours(text) == theirs(text), text
