"""String functions: cel-go's strings extension, version 2. Indices count code points; case maps ASCII only.

Source: cel-go ext/strings.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlead.cel.declare import Library
from fairlead.cel.errors import EvaluationError
from fairlead.cel.library.formatting import format_string, quote
from fairlead.cel.values import no_overload, weight

STRINGS: Final = Library("strings")
FORMAT: Final = Library("strings.format")  # apart, for its clauses differ from the specification's

# unicode.IsSpace, which is not str.isspace
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if part == "":
        return offset
    if not 0 <= offset < max(len(text), 1) and offset != len(text):
        raise _out_of_range(offset)
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if part == "":
        return len(text) if offset is None else offset
    if offset is None:
        return text.rfind(part)
    if not 0 <= offset < len(text):
        raise _out_of_range(offset)
    return text.rfind(part, 0, offset + len(part))


def lower_ascii(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_LOWER)


def upper_ascii(text: str) -> str:
    return text.upper() if text.isascii() else text.translate(_UPPER)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count if count >= 0 else -1)


def _replaced_size(text: str, old: str, new: str, count: int = -1) -> int:
    found = (text.count(old) if count < 0 else min(count, text.count(old))) if new else 0
    return len(text) + found * len(new)


def _split(text: str, separator: str, count: int = -1) -> list[object]:
    if count == 0:
        return []
    if separator == "":
        if 0 < count < len(text):
            return [*text[: count - 1], text[count - 1 :]]
        return list(text)
    return list(text.split(separator, count - 1 if count > 0 else -1))


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        end = len(text)
    elif start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    if not 0 <= end <= len(text):
        raise _out_of_range(end)
    return text[start:end]


def _join(parts: Sequence[object], separator: str = "") -> str:
    for part in parts:
        if type(part) is not str:
            no_overload("join", parts)
    return separator.join(parts)  # type: ignore[arg-type]


def _joined_size(parts: Sequence[object], separator: str = "") -> int:
    return sum(len(part) for part in parts if type(part) is str) + len(separator) * len(parts)


def formatted_size(text: str, args: Sequence[object]) -> int:
    return len(text) + weight(args, 2_000_000)


def _text_size(text: str, *_: object) -> int:
    return len(text)


STRINGS.member("charAt", "string, int", "string", "string_char_at_int", _char_at)
STRINGS.member("indexOf", "string, string", "int", "string_index_of_string", _index_of)
STRINGS.member("indexOf", "string, string, int", "int", "string_index_of_string_int", _index_of)
STRINGS.member("lastIndexOf", "string, string", "int", "string_last_index_of_string", _last_index_of)
STRINGS.member("lastIndexOf", "string, string, int", "int", "string_last_index_of_string_int", _last_index_of)
STRINGS.member("lowerAscii", "string", "string", "string_lower_ascii", lower_ascii)
STRINGS.member("upperAscii", "string", "string", "string_upper_ascii", upper_ascii)
STRINGS.member("trim", "string", "string", "string_trim", lambda text: text.strip(_SPACE))
STRINGS.member(
    "replace", "string, string, string", "string", "string_replace_string_string", _replace, charge=_replaced_size
)
STRINGS.member(
    "replace",
    "string, string, string, int",
    "string",
    "string_replace_string_string_int",
    _replace,
    charge=_replaced_size,
)
STRINGS.member("split", "string, string", "list(string)", "string_split_string", _split, charge=_text_size)
STRINGS.member("split", "string, string, int", "list(string)", "string_split_string_int", _split, charge=_text_size)
STRINGS.member("substring", "string, int", "string", "string_substring_int", _substring)
STRINGS.member("substring", "string, int, int", "string", "string_substring_int_int", _substring)
STRINGS.member("join", "list(string)", "string", "list_join", _join, charge=_joined_size)
STRINGS.member("join", "list(string), string", "string", "list_join_string", _join, charge=_joined_size)
STRINGS.function("strings.quote", "string", "string", "strings_quote", quote, charge=_text_size)
FORMAT.member("format", "string, list(dyn)", "string", "string_format", format_string, charge=formatted_size)
