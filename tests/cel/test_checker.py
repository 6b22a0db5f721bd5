"""What does not type-check is refused, at the right place, with a way out."""

import pytest

from fairlead.cel import ADMISSION, CompileError, compile, compile_selector  # noqa: A004


def refused(text: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_selector(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ("device.drivr == 'a'", 7, "undefined field 'drivr'", "did you mean 'driver'?"),
        ("devise.driver == 'a'", 1, "undeclared reference to 'devise'", "did you mean 'device'?"),
        ("device.driver.startWith('a')", 24, "undeclared reference to 'startWith'", "did you mean 'startsWith'?"),
        ("device.capacity['d'].memory > quantity('1Gi')", 29, "'_>_' applied to '(kubernetes.Quantity, kubernetes.Quantity)'", "compareTo()"),
        ("device.capacity['d'].memory == '1Gi'", 29, "'_==_' applied to '(kubernetes.Quantity, string)'", 'quantity("…")'),
        ("device.attributes['d'].v > semver('1.0.0')", 26, "'(any, kubernetes.Semver)'", "compareTo()"),
        ("device.driver == 1", 15, "'(string, int)'", None),
        ("1 == 1.0", 3, "'(int, double)'", "double(…)"),
        ("quantity('1').sign() == 1", 19, "'kubernetes.Quantity.()'", "sign(x)"),
        ("size(1) == 1", 5, "'size' applied to '(int)'", "it takes (string)"),
        ("dyn(true)", 4, "must evaluate to bool or the unknown type, not dyn", "compare it"),
        ("device.attributes['d'].a + device.attributes['d'].b", 26, "not dyn", None),
        ("device.attributes", 7, "must evaluate to bool", None),
        ("device.driver", 7, "must evaluate to bool or the unknown type, not string", None),
        ("[1].all(x)", 8, "undeclared reference to 'all'", "the macro takes 2 or 3 arguments"),
        ("device.driver.all(x, true)", 7, "cannot be range of a comprehension", None),
        ("true and false", 6, "unexpected 'and'", "use &&"),
        ("device.driver = 'a'", 15, "token recognition error", "use == to compare"),
        ("device.attributes['d'].type.matches('[')", 37, "invalid matches argument", "missing"),
        ("true ? 1 : 'a'", 6, "'_?_:_' applied to '(bool, int, string)'", None),
        ("[1, 'a'] == [1, 'a']", 5, "expected type 'int' but found 'string'", "dyn(…)"),
    ],
)  # fmt: skip
def test_a_mistake_is_pointed_at(text: str, column: int, message: str, hint: str | None) -> None:
    error = refused(text)
    assert (error.line, error.column) == (1, column)
    assert message in error.message
    if hint is not None:
        assert error.hint is not None
        assert hint in error.hint


def test_the_rendering_has_the_line_and_a_caret_under_the_place() -> None:
    error = refused("device.driver == 'a' &&\n  device.nope")
    assert str(error).splitlines() == [
        "2:9: undefined field 'nope' (known here: allowMultipleAllocations, attributes, capacity, driver)",
        " |   device.nope",
        " |         ^",
    ]


def test_all_mistakes_are_reported_at_once() -> None:
    assert [issue.offset for issue in refused("device.a == 1 && foo && 1 + 'a' == 2").issues] == [6, 17, 26]


def test_a_long_line_is_shown_around_the_place() -> None:
    rendered = str(refused(f"{'true && ' * 100}device.nope"))
    assert max(map(len, rendered.splitlines())) < 150
    lines = rendered.splitlines()
    assert lines[1][lines[2].index("^")] == "."


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("device.attributes['d'].a", "any"), ("device.attributes['d'].a == 1", "bool"),
    ],
)  # fmt: skip
def test_the_type_of_a_selector_is_known(text: str, type_: str) -> None:
    assert str(compile_selector(text).type) == type_


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("1 + 2", "int"), ("[1, 2].map(x, string(x))", "list(string)"), ("{'a': [1]}", "map(string, list(int))"), ("object.a.b", "dyn"),
        ("[]", "list(dyn)"), ("optional.of(1)", "optional_type(int)"), ("[1].first().orValue(2)", "int"), ("true ? [] : [1]", "list(int)"),
        ("{'a': 1}.transformMap(k, v, k)", "map(string, string)"), ("type(1)", "type(int)"), ("timestamp(0) - timestamp(0)", "duration"), ("null", "null"),
        ("quantity('1').add(1)", "kubernetes.Quantity"), ("url('/a').getQuery()", "map(string, list(string))"),
    ],
)  # fmt: skip
def test_types_follow_from_their_parts(text: str, type_: str) -> None:
    assert str(compile(text, ADMISSION).type) == type_
