"""Use with its price: the ledger's sums of a window, cut wherever a price changes, in device time and in money. Pure, exact.

Device time is share × time, in ppm × µs: `GPU_HOUR` of it are one hour of a whole device. Money is an exact fraction by currency;
time that no price covers is counted as unpriced and costs nothing.
Two amounts for each interval: allocated, its time × amount × price; and utilised, the same with that part of the time alone in which
the samples say the device was busy. Time without samples counts as busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from fairlead.api.resource_units import hours_unit
from fairlead.history.cost.window import CostError, Reader, Window, cut
from fairlead.history.ledger.entries import HELD, WHOLE_PPM, Bucket, Sum
from fairlead.history.ledger.pod_entries import PodSum
from fairlead.history.prices import PriceBook
from fairlead.kube.timestamps import HOUR_US

GPU_HOUR: Final = WHOLE_PPM * HOUR_US
Money = Mapping[str, Fraction]
"""By currency."""


class Cost(NamedTuple):
    allocated: Fraction = Fraction(0)
    utilised: Fraction = Fraction(0)

    def plus(self, other: Cost) -> Cost:
        return Cost(self.allocated + other.allocated, self.utilised + other.utilised)


class PodTime(NamedTuple):
    """Resource-hours of a flavor. `unit` names them; `unpriced` is the part that no price covers."""

    unit: str
    hours: Fraction
    unpriced: Fraction = Fraction(0)

    def plus(self, other: PodTime) -> PodTime:
        """The unit is the latter's: a flavor that counted another resource before has hours of both."""
        return PodTime(other.unit, self.hours + other.hours, self.unpriced + other.unpriced)


@dataclass(slots=True)
class Figures:
    """The figures of intervals that are grouped. All but costs and `pods` is device time, in ppm × µs.

    What pods requested counts as used, and as utilised: no samples say otherwise.
    """

    weighed: dict[Bucket, int] = field(default_factory=dict)
    costs: dict[tuple[str, Bucket], Cost] = field(default_factory=dict)  # by currency and bucket
    lost_costs: dict[str, Fraction] = field(default_factory=dict)  # allocated; a part of `costs`
    lost: int = 0
    sampled: int = 0
    busy: int = 0
    unpriced: int = 0
    pods: dict[str, PodTime] = field(default_factory=dict)  # by flavor: what pods requested, beside device time

    def add(self, other: Figures) -> None:
        for bucket, weighed in other.weighed.items():
            self.weighed[bucket] = self.weighed.get(bucket, 0) + weighed
        for key, cost in other.costs.items():
            self.costs[key] = self.costs.get(key, Cost()).plus(cost)
        for currency, amount in other.lost_costs.items():
            self.lost_costs[currency] = self.lost_costs.get(currency, Fraction(0)) + amount
        self.lost += other.lost
        self.sampled += other.sampled
        self.busy += other.busy
        self.unpriced += other.unpriced
        for flavor, time in other.pods.items():
            self.pods[flavor] = self.pods[flavor].plus(time) if flavor in self.pods else time

    @property
    def held(self) -> int:
        return sum(weighed for bucket, weighed in self.weighed.items() if bucket in HELD)

    @property
    def utilised(self) -> int:
        """The busy part of the time held; time without samples counts as busy."""
        return self.held - self.sampled + self.busy

    def money(self, *, utilised: bool = False, buckets: Iterable[Bucket] = HELD) -> dict[str, Fraction]:
        wanted, found = frozenset(buckets), dict[str, Fraction]()
        for (currency, bucket), cost in self.costs.items():
            if bucket in wanted:
                found[currency] = found.get(currency, Fraction(0)) + (cost.utilised if utilised else cost.allocated)
        return found


class Priced(NamedTuple):
    """One sum of a part of the window in which its price stays the same; "" and None: unpriced."""

    part: Window
    sum: Sum
    per_hour: Fraction | None
    currency: str

    @property
    def sold(self) -> tuple[str, str | None]:
        """Flavor and capacity type."""
        return self.sum.measure.flavor, self.sum.measure.capacity_type

    def figures(self) -> Figures:
        of, ppm = self.sum, self.sum.measure.share_ppm
        found = Figures(
            weighed={of.bucket: of.time_us * ppm},
            lost=of.time_us * ppm if of.lost else 0,
            sampled=of.sampled_us * ppm,
            busy=of.busy_us * ppm,
        )
        if self.per_hour is None:
            found.unpriced = of.time_us * ppm
            return found
        of_a_us = self.per_hour * of.measure.amount / HOUR_US
        cost = Cost(of.time_us * of_a_us, (of.time_us - of.sampled_us + of.busy_us) * of_a_us)
        found.costs[self.currency, of.bucket] = cost
        if of.lost:
            found.lost_costs[self.currency] = cost.allocated
        return found


def priced(reader: Reader, book: PriceBook, parts: Iterable[Window], by: tuple[str, ...]) -> Iterator[Priced]:
    """The ledger's sums by these groups, in each part cut where a price changes."""
    for part in parts:
        for piece in cut(part, book.changes(*part)):
            for each in reader.sums(*piece, by):
                _check_named(each, by)
                measure = each.measure
                yield Priced(piece, each, *_price(book, measure.flavor, measure.capacity_type, piece.since_us))


class PodPriced(NamedTuple):
    """What pods requested in a part of the window in which its price stays the same; "" and None: unpriced."""

    part: Window
    sum: PodSum
    per_hour: Fraction | None
    currency: str

    @property
    def sold(self) -> tuple[str, str | None]:
        """Flavor and capacity type."""
        return self.sum.flavor, self.sum.capacity_type

    @property
    def hours(self) -> Fraction:
        return self.sum.weighed / HOUR_US

    def figures(self) -> Figures:
        unit = hours_unit(self.sum.resource)
        if self.per_hour is None:
            return Figures(pods={self.sum.flavor: PodTime(unit, self.hours, self.hours)})
        cost = self.hours * self.per_hour
        return Figures(
            costs={(self.currency, "used"): Cost(cost, cost)}, pods={self.sum.flavor: PodTime(unit, self.hours)}
        )


def priced_pods(reader: Reader, book: PriceBook, parts: Iterable[Window], by: tuple[str, ...]) -> Iterator[PodPriced]:
    """As `priced`, of what pods requested."""
    for part in parts:
        for piece in cut(part, book.changes(*part)):
            for each in reader.pod_sums(*piece, by):
                yield PodPriced(piece, each, *_price(book, each.flavor, each.capacity_type, piece.since_us))


def _price(book: PriceBook, flavor: str, capacity_type: str | None, at_us: int) -> tuple[Fraction | None, str]:
    """Of an hour, None where there is none then, and the currency."""
    price = book.price_at(flavor, capacity_type, at_us)
    return (None, book.currency(flavor)) if price is None else (Fraction(price.per_hour), price.currency)


def _check_named(of: Sum, by: tuple[str, ...]) -> None:
    """Raises CostError where time in a claim has no claim or device: a store that cannot sum by them must not merge them in silence."""
    for name in ("claim", "device"):
        if name in by and of.bucket in HELD and not of.keys[by.index(name)]:
            raise CostError(
                f"the ledger has {of.bucket} time without a {name}, so it cannot be summed by {name}: report this with the ledger"
            )


def hours(weighed: int | Fraction) -> Fraction:
    """Hours of whole devices."""
    return Fraction(weighed, GPU_HOUR)


def add_money(total: dict[str, Fraction], more: Money) -> None:
    for currency, amount in more.items():
        total[currency] = total.get(currency, Fraction(0)) + amount
