"""JSON values: copies and equality as JSON has them."""

from __future__ import annotations

from typing import TypeVar

import msgspec

_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def clone(value: _T) -> _T:
    """A deep copy, by way of JSON text (several times faster than copy.deepcopy)."""
    copied: _T = _decode(_encode(value))
    return copied


def same(left: object, right: object) -> bool:
    """JSON equality: true is not 1, but 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right
