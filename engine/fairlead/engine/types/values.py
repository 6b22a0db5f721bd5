"""What all facts of a decision consist of: exact amounts, full names of devices and pods, and the base that recordings write as JSON.

A `Fact` is written as it is (`fairlead.history.facts`): names in camelCase, what equals its default left out, amounts as whole numbers or
as texts ("1/7"). So a field is part of a format: one that is added has a default, and none is renamed or removed
(`tests/history/test_schema.py`). What is derived from facts is not a field of them.
Amounts are exact (int, or Fraction below one). Of a shared device a request takes what the device's policy rounds it up to, or all of it
where there is no policy; an exclusive device only has to be big enough. Example: a policy with step 1Gi makes 2Gi of 1500Mi.
Source: resource/v1 CapacityRequirements and CapacityRequestPolicy; structured allocator's consumable capacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from numbers import Rational
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.bounded.limits import fraction, shown
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.resource import CapacityRequestPolicy, DeviceCapacity


class Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Immutable, without cycles."""


def encode(value: object) -> bytes:
    """JSON of facts, or of what has facts in it."""
    return msgspec.json.encode(value, enc_hook=_written)


def plain(value: object) -> object:
    """The same as dicts, lists, texts and numbers."""
    return msgspec.to_builtins(value, enc_hook=_written)


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """A decoder of a kind that has facts in it; its errors name the field."""
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


EXPONENT_MAX = 60
"""Kubernetes stores `1e999999999`; written out, its digits would take an hour and fill the memory."""
_REMEMBERED_MAX = 64  # characters of a quantity whose value is cached
# An exact amount in a flavor's measure: devices, bytes, shares of a GPU.
if TYPE_CHECKING:
    Amount = int | Fraction
else:
    Amount = Rational  # msgspec takes one type of ours for a field, see `Fact`


def amount(value: str | int) -> Amount:
    """The exact value of a quantity. Raises QuantityError."""
    return _amount(value) if isinstance(value, str) and len(value) > _REMEMBERED_MAX else _remembered(value)


def _amount(value: str | int) -> Amount:
    quantity = Quantity.of(value)
    if quantity.scale > EXPONENT_MAX:
        raise QuantityError(f"quantity {str(value)[:64]!r} is too large; at most 1e{EXPONENT_MAX} is understood")
    if quantity.scale >= 0:
        return int(quantity.digits * 10**quantity.scale)
    exact = Fraction(quantity.digits, 10**-quantity.scale)
    return int(exact) if exact.denominator == 1 else exact


_remembered = lru_cache(maxsize=8192)(_amount)


@lru_cache(maxsize=8192)
def text(value: Amount) -> str:
    """The canonical quantity of an amount: binary suffixes where they divide evenly, as capacities are written."""
    if isinstance(value, Fraction):
        nano = value * 10**9
        return str(Quantity(-(-nano.numerator // nano.denominator), -9))
    if value % 1024 == 0:
        return str(Quantity(value, 0, "BinarySI"))
    return str(Quantity(value))


BYTES_FROM = 2**20
"""So much is counted of nothing but bytes."""
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def amount_text(value: Amount) -> str:
    """For messages: at most four digits of a part; bytes with a binary suffix."""
    if abs(float(value)) < BYTES_FROM:
        return str(value) if isinstance(value, int) else f"{float(value):.4g}"
    power = min((int(abs(float(value))).bit_length() - 1) // 10, len(_BINARY))
    return f"{float(value / Fraction(1024**power)):.4g}{_BINARY[power - 1]}"


def qualified(name: str, driver: str) -> str:
    """A capacity's or attribute's full name: one without a domain is in its driver's."""
    return name if "/" in name else f"{driver}/{name}"


def rounded(requested: Amount | None, whole: Amount, policy: CapacityRequestPolicy | None) -> Amount | None:
    """What a request takes of one capacity of a shared device; None when the policy has no value that serves it."""
    if policy is None:
        return whole if requested is None else requested
    if requested is None:
        return whole if policy.default is None else amount(policy.default)
    if policy.valid_values:
        fitting = [value for value in map(amount, policy.valid_values) if value >= requested]
        return min(fitting) if fitting else None
    if (valid := policy.valid_range) is not None:
        return _in_range(requested, valid.min, valid.max, valid.step)
    return requested


def _in_range(
    requested: Amount, low: str | int | None, high: str | int | None, step: str | int | None
) -> Amount | None:
    least: Amount = 0 if low is None else amount(low)
    value = max(requested, least)
    if step is not None and (size := amount(step)) > 0:
        value = least + -((least - value) // size) * size
    return None if high is not None and value > amount(high) else value


Consumption = tuple[tuple[str, Amount], ...]
"""Amounts by name of a capacity: requested of a shared device, or taken of it."""


def consumption(
    requests: Consumption,
    capacity: Mapping[str, DeviceCapacity],
    *,
    driver: str,
    shared: bool,
) -> Consumption | None:
    """What a request takes of a device: (capacity name as published, amount) for each; () of an exclusive device.

    None when the device can never serve the request: it lacks a capacity, has too little, or its policy refuses.
    """
    requested_by_name = {qualified(name, driver): value for name, value in requests}
    taken: list[tuple[str, Amount]] = []
    try:
        for name, entry in sorted(capacity.items()):
            requested = requested_by_name.pop(qualified(name, driver), None)
            whole = amount(entry.value)
            if not shared:
                if requested is not None and requested > whole:
                    return None
                continue
            value = rounded(requested, whole, entry.request_policy)
            if value is None or value > whole:
                return None
            taken.append((name, value))
    except QuantityError:
        return None  # a driver's malformed quantity: the device can't be measured, so it can't be shared
    return None if requested_by_name else tuple(taken)


class Named:
    """What is identified by namespace and name."""

    __slots__ = ()
    namespace: str
    name: str

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


class DeviceRef(msgspec.Struct, frozen=True, order=True, gc=False):
    """A device's full name. Its order is the inventory's order of pools; names of devices come last."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PodRef(msgspec.Struct, frozen=True, order=True, gc=False):
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
