"""How a report words figures: the same in text and on its page."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from fairlead.history.cost.report import FLEET_PERCENT, IDLE_PERCENT, MEMORY_PERCENT, Report
from fairlead.history.cost.usage import hours
from fairlead.history.prices import rounded

GIB = 2**30


def money(amounts: Mapping[str, Fraction]) -> str:
    """`1,234.50 EUR`; several currencies stand side by side; "unpriced" where there is none."""
    return " + ".join(f"{rounded(amount):,f} {currency}" for currency, amount in sorted(amounts.items())) or "unpriced"


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


def verdict(met: bool | None) -> str:
    return "not known" if met is None else "met" if met else "missed"
