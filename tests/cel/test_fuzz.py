"""No text crashes, hangs or exhausts the parser, the checker, the estimator or the evaluator: only their own errors come out."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead.cel import ADMISSION, CompileError, DeviceView, EvaluationError, Selector, compile_selector
from fairlead.cel import compile as compile_cel
from fairlead.cel.kubernetes import DEVICE
from tests.support.cel import make_device
from tests.support.engine.examples import examples

WORDS = [
    *["(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "!", "-", "+", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "&&", "||", "in", "true", "false", "null", "0", "1", "-1", "9223372036854775807", "1u", "1.5", "1e3", "'a'", '"b"', "r'c'", "b'd'", "''", "x", "y"],
    "device", "device.driver", "device.attributes", "device.capacity", '["gpu.example.com"]', ".a", ".?a", "[?", "has(", "object", "self", "cel.bind(", "x,",
    ".all(x,", ".exists(x,", ".map(x,", ".filter(x,", ".exists_one(x,", ".transformMap(k, v,", ".sortBy(x,", ".optMap(x,", "size(", "quantity('1Gi')", "semver('1.0.0')",
    "duration('1s')", "timestamp(0)", "optional.of(", "optional.none()", ".orValue(", ".format([", "'%s%d'", ".matches('a*')", ".replace('','aaaa')", "lists.range(", ".join(", ".split(",
    ".flatten()", ".distinct()", ".sort()", ".sum()", "type(", "dyn(", "int(", "string(", "ip('::1')", "cidr('10.0.0.0/8')", "url('/a')", "sets.contains(", ".compareTo(", ".add(", "\n", " ",
    "// c\n", "`a-b`", "\\", "'", '"', "\x00", "é", "\U0001f600", "1_000", "0x", "..", "@result", "__result__", "cel.@mapInsert(", "@in", "[1,2]", "{'k':1}", "{1:2}",
]  # fmt: skip
texts = (
    st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)
    | st.lists(st.sampled_from(WORDS), max_size=25).map("".join)
    | st.text(max_size=60)
)


def compiled_or_refused(text: str) -> Selector | CompileError:
    try:
        return compile_selector(text)
    except CompileError as error:
        return error


def exercise(text: str, device: DeviceView) -> None:
    result = compiled_or_refused(text)
    if isinstance(result, CompileError):
        assert min(result.line, result.column) >= 1
        assert str(result)
    else:
        assert result.estimated_cost >= 0
        assert result.reads is not None
        assert result.verdict(device) is not None


@settings(max_examples=examples(1500), deadline=None)
@given(texts)
@example("[" * 300)
@example("'\\ud800'")
@example("1" * 5000)
@example("'a'.matches('(?P<a')")
@example("b'\\xff' + 'a'")
@example("b'\udcbd'")
@example("rb'\udcbd'")
@example("'\ud800'.matches('a')")
@example("timestamp('0001-01-01T00:00:00Z').getHours('-23:59') == 1")
@example("'%.999f'.format([1.0]) == ''")
@example("quantity('1e2147483647').add(1).isInteger()")
@example("quantity('1e-2147483648').isGreaterThan(quantity('1e2147483647'))")
@example("[1, 2].sortBy(x, {}) == []")
@example("device.attributes[1].x")
@example("cel.bind(device, device, device.driver == '')")
@example("{1: 2, true: 3}[true] == 3")
def test_no_text_breaks_a_selector(text: str) -> None:
    exercise(text, make_device({"a": 1, "b": "x"}, {"memory": "1Gi"}))


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=40))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    exercise(data.decode("utf-8", errors="surrogateescape"), make_device())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "k"]), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(700), deadline=None)
@given(texts.map(lambda text: text.replace("device", "object")), json_values)
def test_no_object_breaks_a_policy(text: str, value: Any) -> None:
    try:
        program = compile_cel(text, ADMISSION)
        program.evaluate(dict.fromkeys(ADMISSION.variables, value), budget=20_000)
    except (CompileError, EvaluationError):
        pass


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(sorted(DEVICE.functions)), st.data())
def test_no_function_breaks_on_values_of_unknown_type(name: str, data: st.DataObject) -> None:
    """Every overload, called on dyn, either answers or says that there is no such overload."""
    overload = data.draw(st.sampled_from(DEVICE.functions[name]))
    values = [data.draw(json_values) for _ in overload.params]
    if name.startswith(("_", "@", "!", "-", "cel.@")):
        return
    args = [f"object.v{index}" for index in range(len(values))]
    text = f"{args[0]}.{name}({', '.join(args[1:])})" if overload.member else f"{name}({', '.join(args)})"
    try:
        program = compile_cel(text, ADMISSION.extend())
        program.evaluate({"object": {f"v{index}": value for index, value in enumerate(values)}})
    except (CompileError, EvaluationError):
        pass
