"""No expression hangs, exhausts memory or nests without bound; the budget is the API's million."""

import pytest

from fairlead.cel import BudgetError, CompileError, DeviceView, EvaluationError, compile, compile_selector, may_select  # noqa: A004
from fairlead.cel.devices.selector import LENGTH_MAX
from fairlead.cel.kubernetes import BASE
from fairlead.cel.syntax.macros import BINDINGS
from fairlead.cel.types import DYN
from tests.support import cpu

ENVIRONMENT = BASE.extend(macros=(BINDINGS,), variables={"x": DYN})


def test_a_selector_has_a_longest_length() -> None:
    text = "true" + " " * (LENGTH_MAX - 4)
    compile_selector(text)
    with pytest.raises(CompileError, match="too long"):
        compile_selector(text + " ")
    with pytest.raises(CompileError, match="too long"):
        compile_selector("'" + "é" * (LENGTH_MAX // 2) + "' == ''")


@pytest.mark.parametrize(
    ("opening", "core", "closing"),
    [("(", "1", ")"), ("[", "1", "]"), ("!(", "true", ")"), ("-(", "1", ")"), ("false ? 1 : ", "1", ""), ("{1: ", "1", "}"), ("[1].map(i, ", "i", ")"),
     ("size([", "1", "])"), ("x[", "1", "]"), ("1 + (", "1", ")")],
)  # fmt: skip
def test_nesting_is_bounded(opening: str, core: str, closing: str) -> None:
    compile(opening * 40 + core + closing * 40, ENVIRONMENT)
    with pytest.raises(CompileError, match="recursion limit"):
        compile(opening * 2000 + core + closing * 2000, ENVIRONMENT)


@pytest.mark.parametrize("link", [".a", "[0]", ".a()", " + 1", " * 2", " == 1"])
def test_chains_are_bounded(link: str) -> None:
    with pytest.raises(CompileError, match=r"recursion limit|undeclared"):
        compile("x" + link * 3000, ENVIRONMENT)


def test_long_chains_of_and_and_or_are_fine() -> None:
    assert compile(" && ".join(["true"] * 3000), ENVIRONMENT).evaluate({}) is True
    assert compile(" || ".join(["false"] * 3000 + ["true"]), ENVIRONMENT).evaluate({}) is True


@pytest.mark.parametrize(
    "text",
    [
        "lists.range(100000).all(a, lists.range(100000).all(b, a + b >= 0))",
        "lists.range(10000000).size() == 0",
        "lists.range(1000).map(a, lists.range(1000).map(b, lists.range(1000))).size() == 0",
        "cel.bind(a, lists.range(1000), cel.bind(b, a + a + a + a + a + a + a + a + a + a, cel.bind(c, b + b + b + b + b + b + b + b + b + b, (c + c + c + c + c + c + c + c + c + c).size() > 0)))",
        "lists.range(999).map(a, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa').join('').replace('', lists.range(999).map(a, 'aaaaaaaaaaaaaaaaaaaaaaaaa').join('')).size() > 0",
        "lists.range(2000).distinct().size() > 0",
        "lists.range(2000).sort().size() > 0",
        "sets.contains(lists.range(2000), lists.range(2000))",
    ],
)  # fmt: skip
def test_the_budget_ends_what_would_not_end(text: str) -> None:
    program = compile(text, ENVIRONMENT)
    with cpu.at_most(10.0), pytest.raises(BudgetError, match="cost limit exceeded"):
        program.evaluate({})


def test_doubling_by_bind_is_paid_for() -> None:
    nested = "z.size() > 0"
    for before, after in zip("yxwvutsrqponmlkjihgfedcba", "zyxwvutsrqponmlkjihgfedcb", strict=True):
        nested = f"cel.bind({after}, {before} + {before}, {nested})"
    with pytest.raises(BudgetError):
        compile(f"cel.bind(a, '0123456789', {nested})", ENVIRONMENT).evaluate({})


def nested_pairs(levels: int, use: str) -> str:
    """A list of two lists of two lists…: as many objects as levels, but 2**levels leaves."""
    text = use
    for level in range(levels, 0, -1):
        text = f"cel.bind(v{level}, [v{level - 1}, v{level - 1}], {text})"
    return f"cel.bind(v0, [1], {text})"


@pytest.mark.parametrize(
    "use",
    [
        "v40 == v40",
        "v40 != [v39, v39]",
        "v40 in [v40]",
        "[v40].indexOf(v40) == 0",
        "sets.contains([v40], [v40])",
        "[v40, v40].distinct().size() == 1",
    ],
)
def test_shared_parts_are_compared_once(use: str) -> None:
    with cpu.at_most(1.0):
        compile(nested_pairs(40, use), ENVIRONMENT).evaluate({})


def test_shared_parts_of_a_result_stay_shared() -> None:
    result = compile(nested_pairs(40, "v40"), ENVIRONMENT).evaluate({})
    assert result[0] is result[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "use", ["v40.flatten(40).size() > 0", "'%s'.format([v40]).size() > 0", "[1, 2].all(i, v40 == v40)"]
)
def test_shared_parts_are_not_written_out(use: str) -> None:
    with pytest.raises(BudgetError):
        compile(nested_pairs(40, use), ENVIRONMENT).evaluate({})


def test_a_type_does_not_grow_without_bound() -> None:
    text = "v40"
    for level in range(40, 0, -1):
        text = f"cel.bind(v{level}, {{v{level - 1}: v{level - 1}}}, {text})"
    with cpu.at_most(2.0), pytest.raises(CompileError, match="too complex"):
        compile(f"cel.bind(v0, [1], {text})", ENVIRONMENT)


def test_types_that_are_found_out_late_do_not_grow_either() -> None:
    text = "true"
    for level in range(60, 0, -1):
        text = f"cel.bind(m{level}, {{}}, (m{level - 1} == {{m{level}: m{level}}}) || {text})"
    with cpu.at_most(8.0), pytest.raises(CompileError, match="too complex"):
        compile(f"cel.bind(m0, {{}}, {text})", ENVIRONMENT)


@pytest.mark.parametrize(
    "text",
    [
        "lists.range(10000000).size() == 0",
        "'" + "a" * 2000 + "'" + ".replace('', 'aaaaaaaaaaaaaaaaaaaaaaaa')" * 40 + " == ''",
    ],
)
def test_deciding_whether_a_request_is_managed_costs_little(text: str) -> None:
    with cpu.at_most(1.0):
        assert may_select([text], "gpu.example.com")


def test_documents_nested_beyond_reason_fail_alone() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for text in ("x", "x == x", "[x] == [x]", "'%s'.format([x])"):
        with pytest.raises(EvaluationError):
            compile(text, ENVIRONMENT).evaluate({"x": deep})


def test_the_budget_is_not_absorbed_by_logic() -> None:
    with pytest.raises(BudgetError):
        compile("lists.range(100000).all(a, lists.range(100000).all(b, true)) || true", ENVIRONMENT).evaluate({})


def test_a_caller_may_set_a_smaller_budget() -> None:
    program = compile("[1, 2, 3].all(a, a > 0)", ENVIRONMENT)
    assert program.evaluate({}) is True
    with pytest.raises(BudgetError):
        program.evaluate({}, budget=5)


def test_optional_maps_chain_without_doubling_the_work() -> None:
    text = "optional.of(1)" + ".optMap(v, v + 1)" * 40 + ".value()"
    with cpu.at_most(5.0):
        assert compile(text, ENVIRONMENT).evaluate({}) == 41


def test_patterns_run_in_linear_time(h100: DeviceView) -> None:
    program = compile("x.matches('(a*)*b')", ENVIRONMENT)
    with cpu.at_most(1.0):
        assert program.evaluate({"x": "a" * 50_000}) is False


def test_an_enormous_pattern_is_refused_not_compiled() -> None:
    with pytest.raises((CompileError, EvaluationError)):
        compile("x.matches('((((a{100}){100}){100}){100})')", ENVIRONMENT).evaluate({"x": "a"})
