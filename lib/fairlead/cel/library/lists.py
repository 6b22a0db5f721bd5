"""List and set functions: cel-go's lists (version 3) and sets extensions, and Kubernetes' own list functions.

Source: cel-go ext/lists.go, ext/sets.go;
k8s.io/apiserver/pkg/cel/library/lists.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import pairwise
from typing import Final

from fairlead.cel.declare import Library
from fairlead.cel.equality import compare, contains, equal_or_unlike
from fairlead.cel.errors import BudgetError, EvaluationError
from fairlead.cel.library.standard import check_int, check_uint
from fairlead.cel.values import Duration, UInt, no_overload

LISTS: Final = Library("lists")
SETS: Final = Library("sets")
KUBERNETES_LISTS: Final = Library("kubernetes.lists")

_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_RANGE_MAX: Final = 10_000_000
_FLAT_MAX: Final = 1_000_000
Values = Sequence[object]


def _order(left: object, right: object) -> int:
    if type(left) is not type(right):
        raise EvaluationError("list elements must have the same type")
    return compare(left, right) or 0


def _sort(values: Values) -> list[object]:
    return _sort_by_keys(values, values)


def _sort_by_keys(values: Values, keys: Values) -> list[object]:
    if len(values) != len(keys):
        raise EvaluationError("@sortByAssociatedKeys() expected as many keys as elements")
    if keys:
        compare(keys[0], keys[0])
    by_key: Callable[[int, int], int] = lambda a, b: _order(keys[a], keys[b])  # noqa: E731
    order = sorted(range(len(values)), key=cmp_to_key(by_key))
    return [values[index] for index in order]


def _slice(values: Values, start: int, end: int) -> list[object]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(values) < end:
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return list(values[start:end])


def _flatten(values: Values, depth: int = 1) -> list[object]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[object] = list(values)
    while depth > 0 and any(isinstance(value, (list, tuple)) for value in flat):
        flat = [inner for value in flat for inner in (value if isinstance(value, (list, tuple)) else (value,))]
        if len(flat) > _FLAT_MAX:
            raise BudgetError
        depth -= 1
    return flat


def _distinct(values: Values) -> list[object]:
    unique: list[object] = []
    for value in values:
        if not any(equal_or_unlike(value, other) for other in unique):
            unique.append(value)
    return unique


def _range(count: int) -> list[object]:
    if not 0 <= count <= _RANGE_MAX:
        raise EvaluationError(f"lists.range: size must be within 0 and {_RANGE_MAX}, got {count}")
    return list(range(count))


def _length(values: Values, *_: object) -> int:
    return len(values)


def _squared(values: Values, *_: object) -> int:
    return 2 * len(values) ** 2


def _declare_lists() -> None:
    lib = LISTS
    lib.member("slice", "list(T), int, int", "list(T)", "list_slice", _slice, charge=_length)
    lib.member("flatten", "list(list(T))", "list(T)", "list_flatten", _flatten, charge=_length)
    lib.member("flatten", "list(dyn), int", "list(dyn)", "list_flatten_int", _flatten, charge=_length)
    for type_ in _COMPARABLE:
        lib.member("sort", f"list({type_})", f"list({type_})", f"list_{type_}_sort", _sort, charge=_squared)
        lib.member(
            "@sortByAssociatedKeys", f"list(T), list({type_})", "list(T)", f"list_{type_}_sortByAssociatedKeys",
            _sort_by_keys, charge=_squared,
        )  # fmt: skip
    lib.function("lists.range", "int", "list(int)", "lists_range", _range, charge=lambda count: max(count, 0))
    lib.member("reverse", "list(T)", "list(T)", "list_reverse", lambda values: list(values)[::-1], charge=_length)
    lib.member("distinct", "list(T)", "list(T)", "list_distinct", _distinct, charge=_squared)


# Sets


def _set_contains(values: Values, wanted: Values) -> bool:
    return all(contains(values, value) for value in wanted)


def _set_equivalent(left: Values, right: Values) -> bool:
    return _set_contains(left, right) and _set_contains(right, left)


def _set_intersects(left: Values, right: Values) -> bool:
    return any(contains(right, value) for value in left)


def _product(left: Values, right: Values) -> int:
    return len(left) * len(right)


def _declare_sets() -> None:
    SETS.function(
        "sets.contains", "list(T), list(T)", "bool", "list_sets_contains_list", _set_contains, charge=_product
    )
    SETS.function(
        "sets.equivalent", "list(T), list(T)", "bool", "list_sets_equivalent_list", _set_equivalent, charge=_product
    )
    SETS.function(
        "sets.intersects", "list(T), list(T)", "bool", "list_sets_intersects_list", _set_intersects, charge=_product
    )


# Kubernetes' own


def _is_sorted(values: Values) -> bool:
    for left, right in pairwise(values):
        order = compare(left, right)
        if order is not None and order > 0:
            return False
    return True


def _sum(start: object) -> Callable[[Values], object]:
    def total(values: Values) -> object:
        result = start
        for value in values:
            if type(value) is float and type(result) in {float, int}:
                result = float(result) + value if type(result) is float or result == 0 else no_overload("sum", values)
            elif type(value) is int and type(result) is int:
                result = check_int(result + value)
            elif type(value) is UInt and (type(result) is UInt or result == 0):
                result = check_uint(int(result) + int(value))
            elif type(value) is Duration and (type(result) is Duration or result == 0):
                result = Duration(check_int((result.ns if isinstance(result, Duration) else 0) + value.ns))
            else:
                no_overload("sum", values)
        return result

    return total


def _extreme(name: str, sign: int) -> Callable[[Values], object]:
    def pick(values: Values) -> object:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            order = compare(value, best)
            if order is not None and order * sign > 0:
                best = value
        return best

    return pick


def _index_of(values: Values, wanted: object) -> int:
    return next((index for index, value in enumerate(values) if equal_or_unlike(value, wanted)), -1)


def _last_index_of(values: Values, wanted: object) -> int:
    return next((index for index in range(len(values) - 1, -1, -1) if equal_or_unlike(values[index], wanted)), -1)


def _declare_kubernetes() -> None:
    lib = KUBERNETES_LISTS
    zeros = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": Duration(0)}
    for type_, zero in zeros.items():
        lib.member("sum", f"list({type_})", type_, f"list_{type_}_sum_{type_}", _sum(zero), charge=_length)
    for type_ in _COMPARABLE:
        lib.member("isSorted", f"list({type_})", "bool", f"list_{type_}_is_sorted_bool", _is_sorted, charge=_length)
        lib.member("min", f"list({type_})", type_, f"list_{type_}_min_{type_}", _extreme("min", -1), charge=_length)
        lib.member("max", f"list({type_})", type_, f"list_{type_}_max_{type_}", _extreme("max", 1), charge=_length)
    lib.member("indexOf", "list(T), T", "int", "list_a_index_of_int", _index_of, charge=_length)
    lib.member("lastIndexOf", "list(T), T", "int", "list_a_last_index_of_int", _last_index_of, charge=_length)


# The two-variable macros that make maps expand to this function; loops.py evaluates them without calling it.
TWO_VARIABLES: Final = Library("comprehensions")
TWO_VARIABLES.function(
    "cel.@mapInsert",
    "map(K, V), K, V",
    "map(K, V)",
    "@mapInsert_map_key_value",
    lambda *args: no_overload("cel.@mapInsert", *args),
)
TWO_VARIABLES.function(
    "cel.@mapInsert",
    "map(K, V), map(K, V)",
    "map(K, V)",
    "@mapInsert_map_map",
    lambda *args: no_overload("cel.@mapInsert", *args),
)

_declare_lists()
_declare_sets()
_declare_kubernetes()
