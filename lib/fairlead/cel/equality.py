"""CEL's equality and order of values.

Numbers are equal across their types (`1 == 1.0`), a bool never equals a number, and a quantity compared with a string is
an error, not false. Within lists and maps two values that cannot be compared count as equal, as in cel-go.
NaN equals nothing and has no order.

Source: cel-spec langdef "Equality"; cel-go common/types; k8s.io/apiserver/pkg/cel (quantity.go, semver.go).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any, Final

from fairlead.cel.errors import EvaluationError
from fairlead.cel.values import (
    TYPE_NAMES,
    Cidr,
    Duration,
    Format,
    Optional,
    Timestamp,
    TypeValue,
    UInt,
    Url,
    no_overload,
    type_name,
)
from fairlead.kube.quantity import Quantity
from fairlead.kube.semver import Version

_SAME_IN_PYTHON: Final = frozenset({str, bool, int, UInt, float, bytes, TypeValue, Timestamp, Duration})
_NUMBERS: Final = frozenset({int, UInt, float})
_STRICT: Final = frozenset(
    {Quantity, Version, ipaddress.IPv4Address, ipaddress.IPv6Address, Cidr, Url, Format},
)


def equal(left: object, right: object) -> bool:
    """CEL's `==`. Raises EvaluationError where Kubernetes' own types refuse to be compared."""
    kind, other = type(left), type(right)
    if kind is other and kind in _SAME_IN_PYTHON:
        return left == right
    if left is None or right is None:
        return left is right
    if kind in _NUMBERS:
        return other in _NUMBERS and compare_numbers(left, right) == 0
    if isinstance(left, (list, tuple, dict)):
        return _equal_containers(left, right, {})
    if kind is Optional:
        return _equal_optionals(left, right)
    if kind in _STRICT:
        if TYPE_NAMES.get(kind) != TYPE_NAMES.get(other):
            raise EvaluationError(f"no such overload: {type_name(left)} == {type_name(right)}")
        return left == right
    return kind is other and left == right


def equal_or_unlike(left: object, right: object) -> bool:
    """Whether two values are equal; those that cannot be compared are not: for `in`, sets and the like."""
    try:
        return equal(left, right)
    except EvaluationError:
        return False


# Compared pairs, by id: a list `[a, a]` whose a is `[b, b]`, and so on, is small but has 2**n leaves.
_Seen = dict[tuple[int, int], bool]


def _equal_containers(left: object, right: object, seen: _Seen) -> bool:
    pair = (id(left), id(right))
    known = seen.get(pair)
    if known is None:
        known = seen[pair] = (
            _equal_lists(left, right, seen) if isinstance(left, (list, tuple)) else _equal_maps(left, right, seen)
        )
    return known


def _equal_lists(left: Any, right: Any, seen: _Seen) -> bool:
    if not isinstance(right, (list, tuple)) or len(left) != len(right):
        return False
    return all(_members_equal(a, b, seen) for a, b in zip(left, right, strict=True))


def _equal_maps(left: Any, right: Any, seen: _Seen) -> bool:
    if not isinstance(right, dict) or len(left) != len(right):
        return False
    return all(key in right and _members_equal(value, right[key], seen) for key, value in left.items())


def _members_equal(left: object, right: object, seen: _Seen) -> bool:
    """Equality of two members of lists or maps: as in cel-go, those that cannot be compared count as equal."""
    if isinstance(left, (list, tuple, dict)):
        return right is not None and _equal_containers(left, right, seen)
    try:
        return equal(left, right)
    except EvaluationError:
        return True


def _equal_optionals(left: object, right: object) -> bool:
    if type(left) is not Optional or type(right) is not Optional:
        return False
    if left.present != right.present:
        return False
    return not left.present or equal(left.content, right.content)


def contains(values: Iterable[object], wanted: object) -> bool:
    """`wanted in list`."""
    return any(equal_or_unlike(wanted, value) for value in values)


# Order


def compare_numbers(left: object, right: object) -> int | None:
    """-1, 0, 1; None when one is NaN. An integer beside a double is compared as a double, as cel-go does."""
    if type(left) is float or type(right) is float:
        a, b = float(left), float(right)  # type: ignore[arg-type]
        if a != a or b != b:  # noqa: PLR0124 - NaN
            return None
        return (a > b) - (a < b)
    return _sign(left, right)


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


_ORDERED: Final = frozenset({str, bytes, bool, Timestamp, Duration})


def compare(left: object, right: object) -> int | None:
    """-1, 0, 1; None when unordered. Raises EvaluationError for types without an order between them."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return compare_numbers(left, right)
    if kind is other and kind in _ORDERED:
        return _sign(left, right)
    return no_overload("_<_", left, right)
