"""What use of a flavor costs: the price book of Flavors, and the price at a time. Pure.

Prices are per hour and per unit of the flavor's measure: a device (Devices), a whole GPU (Share), a unit of the capacity, such as
a byte of memory (Capacity). For a node's capacity type its own entries count, from the first of them on; before, and for all other
types, those without one. Of entries for one type the one that began last counts.

Prices are exact decimals, and amounts of money exact fractions: an hour has 3.6e9 microseconds, so most charges are no finite decimal, and
sums of rounded ones would depend on where time is split. `rounded` makes a Decimal of the sum, once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from fairlead.api.flavor import Flavor

PLACES_MAX = 18


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one unit of the flavor's measure for an hour."""

    per_hour: Decimal
    currency: str


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

    def currency(self, flavor: str) -> str:
        """The currency of the flavor's prices; "" where it has none."""
        lists = self.flavors.get(flavor, {}).values()
        return next((price.currency for each in lists for price in (each.ever, *each.prices) if price is not None), "")

    def changes(self, start_us: int, end_us: int) -> list[int]:
        """When any price may change after `start_us` and before `end_us`, unix microseconds, in order."""
        every = (begin for lists in self.flavors.values() for each in lists.values() for begin in each.begins)
        return sorted({begin for begin in every if start_us < begin < end_us})


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
