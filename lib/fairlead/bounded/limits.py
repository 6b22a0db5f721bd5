"""How much of a text is read, and what is said of more."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final


class UnreadableError(ValueError):
    """What was read is not in the format that it should have. The message does not name the file: its reader does."""


class BoundError(UnreadableError):
    """It goes beyond a limit; the message names the limit."""


NUMBER_CHARS_MAX: Final = 64
"""Of a number. Conversion of sexagesimal and decimal ones takes the square of their length."""
FRACTION_CHARS_MAX: Final = 1_000
KEY_CHARS_MAX: Final = 1_024
KEY_INT_CHARS_MAX: Final = 20
"""Longer integers can be chosen so that all have one hash, which makes a mapping of n of them take n² steps."""
MERGES_MAX: Final = 64
"""Merge keys (<<) of one mapping, each of which moves all entries behind it."""
SHOWN_MAX: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds on one text. `values`: scalars, mappings and lists, each alias counted with all that it stands for; so are `bytes_expanded`."""

    bytes: int = 16 * 2**20
    bytes_expanded: int = 64 * 2**20
    values: int = 200_000
    depth: int = 64

    def check_bytes(self, count: int) -> None:
        if count > self.bytes:
            raise BoundError(f"is longer than {self.bytes} bytes: split it")

    def check_expanded(self, count: int) -> None:
        if count > self.bytes_expanded:
            raise BoundError(f"is longer than {self.bytes_expanded} bytes, its aliases written out: write less")

    def check_values(self, count: int) -> None:
        if count > self.values:
            raise BoundError(f"holds more than {self.values} values, its aliases written out: split it")

    def check_depth(self, depth: int) -> None:
        if depth > self.depth:
            raise BoundError(f"is nested more than {self.depth} levels deep")


MANIFESTS: Final = Limits()
SMALL: Final = Limits(bytes=2**20, bytes_expanded=4 * 2**20, values=20_000)
"""A file of settings: a kubeconfig, a profile, layouts; and what a form holds."""


def check_key(text: str, *, number: bool = False, where: str = "") -> None:
    if len(text) > KEY_CHARS_MAX:
        raise BoundError(f"{where}a key has {len(text)} characters, at most {KEY_CHARS_MAX} are read")
    if number and len(text) > KEY_INT_CHARS_MAX:
        raise BoundError(f"{where}a key is a number of {len(text)} characters, at most {KEY_INT_CHARS_MAX} are read")


def check_number(text: str, where: str = "") -> None:
    if len(text) > NUMBER_CHARS_MAX:
        raise BoundError(f"{where}a number has {len(text)} characters, at most {NUMBER_CHARS_MAX} are read")


def fraction(text: str) -> Fraction:
    """The number in "3", "1.5" or "1/7". An exponent of some digits would be a number of millions. Raises ValueError, ZeroDivisionError."""
    if len(text) > FRACTION_CHARS_MAX:
        raise BoundError(f"a number has {len(text)} characters, at most {FRACTION_CHARS_MAX} are read")
    if "e" in text.lower():
        raise UnreadableError(f"{shown(text)} is no amount: exponents are not read")
    return Fraction(text)


def shown(text: str) -> str:
    """The text for a message: in one line, and not longer than a line."""
    found = repr(text[: SHOWN_MAX + 1])
    return found if len(found) <= SHOWN_MAX else f"{found[: SHOWN_MAX - 1]}…"
