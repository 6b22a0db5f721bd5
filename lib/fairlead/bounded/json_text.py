"""JSON of others: values are counted by their separators before anything is built, and depth, keys and numbers are looked at.

`value` is for manifests, whose shape is anybody's. `decode` is for large documents with a schema (snapshots, records, certificates): there it is how
dense values lie that is bounded, for a schema ignores most of what it does not know.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

from fairlead.bounded.limits import (
    MANIFESTS,
    NUMBER_CHARS_MAX,
    BoundError,
    Limits,
    UnreadableError,
    check_key,
    check_number,
    shown,
)

T = TypeVar("T")


class NotJsonError(UnreadableError):
    """It may be YAML."""


TEXTS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""Matches from every quote on, one that is never closed included: else each quote behind it would be tried up to the end."""
_NUMBERS = re.compile(rb"[0-9][0-9.eE+-]{%d}" % NUMBER_CHARS_MAX)
DENSE_VALUES = 1_000_000
DENSE_BYTES = 8
"""A document may have so many values, or one in so many bytes: what we write has half of that, and `[],[],[]` three times as much."""


def value(text: str | bytes, limits: Limits = MANIFESTS) -> Any:
    """Raises NotJsonError for what is none; UnreadableError for what has a key twice; BoundError beyond a limit."""
    limits.check_bytes(len(text))
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    limits.check_bytes(len(data))
    limits.check_values(_count(data, limits.values))
    try:
        found = json.loads(
            data, object_pairs_hook=_once, parse_constant=_no_number, parse_int=_integer, parse_float=_float
        )
    except UnreadableError:
        raise
    except RecursionError:
        raise BoundError(f"is nested more than {limits.depth} levels deep") from None
    except ValueError as error:
        raise NotJsonError(f"not JSON: {error}") from None
    _check_tree(found, limits)
    return found


def decode(data: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Raises msgspec.DecodeError for what is no such JSON; BoundError where it is too dense or too deep."""
    check_density(bytes(data))
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"no UTF-8 text: {error.reason}") from None
    except RecursionError:
        raise BoundError("is nested too deeply: no such document has more than some levels") from None


def check_density(data: bytes) -> None:
    """Raises BoundError where so many values lie in so few bytes that they would take many times the memory of the text."""
    most = max(DENSE_VALUES, len(data) // DENSE_BYTES)
    if _count(data, most) > most:
        raise BoundError(
            f"holds more than {most} values in {len(data)} bytes, one in {DENSE_BYTES} bytes is read: this was made to be slow"
        )


def _count(data: bytes, most: int) -> int:
    """The number of values, give or take two. Texts may hold separators, too, so they are taken out where that decides."""
    found = _separators(data)
    if found <= most:
        return found
    return sum(_separators(data[start:end]) for start, end in _between_texts(data, most))


def _between_texts(data: bytes, most: int) -> Any:
    at = 0
    for match in TEXTS.finditer(data):
        yield at, match.start()
        at = match.end()
    yield at, len(data)


def _separators(data: bytes) -> int:
    return 1 + sum(map(data.count, (b",", b"[", b"{")))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, each in pairs:
        if key in found:
            raise UnreadableError(f"the key {shown(key)} stands twice in one mapping: remove one")
        check_key(key)
        found[key] = each
    return found


def _no_number(text: str) -> Any:
    raise UnreadableError(f"{text} is no number of JSON")


def _integer(text: str) -> int:
    check_number(text)
    return int(text)


def _float(text: str) -> float:
    check_number(text)
    return float(text)


def _check_tree(found: Any, limits: Limits) -> None:
    rest: list[tuple[Any, int]] = [(found, 1)]
    while rest:
        current, depth = rest.pop()
        limits.check_depth(depth)
        if isinstance(current, dict | list):
            inner = current.values() if isinstance(current, dict) else current
            rest.extend((each, depth + 1) for each in inner)
