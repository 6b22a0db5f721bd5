"""What cel-go has and no Kubernetes environment: math, encoders, cel.block, reverse, and version 4 of format().

The public conformance cases need them. Source: cel-go ext/math.go, encoders.go, strings.go, formatting_v2.go.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from fairlead.cel.declare import Library
from fairlead.cel.equality import compare_numbers
from fairlead.cel.errors import EvaluationError, Issue
from fairlead.cel.library.conversions import string_of_float
from fairlead.cel.library.formatting import PRECISION_DEFAULT, STRING_COMPLAINT, VERBS, fill, plain_text
from fairlead.cel.library.standard import check_int, check_uint
from fairlead.cel.library.strings import formatted_size
from fairlead.cel.syntax import ast
from fairlead.cel.syntax.lexer import SyntaxIssue
from fairlead.cel.syntax.macros import Macro, Macros, Maker, binding
from fairlead.cel.values import INT64_MIN, UINT64_MAX, UInt, items_of, no_overload, type_name

MATH: Final = Library("math")
ENCODERS: Final = Library("encoders")
FORMAT_V4: Final = Library("strings.format.4")
STRINGS_REVERSE: Final = Library("strings.reverse")
_NUMBER_KINDS: Final = ("int", "uint", "double")


# math


def _extreme(name: str, sign: int) -> Callable[[Sequence[object]], object]:
    def pick(values: Sequence[object]) -> object:
        if not values:
            raise EvaluationError(f"{name}() argument must not be empty")
        best: object = None
        for value in values:
            if type(value) not in {int, UInt, float}:
                no_overload(name, value)
            if best is None or (compare_numbers(value, best) or 0) * sign > 0:
                best = value
        return best

    return pick


def _extreme_macro(name: str) -> Macro:
    def expand(make: Maker, pos: int, target: ast.Node | None, args: tuple[ast.Node, ...]) -> ast.Node | None:
        if not isinstance(target, ast.Ident) or target.name != "math":
            return None
        for arg in args:
            literal = isinstance(arg, ast.Literal) and type(arg.value) not in {int, UInt, float}
            container = isinstance(arg, ast.MapNode) or (
                isinstance(arg, ast.ListNode) and (len(args) > 1 or not arg.elements)
            )
            if literal or container:
                raise SyntaxIssue(
                    Issue(f"math.{name}() invalid argument: it takes numbers or one list of numbers", arg.pos)
                )
        given = args[0] if len(args) == 1 and not isinstance(args[0], ast.Literal) else make.list_(pos, args)
        if len(args) == 1 and not isinstance(args[0], ast.ListNode):
            return make.call(pos, f"math.@{name}One", args[0])
        return make.call(pos, f"math.@{name}", given)

    return expand


def _round_half_away(value: float) -> float:
    if not math.isfinite(value):
        return value
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _whole(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: math.copysign(float(function(value)), value) if math.isfinite(value) else value


def _absolute(value: int) -> int:
    if value == INT64_MIN:
        raise EvaluationError("integer overflow")
    return abs(value)


def _sign(value: float) -> float:
    return value if math.isnan(value) else float((value > 0) - (value < 0))


def _shift_left(bits: int, signed: bool) -> Callable[[int, int], int]:
    def shift(value: int, count: int) -> int:
        if count < 0:
            raise EvaluationError(f"math.bitShiftLeft() negative offset: {count}")
        moved = (int(value) << count) & UINT64_MAX if count < bits else 0
        return _to_signed(moved) if signed else UInt(moved)

    return shift


def _shift_right(signed: bool) -> Callable[[int, int], int]:
    def shift(value: int, count: int) -> int:
        if count < 0:
            raise EvaluationError(f"math.bitShiftRight() negative offset: {count}")
        moved = (int(value) & UINT64_MAX) >> count if count < 64 else 0
        return _to_signed(moved) if signed else UInt(moved)

    return shift


def _to_signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _square_root(value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


def _declare_math() -> None:
    lib = MATH
    for name, sign in (("greatest", 1), ("least", -1)):
        pick = _extreme(f"math.{name}", sign)
        for kind in (*_NUMBER_KINDS, "dyn"):
            lib.function(f"math.@{name}", f"list({kind})", kind, f"math_@{name}_list_{kind}", pick)
            lib.function(f"math.@{name}One", f"list({kind})", kind, f"math_@{name}_one_list_{kind}", pick)
            if kind != "dyn":
                lib.function(f"math.@{name}One", kind, kind, f"math_@{name}_one_{kind}", lambda value: value)
    for name, function in (("ceil", math.ceil), ("floor", math.floor), ("trunc", math.trunc)):
        lib.function(f"math.{name}", "double", "double", f"math_{name}_double", _whole(function))
    lib.function("math.round", "double", "double", "math_round_double", _round_half_away)
    lib.function("math.isInf", "double", "bool", "math_isInf_double", math.isinf)
    lib.function("math.isNaN", "double", "bool", "math_isNaN_double", math.isnan)
    lib.function("math.isFinite", "double", "bool", "math_isFinite_double", math.isfinite)
    lib.function("math.abs", "double", "double", "math_abs_double", abs)
    lib.function("math.abs", "int", "int", "math_abs_int", _absolute)
    lib.function("math.abs", "uint", "uint", "math_abs_uint", lambda value: value)
    lib.function("math.sign", "double", "double", "math_sign_double", _sign)
    lib.function("math.sign", "int", "int", "math_sign_int", lambda value: (value > 0) - (value < 0))
    lib.function("math.sign", "uint", "uint", "math_sign_uint", lambda value: UInt(value > 0))
    for kind in ("int", "uint"):
        wrap = check_int if kind == "int" else check_uint
        signed = kind == "int"
        for name, combine in (("bitAnd", int.__and__), ("bitOr", int.__or__), ("bitXor", int.__xor__)):
            lib.function(f"math.{name}", f"{kind}, {kind}", kind, f"math_{name}_{kind}", _combined(combine, wrap))
        lib.function("math.bitNot", kind, kind, f"math_bitNot_{kind}", _inverted(signed))
        lib.function("math.bitShiftLeft", f"{kind}, int", kind, f"math_bitShiftLeft_{kind}", _shift_left(64, signed))
        lib.function("math.bitShiftRight", f"{kind}, int", kind, f"math_bitShiftRight_{kind}", _shift_right(signed))
    for kind in _NUMBER_KINDS:
        lib.function("math.sqrt", kind, "double", f"math_sqrt_{kind}", lambda value: _square_root(float(value)))


def _combined(combine: Callable[[int, int], int], wrap: Callable[[int], int]) -> Callable[[int, int], int]:
    return lambda left, right: wrap(combine(int(left), int(right)))


def _inverted(signed: bool) -> Callable[[int], int]:
    return lambda value: ~value if signed else UInt(~int(value) & UINT64_MAX)


MATH_MACROS: Final[Macros] = {
    (name, count, True): _extreme_macro(name) for name in ("greatest", "least") for count in range(1, 33)
}


# encoders


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise EvaluationError("illegal base64 data") from None


ENCODERS.function(
    "base64.encode", "bytes", "string", "base64_encode_bytes", lambda value: base64.b64encode(value).decode()
)
ENCODERS.function("base64.decode", "string", "bytes", "base64_decode_string", _decode)


# cel.block([a, b], e): e may use cel.index(0) and cel.index(1), each evaluated at most once.


def _block(make: Maker, pos: int, target: ast.Node | None, args: tuple[ast.Node, ...]) -> ast.Node | None:
    if not isinstance(target, ast.Ident) or target.name != "cel" or not isinstance(args[0], ast.ListNode):
        return None
    node = args[1]
    for index in range(len(args[0].elements) - 1, -1, -1):
        node = binding(make, pos, f"@index{index}", args[0].elements[index], node)
    return node


def _named(prefix: str) -> Macro:
    def expand(make: Maker, pos: int, target: ast.Node | None, args: tuple[ast.Node, ...]) -> ast.Node | None:
        if not isinstance(target, ast.Ident) or target.name != "cel":
            return None
        numbers = [str(arg.value) for arg in args if isinstance(arg, ast.Literal) and type(arg.value) is int]
        return make.ident(pos, prefix + ":".join(numbers)) if len(numbers) == len(args) else None

    return expand


BLOCK_MACROS: Final[Macros] = {
    ("block", 2, True): _block,
    ("index", 1, True): _named("@index"),
    ("iterVar", 2, True): _named("@it:"),
    ("accuVar", 2, True): _named("@ac:"),
}


# format(): version 4 of the clauses, which is the specification's


def _string(value: object, _: int | None = None) -> str:
    if isinstance(value, float):
        return {"+Inf": "Infinity", "-Inf": "-Infinity"}.get(string_of_float(value), _plain(value))
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_string, value)) + "]"
    if isinstance(value, dict):
        pairs = sorted((_string(key), _string(item)) for key, item in items_of(value))
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    text = plain_text(value)
    if text is None:
        raise EvaluationError(f"{STRING_COMPLAINT}, was given {type_name(value)}")
    return text


def _plain(value: float) -> str:
    """Go's FormatFloat(v, 'f', -1, 64): the shortest digits, never an exponent."""
    if math.isnan(value):
        return "NaN"
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def _non_finite(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return None


def _decimal(value: object, _: int | None) -> str | None:
    if type(value) in {int, UInt}:
        return str(int(value))  # type: ignore[call-overload]
    return (_non_finite(value) or _plain(value)) if isinstance(value, float) else None


def _floating(letter: str) -> Callable[[object, int | None], str | None]:
    def show(value: object, precision: int | None) -> str | None:
        if type(value) in {int, UInt, float}:
            number = float(value)  # type: ignore[arg-type]
            return _non_finite(number) or f"{number:.{PRECISION_DEFAULT if precision is None else precision}{letter}}"
        return str(value) if value in {"NaN", "Infinity", "-Infinity"} else None

    return show


_NUMBERS: Final = "ints, uints, and doubles"
VERBS_V4: Final = {
    **VERBS,
    "s": replace(VERBS["s"], show=_string),
    "d": replace(VERBS["d"], show=_decimal, complaint=f"decimal clause can only be used on {_NUMBERS}"),
    "f": replace(VERBS["f"], show=_floating("f"), complaint=f"fixed-point clause can only be used on {_NUMBERS}"),
    "e": replace(VERBS["e"], show=_floating("e"), complaint=f"scientific clause can only be used on {_NUMBERS}"),
}


def _format(text: str, args: Sequence[object]) -> str:
    return fill(text, args, VERBS_V4)


_declare_math()
FORMAT_V4.member("format", "string, list(dyn)", "string", "string_format", _format, charge=formatted_size)
STRINGS_REVERSE.member("reverse", "string", "string", "string_reverse", lambda text: text[::-1])
