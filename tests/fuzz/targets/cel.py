"""CEL: expressions of a grammar, broken and joined; compiled as a claim's selector, as a policy's rule, and evaluated on devices and objects."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from fairlead.cel import ADMISSION, CompileError, EvaluationError, compile_selector
from fairlead.cel import compile as compile_cel
from fairlead.cel.kubernetes import DEVICE
from tests.fuzz.mutations import byte_mutations, mixed
from tests.fuzz.target import Mutate, Target, says_why
from tests.support.cel import make_device

_WORDS = tuple(
    word.encode()
    for word in (
        "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "!", "-", "+", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "&&", "||", " in ", "true", "false",
        "null", "9223372036854775807", "-9223372036854775808", "1u", "18446744073709551615u", "1.5", "1e308", "'a'", '"b"', "r'c'", "b'd'", "'''x'''", "''",
        "device", "device.driver", "device.attributes", "device.capacity", "device.allowMultipleAllocations", '["gpu.example.com"]', ".a", ".?a", "[?'a']", "has(", "object",
        "oldObject", "request", "namespaceObject", "cel.bind(x, ", ".all(x, ", ".exists(x, ", ".map(x, ", ".filter(x, ", ".exists_one(x, ", ".transformMap(k, v, ",
        ".transformList(i, v, ", ".sortBy(x, ", ".optMap(x, ", ".optFlatMap(x, ", "size(", "quantity('1Gi')", "semver('1.0.0')", "duration('1s')", "timestamp('2026-01-01T00:00:00Z')",
        "optional.of(", "optional.none()", ".orValue(", ".or(", ".format([", "'%s %d %.3f %e %x %b'", ".matches('(a+)+$')", ".find('a*')", ".findAll('.')", ".replace('', 'aaaa')",
        "lists.range(1000)", ".join(',')", ".split('')", ".flatten()", ".distinct()", ".sort()", ".sum()", ".min()", ".indexOf(", ".slice(0, 1)", ".reverse()", "type(", "dyn(",
        "int(", "uint(", "double(", "string(", "bytes(", "bool(", "ip('::1')", "cidr('10.0.0.0/8')", "url('https://a:1/b?c=d')", "sets.contains(", "sets.intersects(", ".compareTo(",
        ".isGreaterThan(", ".asInteger()", ".getHours('Europe/Berlin')", ".lowerAscii()", ".charAt(", ".substring(", ".quote()", "math.greatest(", "base64.encode(", "// c\n", "`a-b`",
        "\\u0041", "\\U0010FFFF", "\\ud800", "\\x00", "\\777", "0x7fffffffffffffff", "1_000", "..", "__result__", "@in", "[1, 2]", "{'k': 1}", "{1: 2, true: 3}", "google.protobuf.Int32Value{value: 1}",
        ".with(", "isSorted()", "isQuantity(", "isSemver(", ".major()", "authorizer.group('').resource('pods').check('get')",
    )
)  # fmt: skip
_LEAVES = (
    "1", "0", "-1", "2u", "1.5", "'a'", "b'a'", "true", "null", "[]", "[1, 2, 3]", "{}", "{'a': 1}", "x", "object", "object.a", "object.spec.list", "device.driver",
    "device.attributes['gpu.example.com'].a", "device.capacity['gpu.example.com'].memory", "device.attributes['gpu.example.com'].?b", "quantity('1Gi')", "semver('1.2.3')",
    "duration('1h')", "timestamp(0)", "lists.range(10)", "'a,b'.split(',')", "optional.of(1)", "dyn(1)", "device.attributes", "object.metadata.labels",
)  # fmt: skip
_BINARY = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in")
_MACROS = ("all", "exists", "exists_one", "map", "filter", "sortBy")
_FUNCTIONS = tuple(sorted(name for name in DEVICE.functions if name.replace(".", "").replace("_", "").isalnum()))
_MEMBERS = (
    "size()",
    "lowerAscii()",
    "sum()",
    "sort()",
    "distinct()",
    "reverse()",
    "trim()",
    "hasValue()",
    "isInteger()",
    "asApproximateFloat()",
    "min()",
    "flatten()",
)


def _expression(random: Random, depth: int) -> str:
    if depth <= 0:
        return random.choice(_LEAVES)

    def one() -> str:
        return _expression(random, depth - 1 - random.randrange(2))

    match random.randrange(11):
        case 0 | 1 | 2:
            return f"({one()} {random.choice(_BINARY)} {one()})"
        case 3:
            return f"({one()} ? {one()} : {one()})"
        case 4:
            return f"{one()}.{random.choice(_MACROS)}(x, {one()})"
        case 5:
            return f"{random.choice(_FUNCTIONS)}({', '.join(one() for _ in range(random.randrange(4)))})"
        case 6:
            return f"{one()}.{random.choice(_FUNCTIONS).rpartition('.')[2]}({', '.join(one() for _ in range(random.randrange(3)))})"
        case 7:
            return f"{one()}.{random.choice(_MEMBERS)}"
        case 8:
            return f"{one()}[{one()}]"
        case 9:
            return random.choice(
                (
                    f"!{one()}",
                    f"-{one()}",
                    f"has({one()}.a)",
                    f"cel.bind(x, {one()}, {one()})",
                    f"{{{one()}: {one()}}}",
                    f"[{one()}, {one()}]",
                )
            )
        case _:
            return random.choice(_LEAVES)


def _grown(random: Random, known: bytes, other: bytes) -> bytes:
    return _expression(random, random.randrange(1, 6)).encode()


def _mutations() -> Mutate:
    return mixed((2, _grown), (3, byte_mutations(_WORDS)))


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogateescape")


_SEEDS = tuple(
    text.encode()
    for text in (
        "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].a == 1",
        "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0",
        "device.attributes['gpu.example.com'].version.isGreaterThan(semver('1.0.0'))",
        "has(object.spec.replicas) && object.spec.replicas > 1",
        "object.spec.list.all(x, x.size() < 3) || ['a', 'b'].exists(x, x.matches('^a+$'))",
        "cel.bind(x, object.metadata.labels, 'a' in x ? x['a'] == 'b' : true)",
        "'%s %d'.format(['a', 1]) == 'a 1'",
        "timestamp('2026-01-01T00:00:00Z') + duration('1h') > timestamp(0)",
        "ip('10.0.0.1').isIP() && cidr('10.0.0.0/8').containsIP('10.0.0.1')",
        "lists.range(10).map(x, x * 2).filter(x, x > 3).sum() == 1",
    )
)


def selectors(scratch: Path) -> Target:
    """Claims' selectors, on three devices."""
    devices = [
        make_device({"a": 1, "b": "x", "version": "v:1.2.3", "c": True, "l": [1, 2]}, {"memory": "80Gi"}),
        make_device({}, {}, driver="other.example.com", shared=True),
        make_device({"a": -(2**63), "b": "\u00e9" * 40}, {"memory": "1e-9", "x": "9223372036854775807"}, shared=False),
    ]

    def run(data: bytes) -> None:
        selector = compile_selector(_text(data))
        assert selector.estimated_cost >= 0
        assert selector.reads is not None
        for device in devices:
            assert selector.verdict(device) == selector.verdict(device), "a verdict depends on the device alone"

    return Target(
        name="cel-selectors", run=run, seeds=_SEEDS, mutate=_mutations(), allowed=(CompileError,), traced=("/fairlead/cel/",), bytes_max=8_000
    )  # fmt: skip


def policies(scratch: Path) -> Target:
    """Policies' rules, on objects of any shape, within a budget of steps."""
    objects: tuple[Any, ...] = (
        {"a": 1, "spec": {"replicas": 3, "list": ["a", "bb", "ccc"]}, "metadata": {"name": "x", "labels": {"a": "b"}}},
        {"a": None, "spec": None, "metadata": []},
        [1, 2.5, "\u00e9", None, {"": {"a": True}}, [[[]]]],
        None,
    )

    def run(data: bytes) -> None:
        program = compile_cel(_text(data), ADMISSION)
        for value in objects:
            try:
                program.evaluate(dict.fromkeys(ADMISSION.variables, value), budget=20_000)
            except EvaluationError as error:
                says_why(error)

    return Target(
        name="cel-policies", run=run, seeds=_SEEDS, mutate=_mutations(), allowed=(CompileError,), traced=("/fairlead/cel/",), bytes_max=8_000
    )  # fmt: skip
