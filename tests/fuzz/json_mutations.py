"""Changes of JSON documents: any value becomes null, of another type, huge, deep, doubled or another's; keys go, come and repeat.

What `msgspec` would not write (numbers beyond any type, lone surrogates, a key twice) is written as raw text into the place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from tests.fuzz.mutations import NUMBERS, byte_mutations
from tests.fuzz.target import Mutate

Json = dict[str, Any]
PLACES_MAX = 4_000
"""Of a document that is changed once more: what is repeated again and again would fill the memory."""
Place = tuple[Any, Any]
"""A list or an object, and the index or key of one of its values."""

_RAW = tuple(
    msgspec.Raw(text)
    for text in (
        *(number for number in NUMBERS if number.lstrip(b"-")[:1].isdigit() and number.lower().strip(b"-0123456789.e") == b""),
        b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b'{"a":1,"a":null}', b"[" * 40 + b"]" * 40, b"[" * 200 + b"]" * 200,
        b'{"a":' * 200 + b"1" + b"}" * 200, b"[" * 3000 + b"]" * 3000, b'{"a":' * 1500 + b"null" + b"}" * 1500,
        b'{"\\ud800":1}', b"1.0", b"-0.0", b"0.5", b"1e2",
    )
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, None, None, None, True, False, 0, 1, -1, 2, 3, 8, 1.5, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 1e308, -1e-308,
    "", " ", "x", "0", "1", "-1", "08", "1.5", "true", "null", "\x00", "é", "\u0130", "\u00b2", "\u0663", "\uff11", "\U0001f600",
    "\u2028", "\ufeff", "a b", "a/b", "../..", "/", "A", "a" * 64, "a" * 254, "x" * 3000, "9" * 30, "9" * 5000, "1e9", "1e400", "NaN",
    "Infinity", "1_000", "0x10", "1Gi", "500m", "1h30m", "2026-11-21T01:50:31Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00", "2026-02-30T00:00:00Z", "20261121", "%s", "{}", "{0.__class__}", "\\", '"', "\n",
    # Raw, so that no document shares a list with another.
    *(msgspec.Raw(text) for text in (b"[]", b"{}", b"[null]", b"[[]]", b"[{}]", b'[""]', b"[0]", b'{"":null}', b'{"a":{}}', b'{"\\u0000":[]}')),
    *(msgspec.Raw(b"[" + b",".join([text] * 40) + b"]") for text in (b'"x"', b"null", b"{}")),
)  # fmt: skip


def json_mutations(words: Sequence[str] = (), *, most: int = 4, bytes_too: bool = True) -> Mutate:
    """Up to `most` changes of values at once, now and then one of the bytes, too. `words`: values and keys that mean something."""
    of_bytes = byte_mutations(most=1)
    values: tuple[Any, ...] = (*_VALUES, *words, *words)
    texts = (*words, *(value for value in _VALUES if isinstance(value, str)))

    def mutate(random: Random, known: bytes, other: bytes) -> bytes:
        try:
            document = [msgspec.json.decode(known)]
        except (ValueError, RecursionError):
            return of_bytes(random, known, other)
        for _ in range(1 + random.randrange(most)):
            _change(random, document, other, values, texts)
        try:
            made = msgspec.json.encode(document[0])
        except (RecursionError, OverflowError, UnicodeEncodeError):  # of numbers and texts that only bytes can hold
            return of_bytes(random, known, other)
        return of_bytes(random, made, other) if bytes_too and random.randrange(16) == 0 else made

    return mutate


def _change(random: Random, document: list[Any], other: bytes, values: Sequence[Any], texts: Sequence[str]) -> None:
    places = _places(document)
    if len(places) > PLACES_MAX:
        return
    within, key = places[random.randrange(len(places))]
    value = within[key]
    match random.randrange(14):
        case 0 | 1:
            within[key] = None
        case 2 | 3 | 4:
            within[key] = random.choice(values)
        case 5:
            within[key] = random.choice(_RAW)
        case 6 if isinstance(within, dict):
            del within[key]
        case 6 if within is not document:
            del within[key]
        case 7 if isinstance(within, dict):
            within[random.choice(texts)] = within.pop(key)
        case 8 if isinstance(value, dict):
            value[random.choice(texts)] = random.choice(values)
        case 8 | 9 if isinstance(value, list):
            value *= random.choice((2, 3, 9, 40)) if len(value) < 4 else random.choice((1, 2))
            value.append(random.choice(values))
        case 10:
            theirs, at = random.choice(places)
            within[key] = theirs[at] if not _holds(theirs[at], within) else None
        case 11:
            with contextlib.suppress(ValueError, RecursionError):
                found = _places([msgspec.json.decode(other)])
                theirs, at = random.choice(found)
                within[key] = theirs[at]
        case 12:
            within[key] = random.choice(([value], {"a": value}, [value, value], str(value)[:4000]))
        case _ if isinstance(value, str):
            within[key] = _text(random, value, texts)
        case _ if isinstance(value, int | float):
            within[key] = random.choice((-value, str(value), float(value) if abs(value) < 2**1000 else 0, 0, [value]))
        case _:
            within[key] = random.choice(values)


def _text(random: Random, value: str, texts: Sequence[str]) -> str:
    at = random.randrange(len(value) + 1)
    match random.randrange(6):
        case 0:
            return value[:at]
        case 1:
            return value[:at] + random.choice(texts) + value[at:]
        case 2:
            return value * random.choice((2, 3, 20)) if len(value) < 500 else value[:at]
        case 3:
            return value.swapcase()
        case 4:
            return (
                value[:at]
                + chr(random.choice((0, 9, 32, 47, 58, 178, 304, 0x663, 0x2028, 0xFEFF, 0x1F600)))
                + value[at:]
            )
        case _:
            return value[:at] + value[at + 1 :]


def _places(document: list[Any]) -> list[Place]:
    """Every value of it. Not recursive: documents may be deep."""
    found: list[Place] = []
    left: list[Any] = [document]
    while left:
        within = left.pop()
        for key, value in within.items() if isinstance(within, dict) else enumerate(within):
            found.append((within, key))
            if isinstance(value, list | dict):
                left.append(value)
    return found


def _holds(value: Any, part: Any) -> bool:
    """Whether `part` is in `value`: it cannot be made a part of itself."""
    return value is part or (
        isinstance(value, list | dict)
        and any(within is part or within[key] is part for within, key in _places([value]))
    )
