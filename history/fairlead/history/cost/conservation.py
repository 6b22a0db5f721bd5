"""All device time of a window, each bucket in percent, and the check that the ledger's sums are the time that devices were there.

Keeps: the percentages sum to exactly 100.0. Each is rounded down to a tenth, and the tenths that are left over go to the largest
remainders, of equal ones to the first bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from fairlead.history.cost.errors import ConservationError
from fairlead.history.cost.reading import Reader
from fairlead.history.cost.window import Window, shown
from fairlead.history.ledger.entries import BUCKETS, WHOLE_PPM, Bucket, Gap
from fairlead.kube.timestamps import DAY_US

TENTHS = 1000
K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class Day:
    day_us: int
    units: int
    weighed: Mapping[Bucket, int]


@dataclass(frozen=True, kw_only=True)
class Conservation:
    """`weighed` in ppm × µs, by bucket, all of them; `percent` likewise, which sums to 100.0 where there is any device time."""

    window: Window
    weighed: Mapping[Bucket, int]
    percent: Mapping[Bucket, Decimal]
    units: int
    days: tuple[Day, ...]
    gaps: tuple[Gap, ...]

    @property
    def total(self) -> int:
        return sum(self.weighed.values())


def conserve(reader: Reader, window: Window) -> Conservation:
    """Raises ConservationError that names unit and day where the ledger's time is not the time that a device was there."""
    weighed = dict.fromkeys(BUCKETS, 0)
    units, days, by_day = set[str](), dict[int, Counter[Bucket]](), Counter[int]()
    for each in reader.unit_days(*window):
        counted = sum(part for _, part in each.weighed)
        if counted != WHOLE_PPM * each.present_us:
            raise _unequal(str(each.unit), _date(each.day_us), counted, WHOLE_PPM * each.present_us)
        units.add(str(each.unit))
        by_day[each.day_us] += 1
        day = days.setdefault(each.day_us, Counter())
        for bucket, part in each.weighed:
            weighed[bucket] += part
            day[bucket] += part
    _check_sums(reader, window, weighed)
    return Conservation(
        window=window,
        weighed=weighed,
        percent=percentages(weighed),
        units=len(units),
        days=tuple(Day(day_us=day, units=by_day[day], weighed=days[day]) for day in sorted(days)),
        gaps=tuple(reader.gaps(*window)),
    )


def percentages(parts: Mapping[K, int]) -> dict[K, Decimal]:
    """Largest remainders, in tenths of a percent; all are 0 where there is nothing to divide."""
    total = sum(parts.values())
    if not total:
        return dict.fromkeys(parts, Decimal("0.0"))
    tenths = {name: part * TENTHS // total for name, part in parts.items()}
    left = TENTHS - sum(tenths.values())
    largest = sorted(parts, key=lambda name: parts[name] * TENTHS % total, reverse=True)
    for name in largest[:left]:
        tenths[name] += 1
    return {name: Decimal(part).scaleb(-1) for name, part in tenths.items()}


def _check_sums(reader: Reader, window: Window, weighed: Mapping[Bucket, int]) -> None:
    """Sums, which bills are made of, against the days of the units. Where they differ, the first unit and day that do are named."""
    found = dict.fromkeys(BUCKETS, 0)
    for each in reader.sums(*window, ()):
        found[each.bucket] += each.time_us * each.measure.share_ppm
    if found == weighed:
        return
    summed = Counter[tuple[str, str]]()
    for each in reader.sums(*window, ("unit", "day")):
        summed[each.keys[0], each.keys[1]] += each.time_us * each.measure.share_ppm
    present = {(str(each.unit), _date(each.day_us)): WHOLE_PPM * each.present_us for each in reader.unit_days(*window)}
    for unit, day in sorted(summed.keys() | present.keys()):
        if summed[unit, day] != present.get((unit, day), 0):
            raise _unequal(unit, day, summed[unit, day], present.get((unit, day), 0))
    different = next(bucket for bucket in BUCKETS if found[bucket] != weighed[bucket])
    raise ConservationError(
        f"the ledger contradicts itself in {window}: its sums have {found[different]} ppm·µs of bucket {different}, its units' days "
        f"{weighed[different]}: report this with the ledger; no bill was made"
    )


def _unequal(unit: str, day: str, counted: int, present: int) -> ConservationError:
    return ConservationError(
        f"unit {unit} on {day}: the ledger accounts for {counted / WHOLE_PPM / 1e6:.6f} s of the {present / WHOLE_PPM / 1e6:.6f} s that it "
        "was there: report this with the ledger; no bill was made"
    )


def _date(day_us: int) -> str:
    return shown(day_us // DAY_US * DAY_US)[:10]
