"""Quantities, semantic versions and `includes`: Kubernetes' additions for device selectors.

Declarations; the semantics are in fairlead.kube.quantity and .semver.
Source: k8s.io/apiserver/pkg/cel/library/quantity.go, semverlib.go; dynamic-resource-allocation/cel (includes, alpha).
"""

from __future__ import annotations

from typing import Final

from fairlead.cel.declare import Library
from fairlead.cel.equality import contains, equal_or_unlike
from fairlead.cel.errors import EvaluationError
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.quantity import parse as parse_quantity
from fairlead.kube.semver import Version, VersionError
from fairlead.kube.semver import normalize as normalize_version
from fairlead.kube.semver import parse as parse_version

QUANTITIES: Final = Library("kubernetes.quantity")
VERSIONS: Final = Library("kubernetes.semver")
INCLUDES: Final = Library("kubernetes.includes")

_INCLUDES_MAX: Final = 48


def quantity(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except QuantityError as error:
        raise EvaluationError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _as_integer(value: Quantity) -> int:
    exact = value.exact_int
    if exact is None:
        raise EvaluationError(
            f"cannot convert value to integer: {value} is fractional, too large, or written with a fraction"
        )
    return exact


def _sum(left: Quantity, right: Quantity | int, sign: int = 1) -> Quantity:
    other = right if isinstance(right, Quantity) else Quantity(right, 0, "DecimalExponent")
    try:
        return left + other if sign > 0 else left - other
    except QuantityError as error:
        raise EvaluationError(str(error)) from None


def _difference(left: Quantity, right: Quantity | int) -> Quantity:
    return _sum(left, right, -1)


def _compare(left: Quantity, right: Quantity) -> int:
    try:
        return left.compare(right)
    except QuantityError as error:
        raise EvaluationError(str(error)) from None


def _declare_quantities() -> None:
    lib = QUANTITIES
    lib.function("quantity", "string", "quantity", "string_to_quantity", quantity)
    lib.function("isQuantity", "string", "bool", "is_quantity_string", _is_quantity)
    # A function, not a method, as in Kubernetes.
    lib.function("sign", "quantity", "int", "quantity_sign", lambda value: value.sign)
    lib.member(
        "isGreaterThan", "quantity, quantity", "bool", "quantity_is_greater_than", lambda a, b: _compare(a, b) > 0
    )
    lib.member("isLessThan", "quantity, quantity", "bool", "quantity_is_less_than", lambda a, b: _compare(a, b) < 0)
    lib.member("compareTo", "quantity, quantity", "int", "quantity_compare_to", _compare)
    lib.member("asApproximateFloat", "quantity", "double", "quantity_get_float", float)
    lib.member("asInteger", "quantity", "int", "quantity_get_int", _as_integer)
    lib.member("isInteger", "quantity", "bool", "quantity_is_integer", lambda value: value.exact_int is not None)
    lib.member("add", "quantity, quantity", "quantity", "quantity_add", _sum)
    lib.member("add", "quantity, int", "quantity", "quantity_add_int", _sum)
    lib.member("sub", "quantity, quantity", "quantity", "quantity_sub", _difference)
    lib.member("sub", "quantity, int", "quantity", "quantity_sub_int", _difference)


def semver(text: str, normalize: bool = False) -> Version:
    try:
        return normalize_version(text) if normalize else parse_version(text)
    except VersionError as error:
        raise EvaluationError(str(error)) from None


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        semver(text, normalize)
    except EvaluationError:
        return False
    return True


def _declare_versions() -> None:
    lib = VERSIONS
    lib.function("semver", "string", "semver", "string_to_semver", semver)
    lib.function("semver", "string, bool", "semver", "string_bool_to_semver", semver)
    lib.function("isSemver", "string", "bool", "is_semver_string", _is_semver)
    lib.function("isSemver", "string, bool", "bool", "is_semver_string_bool", _is_semver)
    lib.member("isGreaterThan", "semver, semver", "bool", "semver_is_greater_than", lambda a, b: a.compare(b) > 0)
    lib.member("isLessThan", "semver, semver", "bool", "semver_is_less_than", lambda a, b: a.compare(b) < 0)
    lib.member("compareTo", "semver, semver", "int", "semver_compare_to", Version.compare)
    lib.member("major", "semver", "int", "semver_major", lambda value: _signed(value.major))
    lib.member("minor", "semver", "int", "semver_minor", lambda value: _signed(value.minor))
    lib.member("patch", "semver", "int", "semver_patch", lambda value: _signed(value.patch))


def _signed(value: int) -> int:
    """Go converts uint64 to int64, wrapping."""
    return value if value < 2**63 else value - 2**64


def _includes(value: object, wanted: object) -> bool:
    if isinstance(value, (list, tuple)):
        if len(value) > _INCLUDES_MAX:
            raise EvaluationError(f"includes: the list has {len(value)} elements, more than {_INCLUDES_MAX}")
        return contains(value, wanted)
    return equal_or_unlike(value, wanted)


_declare_quantities()
_declare_versions()
INCLUDES.member("includes", "dyn, dyn", "bool", "includes_dyn_dyn", _includes)
