"""Kubernetes quantities (`80Gi`, `500m`, `1e3`): exact values, with the apiserver's canonical text.

Whether a quantity "is an integer" depends in Go on how it was *written*: `1536Mi` is one, the equal `1.5Gi` is not. So a
quantity has, besides its value, the format of its suffix and whether Go keeps it as an int64. Immutable; equality and hash are
those of the value.

Source: k8s.io/apimachinery/pkg/api/resource (quantity.go, suffix.go, amount.go).
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering
from typing import Final, Literal

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

_SYNTAX: Final = re.compile(r"[+-]?([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_ALL_ZEROS: Final = re.compile(r"[+-]?0*", re.ASCII)
_EXPONENT: Final = re.compile(r"[eE]([-+]?[0-9]+)", re.ASCII)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = {exponent // 10: suffix for suffix, exponent in _BINARY.items()}

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_NANO: Final = -9
_DIGITS_OF_INT64: Final = 18
# Aligning two scales writes their difference out in digits; a parsed exponent can set it, so it is bounded.
_SCALE_SPAN_MAX: Final = 2_000
_TEXT_MAX: Final = 1_000
"""Characters of a quantity. With _SCALE_SPAN_MAX it keeps every number below the 4,300 digits that Python converts to text."""
_REMEMBERED_MAX: Final = 64
"""Characters of a text whose quantity is cached."""


class QuantityError(ValueError):
    """The text is no quantity, or an operation would need more digits than _SCALE_SPAN_MAX."""


def _fits_int64(value: int) -> bool:
    return _INT64_MIN <= value <= _INT64_MAX


def _quotient_away_from_zero(value: int, divisor: int) -> int:
    return -(-value // divisor) if value >= 0 else value // divisor


@total_ordering
class Quantity:
    """`digits * 10**scale`, the format it was written in, and whether Go keeps it in its int64 form.

    `Quantity.parse("1Gi")`, `Quantity.of(3)`; `int(q)` rounds away from zero as Go's `Value()`; `str(q)` is canonical.
    """

    __slots__ = ("_key", "_small", "_written", "digits", "format", "scale")

    def __init__(
        self,
        digits: int,
        scale: int = 0,
        format: Format = "DecimalSI",  # noqa: A002
        *,
        small: bool = True,
        written: str | None = None,
    ) -> None:
        """`small`: kept as an int64 (Go's int64Amount), not as an arbitrary-precision decimal; `written`: how to print it."""
        self.digits = digits
        self.scale = scale
        self.format: Format = format
        self._small = small and _fits_int64(digits)
        self._key: tuple[int, int] | None = None
        self._written = written

    @classmethod
    def of(cls, value: Quantity | str | int) -> Quantity:
        """The quantity in what an API field may hold: a quantity, its text (spaces around it are ignored), or an integer."""
        if isinstance(value, Quantity):
            return value
        if isinstance(value, int):
            return cls(value)
        return parse(value.strip())

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Raises QuantityError."""
        return parse(text)

    # Value

    def _normal(self) -> tuple[int, int]:
        """(digits, scale) without trailing zeros: the identity of the value."""
        key = self._key
        if key is None:
            digits, scale = self.digits, self.scale
            if digits == 0:
                key = (0, 0)
            else:
                while digits % 10 == 0:
                    digits //= 10
                    scale += 1
                key = (digits, scale)
            self._key = key
        return key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self._normal() == other._normal()

    def __hash__(self) -> int:
        return hash(self._normal())

    def __lt__(self, other: Quantity) -> bool:
        return self.compare(other) < 0

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1."""
        if self.scale == other.scale:
            return (self.digits > other.digits) - (self.digits < other.digits)
        left_sign, right_sign = self.sign, other.sign
        if left_sign != right_sign or left_sign == 0:
            return (left_sign > right_sign) - (left_sign < right_sign)
        # Magnitudes decide most cases before any digits are written out.
        left_low, left_high = _exponent_bounds(self)
        right_low, right_high = _exponent_bounds(other)
        if left_low > right_high:
            return left_sign
        if left_high < right_low:
            return -left_sign
        left, right, _ = _aligned(self, other)
        return (left > right) - (left < right)

    @property
    def sign(self) -> int:
        return (self.digits > 0) - (self.digits < 0)

    @property
    def exact_int(self) -> int | None:
        """Go's AsInt64: the integer if Go keeps it as one, else None (`1.0` and `1.5Gi` are none)."""
        if not self._small:
            return None
        if self.scale == 0:
            return self.digits
        if self.scale < 0:
            return None
        if self.digits == 0:
            return 0
        if self.scale > _DIGITS_OF_INT64:
            return None
        value: int = self.digits * 10**self.scale
        return value if _fits_int64(value) else None

    def scaled(self, scale: int) -> int:
        """The value in units of 10**scale, rounded away from zero: `scaled(-3)` is Go's MilliValue."""
        delta = self.scale - scale
        if abs(delta) > _SCALE_SPAN_MAX:
            if self.digits == 0:
                return 0
            if delta < 0:
                return self.sign
            raise QuantityError(f"quantity {self.digits}e{self.scale} has too many digits")
        if delta >= 0:
            return int(self.digits * 10**delta)
        return _quotient_away_from_zero(self.digits, 10**-delta)

    def __int__(self) -> int:
        return self.scaled(0)

    def __float__(self) -> float:
        """Go's AsApproximateFloat64: a product of two floats, not the nearest one."""
        if self.scale == 0:
            return float(self.digits)
        try:
            base = float(self.digits)
            if self.scale > 308:
                return base * float("inf") if base else 0.0
            return base * float(f"1e{self.scale}")
        except OverflowError:
            return float("inf") if self.digits > 0 else float("-inf")

    def __bool__(self) -> bool:
        return self.digits != 0

    # Arithmetic; a zero takes the other's format, as in Go

    def __add__(self, other: Quantity) -> Quantity:
        return self._sum(other, other.digits)

    def __sub__(self, other: Quantity) -> Quantity:
        return self._sum(other, -other.digits)

    def _sum(self, other: Quantity, other_digits: int) -> Quantity:
        format_ = other.format if self.digits == 0 else self.format
        small = self._small and other._small
        if small and other_digits == 0:
            return Quantity(self.digits, self.scale, format_)
        if small and self.digits == 0:
            return Quantity(other_digits, other.scale, format_, small=_fits_int64(other_digits))
        left, right, scale = _aligned(self, Quantity(other_digits, other.scale, small=False))
        fits = _fits_int64(left) and _fits_int64(right) and _fits_int64(left + right)
        return Quantity(left + right, scale, format_, small=small and fits)

    # Text

    def __str__(self) -> str:
        if self.digits == 0:
            return "0"
        if self._written is not None:
            return self._written
        format_ = self.format
        if format_ == "BinarySI":
            if -1024 < self._clamped_int() < 1024 or not self._is_whole():
                format_ = "DecimalSI"
            else:
                amount, exponent = int(self), 0
                while amount % 1024 == 0:
                    amount //= 1024
                    exponent += 1
                return f"{amount}{_BINARY_SUFFIX.get(exponent, '')}"
        digits, exponent = self._normal()
        while exponent % 3:
            digits *= 10
            exponent -= 1
        if format_ == "DecimalExponent":
            return f"{digits}e{exponent}" if exponent else str(digits)
        return f"{digits}{_DECIMAL_SUFFIX.get(exponent, '')}"

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def _is_whole(self) -> bool:
        return self._normal()[1] >= 0

    def _clamped_int(self) -> int:
        """The value as an integer, where it is small enough to tell it from 1024."""
        return self.scaled(0) if self.scale < 30 else self.sign * 1024


def _exponent_bounds(quantity: Quantity) -> tuple[int, int]:
    """(low, high) with 10**low <= |value| < 10**high, for a value that is not zero."""
    bits = quantity.digits.bit_length()
    return (bits - 1) * 3 // 10 + quantity.scale, bits * 31 // 100 + 1 + quantity.scale


def _aligned(left: Quantity, right: Quantity) -> tuple[int, int, int]:
    """Both values in the smaller of their scales, and that scale."""
    scale = min(left.scale, right.scale)
    if max(left.scale, right.scale) - scale > _SCALE_SPAN_MAX:
        raise QuantityError(f"quantities of scales {left.scale} and {right.scale} are too far apart to be joined")
    return left.digits * 10 ** (left.scale - scale), right.digits * 10 ** (right.scale - scale), scale


def parse(text: str) -> Quantity:
    """The quantity that the text means. Raises QuantityError."""
    return _remembered(text) if len(text) <= _REMEMBERED_MAX else _parse(text)


def amount(text: str) -> float:
    """0 for what is no quantity."""
    try:
        return float(Quantity.parse(text))
    except QuantityError:
        return 0.0


def _parse(text: str) -> Quantity:
    match = _SYNTAX.fullmatch(text) if len(text) <= _TEXT_MAX else None
    if not text or match is None:
        raise QuantityError(
            f"quantity {text[:64]!r}: must be a number with an optional suffix such as m, k, M, G, Ki, Mi, Gi or e3"
        )
    if _ALL_ZEROS.fullmatch(text):
        return Quantity(0)
    negative = text[0] == "-"
    whole = match[1].lstrip("0") or "0"
    fraction = match[2] or ""
    suffix = match[3]
    binary = suffix in _BINARY
    if binary:
        exponent, format_ = _BINARY[suffix], "BinarySI"
    elif suffix in _DECIMAL:
        exponent, format_ = _DECIMAL[suffix], "DecimalSI"
    elif (written := _EXPONENT.fullmatch(suffix)) and _fits_int64(int(written[1])):
        exponent, format_ = _int32(int(written[1])), "DecimalExponent"
    else:
        raise QuantityError(
            f"quantity {text!r}: unknown suffix {suffix!r}; use one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e<number>"
        )
    digits = int(whole + fraction)
    if binary:
        spare = 15 - len(whole) - int(exponent * 3 / 10) - 1 if not fraction else -1
        scale, factor = 0, 1 << exponent
    else:
        spare = _DIGITS_OF_INT64 - len(whole) - len(fraction)
        scale, factor = exponent, 1
    if spare >= 0 and scale - len(fraction) >= _NANO and _fits_int64(digits * factor):
        small = digits * factor
        scale -= len(fraction)
        kept = text if _looks_canonical(whole + fraction, scale, exponent, binary=binary) else None
        return Quantity(-small if negative else small, scale, format_, written=kept)  # type: ignore[arg-type]
    return _parse_big(text, digits, len(fraction), exponent, negative=negative, binary=binary, format_=format_)


_remembered = lru_cache(maxsize=4096)(_parse)


def _looks_canonical(digits: str, scale: int, exponent: int, *, binary: bool) -> bool:
    """Whether Go keeps the text as canonical; it also keeps `1E3`, `1.500` and `+5`, which are not."""
    if binary:
        return exponent % 10 == 0 and int(digits) & 7 != 0
    return scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"


def _parse_big(
    text: str, digits: int, fraction: int, exponent: int, *, negative: bool, binary: bool, format_: str
) -> Quantity:
    """The quantity in Go's arbitrary-precision form: rounded up to nano, binary ones capped at the largest int64."""
    if not any(character.isdigit() for character in text.split("e", maxsplit=1)[0].split("E", maxsplit=1)[0]):
        raise QuantityError(f"quantity {text!r}: has no digits")
    if binary:
        digits <<= exponent
        scale = -fraction
    else:
        scale = exponent - fraction
    if digits:
        if scale > _SCALE_SPAN_MAX:
            raise QuantityError(f"quantity {text!r}: exponent {exponent} is too large")
        if scale < _NANO:
            shift = min(_NANO - scale, _SCALE_SPAN_MAX)
            digits = max(_quotient_away_from_zero(digits, 10**shift), 1)
        else:
            digits *= 10 ** (scale - _NANO)
        scale = _NANO
    if binary:
        one: int = 10**-scale if scale < 0 else 1
        if digits > _INT64_MAX * one:
            digits, scale = _INT64_MAX, 0
        elif 0 < digits < one:
            format_ = "DecimalSI"
    return Quantity(-digits if negative else digits, scale, format_, small=False)  # type: ignore[arg-type]


def _int32(value: int) -> int:
    """Go converts the exponent to int32, wrapping."""
    return (value + 2**31) % 2**32 - 2**31
