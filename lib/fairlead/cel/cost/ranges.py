"""Ranges of costs and sizes, and what passes between the walk over the tree (cost.py) and the charges per function.

A range goes from the least to the most; both saturate at the largest uint64, as in Go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from fairlead.cel.syntax import ast
from fairlead.cel.types import Type

UINT64_MAX: Final = 2**64 - 1
Path = tuple[str, ...]
"""A variable, then field names, `@keys`, `@values`, `@items` or `@indices`: where a value comes from."""


class Range(NamedTuple):
    """A range of costs from `min` to `max`, both saturating at the largest uint64."""

    min: int
    max: int

    def plus(self, other: Range) -> Range:
        return Range(_saturate(self.min + other.min), _saturate(self.max + other.max))

    def times(self, other: Range) -> Range:
        return Range(_saturate(self.min * other.min), _saturate(self.max * other.max))

    def scaled(self, factor: float) -> Range:
        """The range times a factor, in floating point and rounded up, as Go computes it."""
        return Range(_scale(self.min, factor), _scale(self.max, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.min, other.min), max(self.max, other.max))


def _saturate(value: int) -> int:
    return min(value, UINT64_MAX)


def _scale(value: int, factor: float) -> int:
    product = math.ceil(float(value) * factor)
    return UINT64_MAX if product >= 2**64 else product


def fixed(value: int) -> Range:
    return Range(value, value)


ZERO: Final = fixed(0)
ONE: Final = fixed(1)
UNKNOWN: Final = Range(0, UINT64_MAX)
LIST_COST: Final = fixed(10)
MAP_COST: Final = fixed(30)
STRUCT_COST: Final = fixed(40)


@dataclass(frozen=True, slots=True)
class Members:
    """The sizes of a container's members."""

    kind: str  # list or map
    key: Range
    value: Range


class Operand(NamedTuple):
    """An argument, or the target of a call; None for a size or members that are not known."""

    node: ast.Node
    path: Path
    type: Type
    known_size: Range | None
    members: Members | None

    @property
    def size(self) -> Range:
        return self.known_size if self.known_size is not None else UNKNOWN


class Charge(NamedTuple):
    """What a call costs, and what its result may hold; None for what is not known."""

    cost: Range
    size: Range | None = None
    members: Members | None = None


Sizes = Callable[[Path], Range | None]
"""What a variable, or a part of one, may hold at most: characters of a string, members of a list or map."""
