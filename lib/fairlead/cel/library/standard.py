"""Operators and `size`, `contains`, `matches`…: the library of every CEL environment.

Integers have 64 bits and overflow is an error. `&&`, `||`, `?:` and indexing are only declared here, for the checker; their
code is in forms.py, for they do not evaluate all their arguments or have a faster form.

Source: cel-spec langdef "Standard Definitions", cel-go common/stdlib.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

from fairlead.cel.declare import Library
from fairlead.cel.equality import compare, contains, equal
from fairlead.cel.errors import EvaluationError
from fairlead.cel.library.regex import matches, matching_cost
from fairlead.cel.values import INT64_MAX, INT64_MIN, UINT64_MAX, UInt, lookup_key, no_overload

STANDARD: Final = Library("standard")


def check_int(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise EvaluationError("integer overflow")
    return value


def check_uint(value: int) -> UInt:
    if not 0 <= value <= UINT64_MAX:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)


def _int_op(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda left, right: check_int(function(left, right))


def _uint_op(function: Callable[[int, int], int]) -> Callable[[int, int], UInt]:
    return lambda left, right: check_uint(function(int(left), int(right)))


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("modulus by zero")
    if left == INT64_MIN and right == -1:
        raise EvaluationError("integer overflow")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _divide_floats(left: float, right: float) -> float:
    if right == 0:
        if left == 0 or left != left:  # noqa: PLR0124 - NaN
            return float("nan")
        return float("inf") if (left > 0) == (str(right)[0] != "-") else float("-inf")
    return left / right


def _sizes(left: object, right: object) -> int:
    return len(left) + len(right)  # type: ignore[arg-type]


def _concatenate(left: object, right: object) -> list[object]:
    return [*left, *right]  # type: ignore[misc]


def _arithmetic() -> None:
    lib = STANDARD
    for name, function, word in (
        ("_+_", operator.add, "add"),
        ("_-_", operator.sub, "subtract"),
        ("_*_", operator.mul, "multiply"),
    ):
        lib.function(name, "int, int", "int", f"{word}_int64", _int_op(function))
        lib.function(name, "uint, uint", "uint", f"{word}_uint64", _uint_op(function))
        lib.function(name, "double, double", "double", f"{word}_double", function)
    lib.function("_/_", "int, int", "int", "divide_int64", _int_op(_divide))
    lib.function("_/_", "uint, uint", "uint", "divide_uint64", _uint_op(_divide))
    lib.function("_/_", "double, double", "double", "divide_double", _divide_floats)
    lib.function("_%_", "int, int", "int", "modulo_int64", _modulo)
    lib.function("_%_", "uint, uint", "uint", "modulo_uint64", _uint_op(_modulo))
    lib.function("_+_", "string, string", "string", "add_string", operator.add, charge=_sizes)
    lib.function("_+_", "bytes, bytes", "bytes", "add_bytes", operator.add, charge=_sizes)
    lib.function("_+_", "list(T), list(T)", "list(T)", "add_list", _concatenate, charge=_sizes)
    lib.function("-_", "int", "int", "negate_int64", lambda value: check_int(-value))
    lib.function("-_", "double", "double", "negate_double", operator.neg)


def _relation(test: Callable[[int], bool]) -> Callable[[object, object], bool]:
    def holds(left: object, right: object) -> bool:
        order = compare(left, right)
        return order is not None and test(order)

    return holds


_ORDERED: Final = (
    ("bool", "bool"), ("int", "int64"), ("uint", "uint64"), ("double", "double"), ("string", "string"),
    ("bytes", "bytes"), ("timestamp", "timestamp"), ("duration", "duration"),
)  # fmt: skip
_CROSSED: Final = (
    ("int", "uint"),
    ("int", "double"),
    ("uint", "int"),
    ("uint", "double"),
    ("double", "int"),
    ("double", "uint"),
)
_WIDTHS: Final = {"int": "int64", "uint": "uint64", "double": "double"}


def _relations() -> None:
    lib = STANDARD
    lib.function("_==_", "T, T", "bool", "equals", equal)
    lib.function("_!=_", "T, T", "bool", "not_equals", lambda left, right: not equal(left, right))
    for name, word, test in (
        ("_<_", "less", lambda order: order < 0),
        ("_<=_", "less_equals", lambda order: order <= 0),
        ("_>_", "greater", lambda order: order > 0),
        ("_>=_", "greater_equals", lambda order: order >= 0),
    ):
        holds = _relation(test)
        for type_, suffix in _ORDERED:
            lib.function(name, f"{type_}, {type_}", "bool", f"{word}_{suffix}", holds)
        for left, right in _CROSSED:
            lib.function(name, f"{left}, {right}", "bool", f"{word}_{_WIDTHS[left]}_{_WIDTHS[right]}", holds)


def in_list(wanted: object, values: list[object]) -> bool:
    return contains(values, wanted)


def in_map(key: object, entries: dict[object, object]) -> bool:
    return lookup_key(key) in entries


def compiled_specially(*args: object) -> object:
    """Stands for the implementation of a function that forms.py compiles; a call is an error."""
    return no_overload("lazy", *args)


def _special_forms() -> None:
    lib = STANDARD
    lib.function("_&&_", "bool, bool", "bool", "logical_and", compiled_specially)
    lib.function("_||_", "bool, bool", "bool", "logical_or", compiled_specially)
    lib.function("!_", "bool", "bool", "logical_not", operator.not_)
    lib.function("@not_strictly_false", "bool", "bool", "not_strictly_false", compiled_specially)
    lib.function("_?_:_", "bool, T, T", "T", "conditional", compiled_specially)
    lib.function("_[_]", "list(T), int", "T", "index_list", compiled_specially)
    lib.function("_[_]", "map(K, V), K", "V", "index_map", compiled_specially)
    lib.function("@in", "T, list(T)", "bool", "in_list", in_list, charge=lambda _, values: len(values))
    lib.function("@in", "K, map(K, V)", "bool", "in_map", in_map)


def _strings_and_sizes() -> None:
    lib = STANDARD
    for type_ in ("string", "bytes", "list", "map"):
        spelled = {"list": "list(T)", "map": "map(K, V)"}.get(type_, type_)
        lib.function("size", spelled, "int", f"size_{type_}", len)
        lib.member("size", spelled, "int", f"{type_}_size", len)
    lib.member("contains", "string, string", "bool", "contains_string", operator.contains)
    lib.member("startsWith", "string, string", "bool", "starts_with_string", str.startswith)
    lib.member("endsWith", "string, string", "bool", "ends_with_string", str.endswith)
    lib.function("matches", "string, string", "bool", "matches", matches, charge=matching_cost)
    lib.member("matches", "string, string", "bool", "matches_string", matches, charge=matching_cost)


_arithmetic()
_relations()
_special_forms()
_strings_and_sizes()
