"""A bill: device time, what pods requested beside it, and its cost by group, with a line for each part that no group is charged. Pure, exact.

Charges are of one basis: `allocated`, or `utilised`; the part of the allocated cost that was not utilised is then a line of its own.
The idle time in claims is charged to the `holder`, to its `queue` as a line of its own, or `shared`: over all lines, by their charges
without it. Time that no claim holds is a line per bucket, and never spread over others: nobody is charged for it.
Keeps: the lines of an unfiltered bill, charged or not, sum to the price of all device time and of what pods requested, whatever groups, basis and idle are. Idle is shared before
lines are left out, so a filter changes no line's charge. No bill is made unless the ledger's sums are the time that devices were there
(`conserve`). Percentages sum to exactly 100.0: each is rounded down to a tenth, and the tenths that are left over go to the largest
remainders, of equal ones to the first bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal, TypeVar, get_args

from fairlead.history.cost.usage import Figures, Money, add_money, priced, priced_pods
from fairlead.history.cost.window import LABEL, OF_DEVICES, ConservationError, CostError, Known, Reader, Window, shown
from fairlead.history.ledger.entries import BUCKETS, HELD, WHOLE_PPM, Bucket, Gap
from fairlead.history.prices import PriceBook
from fairlead.kube.timestamps import DAY_US

Basis = Literal["allocated", "utilised"]
Idle = Literal["holder", "queue", "shared"]
BASES: Final[tuple[Basis, ...]] = get_args(Basis)
IDLES: Final[tuple[Idle, ...]] = get_args(Idle)
WORKING: Final[frozenset[Bucket]] = HELD - {"idle"}
Keys = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """`by` and `where` as `window` reads them. `namespaces`: only what claims of these held; None: everything, and what no claim held."""

    by: tuple[str, ...] = ("queue",)
    where: tuple[tuple[str, str], ...] = ()
    namespaces: frozenset[str] | None = None
    basis: Basis = "allocated"
    idle: Idle = "holder"


@dataclass(frozen=True, kw_only=True)
class Line:
    """`kind`: "use"; "idle", that of a queue or, where nothing else was used, of all; "not utilised"; or a bucket that no claim holds.

    `keys` in the order of the bill's groups; `queue` is that of an idle line. Figures of a line that has costs alone are empty.
    `charged`: to its group or queue; `uncharged`: what it costs and nobody is charged for.
    """

    kind: str
    keys: Keys
    queue: str = ""
    figures: Figures = field(default_factory=Figures)
    charged: Money = field(default_factory=dict)
    uncharged: Money = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Bill:
    asked: Asked
    known: Known
    lines: tuple[Line, ...]
    conservation: Conservation

    @property
    def charged(self) -> dict[str, Fraction]:
        return _sum(line.charged for line in self.lines)

    @property
    def uncharged(self) -> dict[str, Fraction]:
        return _sum(line.uncharged for line in self.lines)

    @property
    def figures(self) -> Figures:
        found = Figures()
        for line in self.lines:
            found.add(line.figures)
        return found


def _sum(amounts: Iterable[Money]) -> dict[str, Fraction]:
    found = dict[str, Fraction]()
    for each in amounts:
        add_money(found, each)
    return found


def make(reader: Reader, book: PriceBook, asked: Asked, known: Known) -> Bill:
    """Raises CostError where a label is unknown, ConservationError where the ledger is inconsistent."""
    conservation = conserve(reader, known.window)
    groups = tuple(
        dict.fromkeys(
            (
                *asked.by,
                *(name for name, _ in asked.where),
                "queue",
                *([] if asked.namespaces is None else ["namespace"]),
            )
        )
    )
    held, unheld = dict[Keys, Figures](), dict[tuple[Bucket, Keys], Figures]()
    for each in priced(reader, book, [known.window], groups):
        keys, bucket = each.sum.keys, each.sum.bucket
        where = held.setdefault(keys, Figures()) if bucket in HELD else unheld.setdefault((bucket, keys), Figures())
        where.add(each.figures())
    for pods in priced_pods(reader, book, [known.window], groups):
        held.setdefault(pods.sum.keys, Figures()).add(pods.figures())
    _check_labels(reader, groups, [keys for keys in held if _is_of(keys, groups, asked)], known.window, asked)
    lines = [*_held_lines(held, groups, asked), *_unheld_lines(unheld, groups, asked)]
    return Bill(asked=asked, known=known, lines=tuple(lines), conservation=conservation)


def _held_lines(held: Mapping[Keys, Figures], groups: Keys, asked: Asked) -> list[Line]:
    utilised = asked.basis == "utilised"
    charged = {
        keys: figures.money(utilised=utilised, buckets=HELD if asked.idle == "holder" else WORKING)
        for keys, figures in held.items()
    }
    idle = {keys: figures.money(utilised=utilised, buckets=("idle",)) for keys, figures in held.items()}
    unshared = _share(charged, idle) if asked.idle == "shared" else {}
    kept = [keys for keys in held if _matches(keys, groups, asked)]
    figures, charges = dict[Keys, Figures](), dict[Keys, dict[str, Fraction]]()
    for keys in kept:
        short = tuple(keys[groups.index(name)] for name in asked.by)
        figures.setdefault(short, Figures()).add(held[keys])
        add_money(charges.setdefault(short, {}), charged[keys])
    lines = [Line(kind="use", keys=keys, figures=found, charged=charges[keys]) for keys, found in figures.items()]
    in_time = "day" in asked.by
    lines.sort(key=lambda line: (0 if in_time else -line.figures.held, line.keys))
    if asked.idle == "queue":
        lines += _idle_of_queues({keys: idle[keys] for keys in kept}, groups, asked)
    if any(unshared.values()) and not asked.where and asked.namespaces is None:
        lines.append(Line(kind="idle", keys=("",) * len(asked.by), uncharged=unshared))
    if utilised:
        rest = dict[str, Fraction]()
        for keys in kept:
            add_money(rest, held[keys].money())
            add_money(rest, {currency: -amount for currency, amount in held[keys].money(utilised=True).items()})
        rest = {currency: amount for currency, amount in rest.items() if amount}
        if rest:
            lines.append(Line(kind="not utilised", keys=("",) * len(asked.by), uncharged=rest))
    return lines


def _share(charged: Mapping[Keys, dict[str, Fraction]], idle: Mapping[Keys, Money]) -> dict[str, Fraction]:
    """Adds the idle charges to `charged`, by what each is charged in the same currency. What is left, in currencies without other charges."""
    left, weights = dict[str, Fraction](), dict[str, Fraction]()
    for money in idle.values():
        add_money(left, money)
    for money in charged.values():
        add_money(weights, money)
    for currency, weight in weights.items():
        if weight:
            factor = 1 + left.pop(currency, Fraction(0)) / weight
            for money in charged.values():
                if currency in money:
                    money[currency] *= factor
    return left


def _idle_of_queues(idle: Mapping[Keys, Money], groups: Keys, asked: Asked) -> list[Line]:
    place, found = groups.index("queue"), dict[str, dict[str, Fraction]]()
    for keys, money in idle.items():
        add_money(found.setdefault(keys[place], {}), money)
    own = [(tuple(queue if name == "queue" else "" for name in asked.by), queue) for queue in sorted(found)]
    return [
        Line(
            kind="idle",
            queue=queue,
            keys=keys,
            charged=found[queue] if queue else {},
            uncharged={} if queue else found[queue],
        )
        for keys, queue in own
        if any(found[queue].values())
    ]


def _unheld_lines(unheld: Mapping[tuple[Bucket, Keys], Figures], groups: Keys, asked: Asked) -> list[Line]:
    found = dict[tuple[Bucket, Keys], Figures]()
    for (bucket, keys), figures in unheld.items():
        if _matches(keys, groups, asked):
            short = tuple(keys[groups.index(name)] if name in OF_DEVICES else "" for name in asked.by)
            found.setdefault((bucket, short), Figures()).add(figures)
    ordered = sorted(found.items(), key=lambda item: (BUCKETS.index(item[0][0]), item[0][1]))
    return [
        Line(kind=bucket, keys=keys, figures=figures, uncharged=figures.money(buckets=(bucket,)))
        for (bucket, keys), figures in ordered
    ]


def _matches(keys: Keys, groups: Keys, asked: Asked) -> bool:
    return all(keys[groups.index(name)] == value for name, value in asked.where) and _is_of(keys, groups, asked)


def _is_of(keys: Keys, groups: Keys, asked: Asked) -> bool:
    return asked.namespaces is None or keys[groups.index("namespace")] in asked.namespaces


def _check_labels(reader: Reader, groups: Keys, held: Iterable[Keys], window: Window, asked: Asked) -> None:
    """Raises CostError for a label that no claim of the window has."""
    seen = [any(values) for values in zip(*held, strict=True)]
    for place, name in enumerate(groups):
        if name.startswith(LABEL) and seen and not seen[place]:
            check_label(name, label_names(reader, window, asked.namespaces))


def check_label(name: str, known: Sequence[str]) -> None:
    """Raises CostError where the group is a label that is not among the known ones; other groups pass."""
    if name.startswith(LABEL) and name.removeprefix(LABEL) not in known:
        there = f"those of its claims have {', '.join(known)}" if known else "its claims have none"
        raise CostError(
            f"{name}: no claim of the window has that label; {there}. The ledger keeps the labels that the owner of the cluster chose "
            "(docs/cost.md)"
        )


def label_names(reader: Reader, window: Window, namespaces: frozenset[str] | None = None) -> list[str]:
    """The label names of the claims held in the window, in these namespaces, sorted."""
    held = (each.allocation for each in reader.held(*window))
    return sorted({
        name for each in held if namespaces is None or each.namespace in namespaces for name, _ in each.labels
    })  # fmt: skip


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
