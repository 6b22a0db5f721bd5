"""The base of a decision's facts: values of the engine that recordings hold as they are (`fairlead.history.facts`), as JSON.

Names are written in camelCase, and what equals its default is left out. Amounts are whole numbers, or fractions as texts ("1/7").
So a field is part of a format: one that is added has a default, and none is renamed or removed (`tests/history/test_schema.py`).
What is derived from facts is not a field of them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec

from fairlead.bounded.limits import fraction, shown
from fairlead.engine.types.amounts import Amount


class Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Immutable, without cycles."""


def encode(value: object) -> bytes:
    """JSON of facts, or of what has facts in it."""
    return msgspec.json.encode(value, enc_hook=_written)


def plain(value: object) -> object:
    """The same as dicts, lists, texts and numbers."""
    return msgspec.to_builtins(value, enc_hook=_written)


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Of a kind that has facts in it. Its errors name the field."""
    return msgspec.json.Decoder(kind, dec_hook=_read)


def _written(value: object) -> str:
    if isinstance(value, Fraction):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is no part of facts")


def _read(_: type, found: object) -> Amount:
    """Raises ValueError."""
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    try:
        exact = fraction(str(found))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f'{shown(str(found))} is no amount: write a whole number, or a text such as "1/7"') from None
    return exact.numerator if exact.denominator == 1 else exact
