"""`"%s is %.2f".format([…])` and `strings.quote`.

Exists apart from the other string functions because each clause prints each type in its own way, and the type checker
asks the same questions of literals (`clauses`). These are the specification's clauses; Kubernetes has older ones,
formatting_v1.py. Source: cel-go ext/formatting_v2.go, ext/strings.go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from fairlead.cel.errors import EvaluationError
from fairlead.cel.values import Duration, Timestamp, TypeValue, UInt, items_of, type_name

_PRECISION_MAX: Final = 100
_PRECISION_DEFAULT: Final = 6
_CLAUSE: Final = re.compile(r"%(?:\.([0-9]*))?(.?)", re.DOTALL)
_QUOTED: Final = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}


@dataclass(frozen=True, slots=True)
class Clause:
    """Either literal text or a verb with its precision."""

    text: str
    verb: str = ""
    precision: int | None = None


def clauses(text: str) -> Iterator[Clause]:
    """The parts of a format string. Raises EvaluationError."""
    pos = 0
    for match in _CLAUSE.finditer(text):
        if match.start() < pos:
            continue
        if match.start() > pos:
            yield Clause(text[pos : match.start()])
        pos = match.end()
        precision, verb = match[1], match[2]
        if verb == "%" and precision is None:
            yield Clause("%")
            continue
        if verb == "":
            raise EvaluationError("unexpected end of format string")
        if verb not in "sdfeboxX":
            raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
        if precision == "":
            raise EvaluationError("could not parse formatting clause: error while parsing precision: missing digits")
        if precision is not None and (len(precision) > 3 or int(precision) > _PRECISION_MAX):
            raise EvaluationError(
                f"could not parse formatting clause: precision {precision[:8]} is above {_PRECISION_MAX}"
            )
        yield Clause("", verb, None if precision is None else int(precision))
    if pos < len(text):
        yield Clause(text[pos:])


def format_string(text: str, args: Sequence[object]) -> str:
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
    from fairlead.cel.library.clock import format_duration, format_timestamp
    from fairlead.cel.library.conversions import string_of_float

    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return {"+Inf": "Infinity", "-Inf": "-Infinity"}.get(string_of_float(value), _plain(value))
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_string, value)) + "]"
    if isinstance(value, dict):
        pairs = sorted((_string(key), _string(item)) for key, item in items_of(value))
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    raise EvaluationError(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
        f"and timestamps, was given {type_name(value)}"
    )


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


def _decimal(value: object, _: int | None) -> str:
    if type(value) in {int, UInt}:
        return str(int(value))  # type: ignore[call-overload]
    if isinstance(value, float):
        return _non_finite(value) or _plain(value)
    raise EvaluationError(f"decimal clause can only be used on ints, uints, and doubles, was given {type_name(value)}")


def _float_of(value: object, clause: str) -> float | str:
    if type(value) in {int, UInt, float}:
        return float(value)  # type: ignore[arg-type]
    if value in {"NaN", "Infinity", "-Infinity"}:
        return str(value)
    raise EvaluationError(f"{clause} clause can only be used on ints, uints, and doubles, was given {type_name(value)}")


def _fixed(value: object, precision: int | None) -> str:
    number = _float_of(value, "fixed-point")
    if isinstance(number, str):
        return number
    return _non_finite(number) or f"{number:.{_PRECISION_DEFAULT if precision is None else precision}f}"


def _scientific(value: object, precision: int | None) -> str:
    number = _float_of(value, "scientific")
    if isinstance(number, str):
        return number
    return _non_finite(number) or f"{number:.{_PRECISION_DEFAULT if precision is None else precision}e}"


def _based(value: int, letter: str) -> str:
    return f"{'-' if value < 0 else ''}{abs(value):{letter}}"


def binary(value: object, _: int | None) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return _based(value, "b")
    raise EvaluationError(f"only ints, uints, and bools can be formatted as binary, was given {type_name(value)}")


def octal(value: object, _: int | None) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return _based(value, "o")
    raise EvaluationError(f"octal clause can only be used on ints and uints, was given {type_name(value)}")


def hexadecimal(upper: bool) -> Callable[[object, int | None], str]:
    def form(value: object, _: int | None) -> str:
        if isinstance(value, int) and not isinstance(value, bool):
            text = _based(value, "x")
        elif isinstance(value, str):
            text = value.encode(errors="surrogatepass").hex()
        elif isinstance(value, bytes):
            text = value.hex()
        else:
            raise EvaluationError(
                f"only ints, uints, bytes, and strings can be formatted as hex, was given {type_name(value)}"
            )
        return text.upper() if upper else text

    return form


_VERBS: Final[dict[str, Callable[[object, int | None], str]]] = {
    "s": _string, "d": _decimal, "f": _fixed, "e": _scientific, "b": binary, "o": octal, "x": hexadecimal(False), "X": hexadecimal(True),
}  # fmt: skip


def quote(text: str) -> str:
    """The text as a CEL literal."""
    return '"' + "".join(_QUOTED.get(character, character) for character in text) + '"'
