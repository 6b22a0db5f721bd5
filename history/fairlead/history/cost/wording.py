"""How a report words its figures and rows: the same in text and on its page."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from fairlead.history.cost.report import FLEET_PERCENT, IDLE_PERCENT, MEMORY_PERCENT, Holder, Report
from fairlead.history.cost.usage import hours
from fairlead.history.prices import rounded

GIB = 2**30


def money(by_currency: Mapping[str, Fraction]) -> str:
    """`1,234.50 EUR`; several currencies stand side by side; "unpriced" where there is none."""
    return amounts(by_currency) or "unpriced"


def amounts(by_currency: Mapping[str, Fraction]) -> str:
    """As `money`, "" where there is none."""
    return " + ".join(f"{rounded(amount):,f} {currency}" for currency, amount in sorted(by_currency.items()))


def number(value: Fraction) -> str:
    return f"{rounded(value, 1):,f}"


def gpu_hours(weighed: int | Fraction) -> str:
    return f"{rounded(hours(weighed), 1):,f} h"


def percent(part: Fraction | None) -> str:
    return "not known" if part is None else f"{rounded(part * 100, 1)} %"


def gibibytes(amount: int) -> str:
    return f"{rounded(Fraction(amount, GIB), 1):f} GiB"


def lasting(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def targets(report: Report) -> list[tuple[str, Fraction | None, str, bool | None]]:
    """Name, part, target in words, and whether it is met; None: not known."""
    low, high = (Fraction(each, 100) for each in FLEET_PERCENT)
    use, idle, memory = report.utilisation, report.idle, report.memory
    return [
        (
            "Utilisation of the fleet",
            use,
            f"{FLEET_PERCENT[0]} to {FLEET_PERCENT[1]} %",
            None if use is None else low <= use <= high,
        ),
        ("Idle in claims", idle, f"below {IDLE_PERCENT} %", None if idle is None else idle * 100 < IDLE_PERCENT),
        (
            "Memory, peak of what is held",
            memory,
            f"above {MEMORY_PERCENT} %",
            None if memory is None else memory * 100 > MEMORY_PERCENT,
        ),
    ]


def losses(report: Report) -> list[list[str]]:
    """What, time, cost: of device time that was not put to use."""
    figures = report.figures
    found = [
        (name, figures.weighed.get(name, 0), figures.money(buckets=(name,)))
        for name in ("fragmented", "drained", "broken", "starting", "idle")
    ]
    found.append(("lost to evictions (a part of used)", figures.lost, figures.lost_costs))
    return [[name, gpu_hours(weighed), money(cost) if weighed else "-"] for name, weighed, cost in found]


def holders(report: Report) -> list[list[str]]:
    """Gang, queue, idle time, its part of the time held, cost."""
    return [
        [
            holder_name(each),
            each.queue or "-",
            gpu_hours(each.idle),
            percent(Fraction(each.idle, each.held)),
            money(each.cost),
        ]
        for each in report.holders
    ]


def holder_name(holder: Holder) -> str:
    return f"{holder.namespace}/{holder.gang or '(no gang)'}"


def sizing(report: Report) -> list[list[str]]:
    """Gang or claim, devices, memory it has, peak, load, the size that would do, time that would come free, cost of it."""
    return [
        [
            f"{own.namespace}/{own.gang or own.claim}",
            str(own.devices),
            gibibytes(own.memory_bytes),
            gibibytes(own.peak_bytes),
            percent(own.utilisation),
            own.size,
            gpu_hours(own.saved),
            money(each.saved),
        ]
        for each in report.sizing
        for own in (each.advice,)
    ]


def waits(report: Report) -> list[list[str]]:
    """Queue, gangs, p50, p95, target of p95, verdict."""
    return [
        [
            each.queue or "-",
            str(each.gangs),
            lasting(each.p50_s),
            lasting(each.p95_s),
            "-" if each.target_s is None else lasting(each.target_s),
            "-" if each.met is None else verdict(each.met),
        ]
        for each in report.waiting
    ]


def verdict(met: bool | None) -> str:
    return "not known" if met is None else "met" if met else "missed"
