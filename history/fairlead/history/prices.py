"""What use of a flavor costs: the price book of Flavors, the price at a time, the charge for a span of time.

Prices are per hour and per unit of the flavor's measure: a device (Devices), a whole GPU (Share), a unit of the capacity, such as
a byte of memory (Capacity). For a node's capacity type its own entries count, from the first of them on; before, and for all other
types, those without one. Of entries for one type the one that began last counts.

Charges are exact fractions of prices that are exact decimals: an hour has 3.6e9 microseconds, so most charges are no finite
decimal, and sums of rounded ones would depend on where time is split. `rounded` makes a Decimal of the sum, once.
Keeps: charge(a, c) = charge(a, b) + charge(b, c). Pure.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from fairlead.api.flavor import Flavor
from fairlead.kube.timestamps import HOUR_US

PLACES_MAX = 18


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one unit of the flavor's measure for an hour."""

    per_hour: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class Charge:
    """`amount` is exact, in the flavor's currency; "" where it has no price. `unpriced_us` is time that no price covers."""

    amount: Fraction = Fraction(0)
    currency: str = ""
    unpriced_us: int = 0


@dataclass(frozen=True, slots=True)
class _List:
    """Prices of one capacity type, or of any, by when they begin; the first may begin with None: since ever."""

    begins: tuple[int, ...]  # unix microseconds, of `prices` but for the one since ever
    prices: tuple[Price, ...]
    ever: Price | None

    def at(self, time_us: int) -> Price | None:
        place = bisect_right(self.begins, time_us)
        return self.prices[place - 1] if place else self.ever


_NONE = _List((), (), None)


@dataclass(frozen=True, slots=True)
class PriceBook:
    """By flavor, and by capacity type; None: any."""

    flavors: Mapping[str, Mapping[str | None, _List]]

    @classmethod
    def of(cls, flavors: Iterable[Flavor]) -> PriceBook:
        """The prices of valid Flavors; those without a price are unpriced."""
        return cls({flavor.name: _lists(flavor) for flavor in flavors})

    def price_at(self, flavor: str, capacity_type: str | None, time_us: int) -> Price | None:
        """At `time_us`, unix microseconds; None: there is none, or no such flavor."""
        lists = self.flavors.get(flavor, {})
        own = lists.get(capacity_type, _NONE).at(time_us) if capacity_type is not None else None
        return own if own is not None else lists.get(None, _NONE).at(time_us)

    def charge(
        self, flavor: str, capacity_type: str | None, start_us: int, end_us: int, share: int | Fraction = 1
    ) -> Charge:
        """For `share` units of the measure from `start_us` to `end_us`, unix microseconds, the end excluded.

        Raises ValueError where the end is before the start, or the share negative.
        """
        if end_us < start_us:
            raise ValueError(
                f"charge of {flavor}: it ends {start_us - end_us} µs before it starts: give the start first"
            )
        if share < 0:
            raise ValueError(f"charge of {flavor}: share: {share} is negative: give what was held, 0 or more")
        moments = [start_us, *self._changes(flavor, capacity_type, start_us, end_us), end_us]
        weighed, currency, unpriced_us = Fraction(0), "", 0
        for begin, end in itertools.pairwise(moments):
            price = self.price_at(flavor, capacity_type, begin)
            if price is None:
                unpriced_us += end - begin
                continue
            weighed += Fraction(price.per_hour) * (end - begin)
            currency = price.currency
        return Charge(weighed * share / HOUR_US, currency or self.currency(flavor), unpriced_us)

    def currency(self, flavor: str) -> str:
        """The currency of the flavor's prices; "" where it has none."""
        lists = self.flavors.get(flavor, {}).values()
        return next((price.currency for each in lists for price in (each.ever, *each.prices) if price is not None), "")

    def changes(self, start_us: int, end_us: int) -> list[int]:
        """When any price may change after `start_us` and before `end_us`, unix microseconds, in order."""
        every = (begin for lists in self.flavors.values() for each in lists.values() for begin in each.begins)
        return sorted({begin for begin in every if start_us < begin < end_us})

    def _changes(self, flavor: str, capacity_type: str | None, start_us: int, end_us: int) -> list[int]:
        """When the price may change within the span, in order."""
        lists = self.flavors.get(flavor, {})
        found = set[int]()
        for kind in {None, capacity_type}:
            begins = lists.get(kind, _NONE).begins
            found.update(begins[bisect_right(begins, start_us) : bisect_left(begins, end_us)])
        return sorted(found)


def _lists(flavor: Flavor) -> dict[str | None, _List]:
    found: dict[str | None, _List] = {}
    for kind in dict.fromkeys(price.capacity_type for price in flavor.spec.price):
        own = [price for price in flavor.spec.price if price.capacity_type == kind]
        dated = [(since, Price(price.amount, price.currency)) for price in own if (since := price.from_us) is not None]
        dated.sort(key=lambda entry: entry[0])
        ever = next((Price(price.amount, price.currency) for price in own if price.from_us is None), None)
        found[kind] = _List(tuple(since for since, _ in dated), tuple(price for _, price in dated), ever)
    return found


def rounded(amount: Fraction, places: int = 2) -> Decimal:
    """The amount with so many decimal places (0 to 18), half to even, whatever the decimal context. Raises ValueError."""
    if not 0 <= places <= PLACES_MAX:
        raise ValueError(
            f"places: {places} is not between 0 and {PLACES_MAX}: choose the places of the currency, mostly 2"
        )
    scaled = round(amount * 10**places)
    return Decimal((int(scaled < 0), tuple(map(int, str(abs(scaled)))), -places))
