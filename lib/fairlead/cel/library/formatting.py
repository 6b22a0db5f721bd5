"""`"%s is %.2f".format([…])` as Kubernetes has it (version 1 of cel-go's clauses), and `strings.quote`.

`VERBS` is the one table of what each clause prints: evaluation uses it, and so does the check of literals (validators.py).
Version 1 differs from the specification: `%d` takes no double, `%f` and `%e` take nothing else, numbers have the separators
of en_US, and lists and maps are printed as CEL literals.
Example: `"%d of %s: %.1f".format([7, ["a", 1.5], 1234.56])` is `7 of ["a", 1.500000]: 1,234.6`.

Source: cel-go ext/formatting.go, ext/strings.go; golang.org/x/text for en_US.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairlead.cel.errors import EvaluationError
from fairlead.cel.library.clock import format_duration, format_timestamp
from fairlead.cel.library.conversions import string_of_bytes, string_of_float
from fairlead.cel.values import Duration, Timestamp, TypeValue, UInt, items_of, type_name

_PRECISION_MAX: Final = 100
PRECISION_DEFAULT: Final = 6
_CLAUSE: Final = re.compile(r"%(?:\.([0-9]*))?(.?)", re.DOTALL)
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_NON_FINITE_TEXTS: Final = frozenset({"NaN", "Infinity", "-Infinity"})
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


def quote(text: str) -> str:
    """The text as a CEL literal."""
    return '"' + "".join(_QUOTED.get(character, character) for character in text) + '"'


# The format string


@dataclass(frozen=True, slots=True)
class Clause:
    """Either literal text or a verb with its precision."""

    text: str
    verb: str = ""
    precision: int | None = None


@dataclass(frozen=True, slots=True)
class Verb:
    """What a clause prints."""

    show: Callable[[object, int | None], str | None]
    """The text of a value with a precision; None for a type that the clause does not take."""
    kinds: frozenset[str]
    """The static types that it takes."""
    complaint: str
    """What to say of a value of another type."""


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


def fill(text: str, args: Sequence[object], verbs: Mapping[str, Verb]) -> str:
    """The format string with its clauses replaced by the arguments. Raises EvaluationError."""
    out: list[str] = []
    used = 0
    for clause in clauses(text):
        if not clause.verb:
            out.append(clause.text)
            continue
        if used >= len(args):
            raise EvaluationError(f"index {used} out of range")
        verb, value = verbs[clause.verb], args[used]
        try:
            shown = verb.show(value, clause.precision)
        except EvaluationError as error:
            raise EvaluationError(f"error during formatting: {error.message}") from None
        if shown is None:
            raise EvaluationError(f"error during formatting: {verb.complaint}, was given {type_name(value)}")
        out.append(shown)
        used += 1
    return "".join(out)


# Kubernetes' clauses


def plain_text(value: object) -> str | None:
    """What every version of `%s` prints alike: all but doubles, bytes, lists and maps."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    return value.name if isinstance(value, TypeValue) else None


def _string(value: object, _: int | None = None) -> str | None:
    if isinstance(value, float):
        return string_of_float(value)
    if isinstance(value, bytes):
        return string_of_bytes(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, dict):
        pairs = sorted((_literal(key), _literal(item)) for key, item in items_of(value))
        return "{" + ", ".join(f"{key}:{item}" for key, item in pairs) + "}"
    return plain_text(value)


def _literal(value: object) -> str:
    """A member of a list or map, as one would write it."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bytes):
        return "b" + quote(string_of_bytes(value))
    if isinstance(value, float):
        return f"{value:.{PRECISION_DEFAULT}f}" if math.isfinite(value) else quote(string_of_float(value))
    if isinstance(value, Timestamp):
        return f'timestamp("{format_timestamp(value)}")'
    if isinstance(value, Duration):
        return f'duration("{format_duration(value)}")'
    text = _string(value)
    if text is None:
        raise EvaluationError(f"no formatting function for {type_name(value)}")
    return text


def _decimal(value: object, _: int | None) -> str | None:
    return str(int(value)) if type(value) in {int, UInt} else None  # type: ignore[call-overload]


def _double(value: object) -> float | None:
    if isinstance(value, str) and value in _NON_FINITE_TEXTS:
        return float(value.replace("Infinity", "inf"))
    return value if isinstance(value, float) else None


def _non_finite(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return None


def _fixed(value: object, precision: int | None) -> str | None:
    number = _double(value)
    if number is None:
        return None
    return _non_finite(number) or f"{number:,.{PRECISION_DEFAULT if precision is None else precision}f}"


def _scientific(value: object, _: int | None) -> str | None:
    """cel-go takes the precision for a width here, so it has no effect."""
    number = _double(value)
    if number is None:
        return None
    shown = _non_finite(number)
    if shown is not None:
        return shown
    mantissa, _e, exponent = f"{number:.{PRECISION_DEFAULT}e}".partition("e")
    digits = f"{'-' if exponent[0] == '-' else ''}{exponent[1:]}"
    return f"{mantissa}\u202f×\u202f10{digits.translate(_SUPERSCRIPT)}"


def _based(value: int, letter: str) -> str:
    return f"{'-' if value < 0 else ''}{abs(value):{letter}}"


def _binary(value: object, _: int | None) -> str | None:
    return _based(value, "b") if isinstance(value, int) else None


def _octal(value: object, _: int | None) -> str | None:
    return _based(value, "o") if isinstance(value, int) and not isinstance(value, bool) else None


def _hexadecimal(value: object, _: int | None) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return _based(value, "x")
    if isinstance(value, str):
        return value.encode(errors="surrogatepass").hex()
    return value.hex() if isinstance(value, bytes) else None


def _upper_hexadecimal(value: object, _: int | None) -> str | None:
    text = _hexadecimal(value, None)
    return None if text is None else text.upper()


_HEX_KINDS: Final = frozenset({"int", "uint", "string", "bytes", "dyn"})
_HEX_COMPLAINT: Final = "only ints, uints, bytes, and strings can be formatted as hex"
_DOUBLE_KINDS: Final = frozenset({"double", "string", "dyn"})
_STRING_KINDS: Final = frozenset([
    "string", "bool", "bytes", "int", "uint", "double", "map", "list", "type", "duration", "timestamp", "null",
    "dyn"
])  # fmt: skip
STRING_COMPLAINT: Final = "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
VERBS: Final[Mapping[str, Verb]] = {
    "s": Verb(_string, _STRING_KINDS, STRING_COMPLAINT),
    "d": Verb(_decimal, frozenset({"int", "uint", "dyn"}), "decimal clause can only be used on integers"),
    "f": Verb(_fixed, _DOUBLE_KINDS, "fixed-point clause can only be used on doubles"),
    "e": Verb(_scientific, _DOUBLE_KINDS, "scientific clause can only be used on doubles"),
    "b": Verb(
        _binary,
        frozenset({"int", "uint", "bool", "dyn"}),
        "only ints, uints, and bools can be formatted as binary",
    ),
    "o": Verb(_octal, frozenset({"int", "uint", "dyn"}), "octal clause can only be used on ints and uints"),
    "x": Verb(_hexadecimal, _HEX_KINDS, _HEX_COMPLAINT),
    "X": Verb(_upper_hexadecimal, _HEX_KINDS, _HEX_COMPLAINT),
}


def format_string(text: str, args: Sequence[object]) -> str:
    """`text.format(args)`. Raises EvaluationError."""
    return fill(text, args, VERBS)
