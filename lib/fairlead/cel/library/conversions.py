"""Conversions: `int(x)`, `string(x)`, `timestamp(x)`…, `type(x)` and `dyn(x)`. Each prints and parses as Go does.

Source: cel-go common/types, ConvertToType of each; Go strconv and time.
"""

from __future__ import annotations

import math
import re
from typing import Final

from fairlead.cel.declare import Library
from fairlead.cel.errors import EvaluationError
from fairlead.cel.library import clock
from fairlead.cel.library.standard import check_int, check_uint
from fairlead.cel.values import Duration, Timestamp, TypeValue, UInt, type_name

CONVERSIONS: Final = Library("conversions")

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity)|nan", re.ASCII | re.IGNORECASE
)
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_DIGITS_MAX: Final = 400
_TWO_TO_63: Final = float(2**63)


def _int_of_float(value: float) -> int:
    if math.isnan(value) or value <= -_TWO_TO_63 or value >= _TWO_TO_63:
        raise EvaluationError("integer overflow")
    return int(value)


def _uint_of_float(value: float) -> UInt:
    if math.isnan(value) or value < 0 or value >= 2 * _TWO_TO_63:
        raise EvaluationError("unsigned integer overflow")
    return UInt(int(value))


def _int_of_string(text: str) -> int:
    if not _INTEGER.fullmatch(text) or len(text) > _DIGITS_MAX:
        raise EvaluationError("type conversion error from 'string' to 'int'")
    return check_int(int(text))


def _uint_of_string(text: str) -> UInt:
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise EvaluationError("type conversion error from 'string' to 'uint'")
    return check_uint(int(text))


def _float_of_string(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise EvaluationError("type conversion error from 'string' to 'double'")
    value = float(text)
    if math.isinf(value) and "n" not in text.lower():
        raise EvaluationError("type conversion error from 'string' to 'double': value out of range")
    return value


def _bool_of_string(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise EvaluationError("type conversion error from 'string' to 'bool'")


def string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def string_of_float(value: float) -> str:
    """Go's %g: exponent form from 1e+06 on and below 1e-04."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent_text = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(exponent_text or 0) + len(whole) - 1
    if whole.strip("0") == "":
        exponent -= len(fraction) - len(fraction.lstrip("0")) + len(whole)
    digits = digits.rstrip("0") or "0"
    if exponent < -4 or exponent >= 6:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    if len(digits) <= exponent + 1:
        return sign + digits.ljust(exponent + 1, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _bytes_of_string(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EvaluationError("string holds a lone surrogate") from None


def _identity(value: object) -> object:
    return value


def _string_of_bool(value: bool) -> str:
    return "true" if value else "false"


def _declare() -> None:
    lib = CONVERSIONS
    lib.function("int", "int", "int", "int64_to_int64", _identity)
    lib.function("int", "uint", "int", "uint64_to_int64", lambda value: check_int(int(value)))
    lib.function("int", "double", "int", "double_to_int64", _int_of_float)
    lib.function("int", "string", "int", "string_to_int64", _int_of_string)
    lib.function("int", "timestamp", "int", "timestamp_to_int64", lambda value: value.ns // 10**9)
    lib.function("int", "duration", "int", "duration_to_int64", lambda value: value.ns)
    lib.function("uint", "uint", "uint", "uint64_to_uint64", _identity)
    lib.function("uint", "int", "uint", "int64_to_uint64", check_uint)
    lib.function("uint", "double", "uint", "double_to_uint64", _uint_of_float)
    lib.function("uint", "string", "uint", "string_to_uint64", _uint_of_string)
    lib.function("double", "double", "double", "double_to_double", _identity)
    lib.function("double", "int", "double", "int64_to_double", float)
    lib.function("double", "uint", "double", "uint64_to_double", float)
    lib.function("double", "string", "double", "string_to_double", _float_of_string)
    lib.function("bool", "bool", "bool", "bool_to_bool", _identity)
    lib.function("bool", "string", "bool", "string_to_bool", _bool_of_string)
    lib.function("string", "string", "string", "string_to_string", _identity)
    lib.function("string", "bool", "string", "bool_to_string", _string_of_bool)
    lib.function("string", "bytes", "string", "bytes_to_string", string_of_bytes)
    lib.function("string", "double", "string", "double_to_string", string_of_float)
    lib.function("string", "duration", "string", "duration_to_string", clock.format_duration)
    lib.function("string", "int", "string", "int64_to_string", str)
    lib.function("string", "timestamp", "string", "timestamp_to_string", clock.format_timestamp)
    lib.function("string", "uint", "string", "uint64_to_string", lambda value: str(int(value)))
    lib.function("bytes", "bytes", "bytes", "bytes_to_bytes", _identity)
    lib.function("bytes", "string", "bytes", "string_to_bytes", _bytes_of_string)
    lib.function("timestamp", "timestamp", "timestamp", "timestamp_to_timestamp", _identity)
    lib.function("timestamp", "string", "timestamp", "string_to_timestamp", clock.parse_timestamp)
    lib.function(
        "timestamp", "int", "timestamp", "int64_to_timestamp", lambda value: clock.in_range(Timestamp(value * 10**9))
    )
    lib.function("duration", "duration", "duration", "duration_to_duration", _identity)
    lib.function("duration", "string", "duration", "string_to_duration", clock.parse_duration)
    lib.function("duration", "int", "duration", "int64_to_duration", Duration)
    lib.function("dyn", "T", "dyn", "to_dyn", _identity)
    lib.function("type", "T", "type(T)", "type", lambda value: TypeValue(type_name(value)))


_declare()
