"""What expressions evaluate to, by example: the language apart from Kubernetes' additions."""

from typing import Any

import pytest

from fairlead.cel import CompileError, EvaluationError, compile  # noqa: A004
from fairlead.cel.kubernetes import BASE
from fairlead.cel.syntax.macros import BINDINGS
from fairlead.cel.types import DYN

ENVIRONMENT = BASE.extend(macros=(BINDINGS,), variables={"x": DYN, "m": DYN, "bad": DYN})
X = {"a": 1, "b": [1, 2, 3], "c": {"d": "deep"}, "n": None, "f": 1.5}


def value_of(text: str, **bindings: Any) -> Any:
    return compile(text, ENVIRONMENT).evaluate({"x": X, "m": {}, "bad": {}, **bindings})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        # arithmetic
        ("1 + 2 * 3", 7), ("7 / 2", 3), ("-7 / 2", -3), ("-7 % 3", -1), ("7 % -3", 1), ("2.0 * 1.5", 3.0),
        ("-9223372036854775808", -(2**63)), ("18446744073709551615u", 2**64 - 1), ("0x10", 16), ("-0x10", -16), ("0xFu", 15),
        ("1.0 / 0.0", float("inf")), ("-1.0 / 0.0", float("-inf")), ("1e3", 1000.0), (".5", 0.5),
        # strings
        ("'a' + \"b\"", "ab"), (r"'\u00e9\x41\101\n'", "éAA\n"), ("r'\\d'", "\\d"), ("'''a'b'''", "a'b"), ("b'\\xff'", b"\xff"),
        ("b'é'", "é".encode()), ("'äé'.size()", 2), ("size(b'é')", 2), ('"""multi\nline"""', "multi\nline"),
        # comparison
        ("1 < 2u", True), ("dyn(1) == 1.0", True), ("dyn(1u) == 1", True), ("dyn(1) == true", False), ("dyn('a') == 1", False),
        ("2 > 1.5", True), ("'a' < 'b'", True), ("b'a' < b'b'", True), ("false < true", True), ("[1, 2] == [1, 2]", True),
        ("{'a': 1} == {'a': 1}", True), ("dyn([1]) == dyn([1.0])", True), ("dyn([1]) == dyn([true])", False),
        ("null == null", True), ("dyn(null) == 1", False), ("1 in [1, 2]", True), ("'k' in {'k': 1}", True),
        ("dyn(1.0) in [1, 2]", True), ("true in [false]", False), ("{true: 'y', false: 'n'}[true]", "y"), ("{1: 'a'}[1]", "a"),
        ("dyn({1: 'a'})[1.0]", "a"), ("dyn({1: 'a'})[1u]", "a"),
        # logic
        ("true || bad.missing", True), ("bad.missing || true", True), ("false && bad.missing", False), ("bad.missing && false", False),
        ("true ? 1 : 2", 1), ("false ? 1 : true ? 2 : 3", 2), ("!true", False), ("!!true", True), ("--1", 1),
        ("true && true && true && false", False), ("false || false || true", True),
        # fields
        ("x.a", 1), ("x['a']", 1), ("x.b[1]", 2), ("x.c.d", "deep"), ("has(x.a)", True), ("has(x.z)", False), ("has(x.c.d)", True),
        ("x.?a.orValue(9)", 1), ("x.?z.orValue(9)", 9), ("x.?c.?d.hasValue()", True), ("x.?z.?d.?e.orValue('no')", "no"),
        ("x.?c.d.orValue('no')", "deep"), ("x[?'b'][?1].orValue(0)", 2), ("x.b[?7].orValue(0)", 0), ("x.?n.hasValue()", True), ("has(x.a.b)", False), ("has(x.n.b)", False),
        ("x.a.?b.hasValue()", False), ("x.n.?b.hasValue()", False), ("x.a[?'b'].hasValue()", False),
        # optionals
        ("optional.of(1).value()", 1), ("optional.none().or(optional.of(2)).value()", 2), ("optional.of(1).or(bad.missing).value()", 1),
        ("optional.of(1).orValue(bad.missing)", 1), ("optional.ofNonZeroValue(0).hasValue()", False), ("[?optional.of(1), ?optional.none()]", [1]),
        ("{?'a': optional.none(), 'b': 1}", {"b": 1}), ("optional.of(2).optMap(v, v * 2).value()", 4),
        ("optional.none().optMap(v, v * 2).hasValue()", False), ("optional.of(1).optFlatMap(v, optional.none()).hasValue()", False),
        ("optional.of(1) == optional.of(1)", True), ("optional.none() == optional.none()", True), ("[1, 2].last().value()", 2),
        # macros
        ("[1, 2, 3].all(i, i > 0)", True), ("[1, 2, 3].exists(i, i > 2)", True), ("[1, 2, 3].exists_one(i, i > 2)", True),
        ("[1, 2, 3].map(i, i * 2)", [2, 4, 6]), ("[1, 2, 3].map(i, i > 1, i * 2)", [4, 6]), ("[1, 2, 3].filter(i, i > 1)", [2, 3]),
        ("{'a': 1, 'b': 2}.map(k, k)", ["a", "b"]), ("[0, 1].exists(i, 1 / i == 1)", True), ("[0, 1].all(i, i == 2 && 1 / i == 1)", False),
        ("[[1, 2], [3]].all(l, l.all(i, i > 0))", True), ("[1, 2].map(i, [3, 4].map(j, i * j))", [[3, 4], [6, 8]]),
        ("[5, 6].all(i, v, v == i + 5)", True), ("{'a': 1}.exists(k, v, k == 'a' && v == 1)", True), ("[1, 1].existsOne(i, v, i == 0)", True),
        ("[1, 2].transformList(i, v, i + v)", [1, 3]), ("[1, 2].transformList(i, v, i > 0, v)", [2]),
        ("{'a': 1}.transformMap(k, v, v + 1)", {"a": 2}), ("['x'].transformMapEntry(i, v, {v: i})", {"x": 0}),
        ("cel.bind(a, 2, a * a)", 4), ("cel.bind(a, bad.missing, true)", True), ("cel.bind(a, [1], cel.bind(b, a + [2], b))", [1, 2]),
        ("[3, 1, 2].sortBy(v, -v)", [3, 2, 1]), ("[1, 2, 3].map(i, cel.bind(d, i * 2, d + d))", [4, 8, 12]),
        # types and conversions
        ("type(1) == int", True), ("type('a') == string", True), ("type([]) == list", True), ("type(type(1)) == type", True), ("type(null) == null_type", True),
        ("int('12')", 12), ("int(3.9)", 3), ("int(-3.9)", -3), ("uint(3)", 3), ("double('1.5')", 1.5), ("bool('true')", True), ("string(1)", "1"),
        ("string(1.0)", "1"), ("string(1e6)", "1e+06"), ("string(123456.75)", "123456.75"), ("string(0.00001)", "1e-05"), ("string(true)", "true"),
        ("string(b'abc')", "abc"), ("bytes('é')", "é".encode()), ("string(duration('90m'))", "5400s"), ("int(timestamp('1970-01-01T00:01:00Z'))", 60),
    ],
)  # fmt: skip
def test_an_expression_evaluates(text: str, want: Any) -> None:
    got = value_of(text)
    assert got == want
    assert type(got) is type(want)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9223372036854775807 + 1", "overflow"), ("-9223372036854775808 - 1", "overflow"), ("9223372036854775807 * 2", "overflow"),
        ("-(-9223372036854775808)", "overflow"), ("0u - 1u", "overflow"), ("-9223372036854775808 / -1", "overflow"),
        ("1 / 0", "division by zero"), ("1 % 0", "modulus by zero"), ("x.z", "no such key: z"), ("x.c.z", "no such key: z"),
        ("x.b[3]", "out of bounds: 3"), ("x.b['a']", "index"), ("x.a.b", "no such overload"), ("x.a + 'b'", "no such overload"),
        ("has(x.b.c)", "unsupported index type"), ("has(x.z.a)", "no such key: z"), ("x.a && true", "no such overload"), ("x.a ? 1 : 2", "no such overload"), ("x.a.all(i, true)", "iterable"),
        ("true && bad.missing", "no such key"), ("bad.missing || false", "no such key"), ("[0, 1].all(i, 1 / i == 1)", "division"),
        ("[0, 1].all(i, i == 0 ? 1 / i == 1 : x.z)", "division"), ("[1, 0].exists(i, i == 0 ? 1 / i == 2 : x.z)", "no such key: z"),
        ("[0, 1].map(i, 1 / i)", "division"), ("optional.none().value()", "none"), ("{'a': 1, 'a': 2}", "repeated key"),
        ("[1, 1].transformMapEntry(i, v, {v: i})", "already exists"), ("timestamp(x.a + 253402300800)", "timestamp"), ("int(x.f * 1e300)", "overflow"),
        ("dyn(1).startsWith('a')", "no such overload"), ("[1].map(i, dyn(i)).join(',')", "no such overload"), ("dyn({1.5: 2})", "key type"),
    ],
)  # fmt: skip
def test_an_expression_fails_for_a_reason(text: str, reason: str) -> None:
    with pytest.raises(EvaluationError, match=reason):
        value_of(text)


@pytest.mark.parametrize(
    "text",
    ["", "1 +", "(1", "[1", "{1: }", "a b", "1 = 1", "true and false", "x.", "x.1", "'a", "'a\nb'", r"'\q'", "5.", "0b1", "x.in", "for", "a.all(b)", "has(x)",
     "has(x['a'])", "[1].all(x.y, true)", "18446744073709551616u", "9223372036854775808", "1e999", "?x", "x ? 1", "{,}", "[,]", "@", "\x00", "b'\\u0041'"],
)  # fmt: skip
def test_what_is_no_cel_is_refused(text: str) -> None:
    with pytest.raises(CompileError):
        compile(text, ENVIRONMENT)


@pytest.mark.parametrize(
    "text", ["true // c", " \t\n true", "[1, 2,]", "{'a': 1,}", "x .a", "x\n.a", "// before\ntrue"]
)
def test_spaces_comments_and_trailing_commas_are_nothing(text: str) -> None:
    compile(text, ENVIRONMENT)


def test_a_program_needs_its_variables() -> None:
    with pytest.raises(EvaluationError, match="no such attribute"):
        compile("x == 1", ENVIRONMENT).evaluate({})
    assert compile("x == 1", ENVIRONMENT).variables == {"x"}


def test_results_are_plain_python_and_inputs_stay_as_they_were() -> None:
    document = {"spec": {"list": [3, 1, 2]}}
    program = compile("x.spec.list.map(i, i + 1) + [9]", ENVIRONMENT)
    assert program.evaluate({"x": document}) == [4, 2, 3, 9]
    assert program.evaluate({"x": document}) == [4, 2, 3, 9]
    assert document == {"spec": {"list": [3, 1, 2]}}
