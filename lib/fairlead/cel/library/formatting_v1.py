"""`"%s is %.2f".format([…])` as Kubernetes has it: version 1 of cel-go's clauses.

Exists beside formatting.py (version 4, the specification's) because the two print and accept different things: here `%d` takes no
double and `%f` and `%e` nothing else, numbers have an American's separators, and lists and maps are printed as CEL literals.
Source: cel-go ext/formatting.go; golang.org/x/text for `en_US`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from fairlead.cel.errors import EvaluationError
from fairlead.cel.library.clock import format_duration, format_timestamp
from fairlead.cel.library.conversions import string_of_float
from fairlead.cel.library.formatting import binary, clauses, hexadecimal, octal, quote
from fairlead.cel.values import Duration, Timestamp, TypeValue, UInt, items_of, type_name

_PRECISION: Final = 6
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_WORDS: Final = frozenset({"NaN", "Infinity", "-Infinity"})


def format_v1(text: str, args: Sequence[object]) -> str:
    """Raises EvaluationError."""
    out: list[str] = []
    used = 0
    for clause in clauses(text):
        if not clause.verb:
            out.append(clause.text)
            continue
        if used >= len(args):
            raise EvaluationError(f"index {used} out of range")
        try:
            out.append(_VERBS[clause.verb](args[used], clause.precision))
        except EvaluationError as error:
            raise EvaluationError(f"error during formatting: {error.message}") from None
        used += 1
    return "".join(out)


def _string(value: object, _: int | None = None) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return string_of_float(value)
    if isinstance(value, bytes):
        return _text_of(value)
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}:{item}" for key, item in sorted(map(_pair, items_of(value)))) + "}"
    raise EvaluationError(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
        f"and timestamps, was given {type_name(value)}"
    )


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def _literal(value: object) -> str:
    """A member of a list or map, as one would write it."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bytes):
        return "b" + quote(_text_of(value))
    if isinstance(value, float):
        return f"{value:.{_PRECISION}f}" if math.isfinite(value) else quote(string_of_float(value))
    if isinstance(value, Timestamp):
        return f'timestamp("{format_timestamp(value)}")'
    if isinstance(value, Duration):
        return f'duration("{format_duration(value)}")'
    if value is None or isinstance(value, (bool, int, list, tuple, dict, TypeValue)):
        return _string(value)
    raise EvaluationError(f"no formatting function for {type_name(value)}")


def _pair(entry: tuple[object, object]) -> tuple[str, str]:
    return _literal(entry[0]), _literal(entry[1])


def _decimal(value: object, _: int | None) -> str:
    if type(value) in {int, UInt}:
        return str(int(value))  # type: ignore[call-overload]
    raise EvaluationError(f"decimal clause can only be used on integers, was given {type_name(value)}")


def _double(value: object, clause: str) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, str) and value in _WORDS:
        return float(value.replace("Infinity", "inf"))
    raise EvaluationError(f"{clause} clause can only be used on doubles, was given {type_name(value)}")


def _non_finite(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return None


def _fixed(value: object, precision: int | None) -> str:
    number = _double(value, "fixed-point")
    return _non_finite(number) or f"{number:,.{_PRECISION if precision is None else precision}f}"


def _scientific(value: object, _: int | None) -> str:
    """The precision is taken for a width there, so it has no effect."""
    number = _double(value, "scientific")
    shown = _non_finite(number)
    if shown is not None:
        return shown
    mantissa, _e, exponent = f"{number:.{_PRECISION}e}".partition("e")
    digits = f"{'-' if exponent[0] == '-' else ''}{exponent[1:]}"
    return f"{mantissa}\u202f×\u202f10{digits.translate(_SUPERSCRIPT)}"


_VERBS: Final[dict[str, Callable[[object, int | None], str]]] = {
    "s": _string, "d": _decimal, "f": _fixed, "e": _scientific, "b": binary, "o": octal, "x": hexadecimal(False), "X": hexadecimal(True),
}  # fmt: skip
