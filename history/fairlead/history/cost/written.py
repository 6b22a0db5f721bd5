"""A bill as JSON and as CSV, for programs and spreadsheets. Money is decimal text with up to 12 places, hours with up to 6.

The CSV is for spreadsheets, which run a cell that begins with `=`, `+`, `-` or `@` as a formula: names, which tenants choose, get an
apostrophe before such a beginning (OWASP, CSV injection).
"""

from __future__ import annotations

import csv
import io
from fractions import Fraction
from typing import Any, Final

from fairlead.history.cost.bill import Bill, Line
from fairlead.history.cost.conservation import Conservation
from fairlead.history.cost.usage import Figures, Money, hours
from fairlead.history.cost.window import shown
from fairlead.history.ledger.entries import BUCKETS
from fairlead.history.prices import rounded

MONEY_PLACES: Final = 12
HOUR_PLACES: Final = 6
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
COLUMNS: Final = (
    "gpuHours", "usedHours", "idleHours", "startingHours", "lostHours", "unsampledHours", "unpricedHours", "utilisation",
    "currency", "allocatedCost", "utilisedCost", "idleCost", "lostCost", "charged",
)  # fmt: skip


def plain(amount: Fraction, places: int = MONEY_PLACES) -> str:
    """Without an exponent, and without zeros at the end."""
    text = f"{rounded(amount, places):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def utilisation(figures: Figures) -> Fraction | None:
    """The busy part of the time that samples cover; None: they cover none."""
    return Fraction(figures.busy, figures.sampled) if figures.sampled else None


def bill_json(bill: Bill) -> dict[str, Any]:
    asked = bill.asked
    return {
        "window": {"from": shown(bill.known.window.since_us), "to": shown(bill.known.window.until_us)},
        "missing": bill.known.missing,
        "by": list(asked.by),
        "where": [f"{name}={value}" for name, value in asked.where],
        "basis": asked.basis,
        "idle": asked.idle,
        "lines": [_line(line, asked.by) for line in bill.lines],
        "total": {"gpuHours": _hours(bill.figures.held), "charged": _money(bill.total)},
        "deviceTime": conservation_json(bill.conservation),
    }


def conservation_json(found: Conservation) -> dict[str, Any]:
    return {
        "hours": _hours(found.total),
        "percent": {bucket: str(found.percent[bucket]) for bucket in BUCKETS},
        "units": found.units,
        "days": len(found.days),
        "gaps": [{"from": shown(gap.start_us), "to": shown(gap.end_us), "reason": gap.reason} for gap in found.gaps],
    }


def bill_csv(bill: Bill) -> str:
    """One row per line and currency. A line with several currencies has its hours in each of its rows."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["kind", *bill.asked.by, *COLUMNS])
    for line in bill.lines:
        row, figures = _line(line, bill.asked.by), line.figures
        costs = row["cost"]
        for currency in sorted(costs) or [""]:
            cost = costs.get(currency, {})
            writer.writerow([
                kind(line),
                *(csv_cell(key) for key in line.keys),
                *(row[name] for name in COLUMNS[:7]),
                "" if utilisation(figures) is None else plain(utilisation(figures) or Fraction(0), 4),
                currency,
                *(cost.get(name, "") for name in ("allocated", "utilised", "idle", "lost", "charged")),
            ])  # fmt: skip
    return out.getvalue()


def kind(line: Line) -> str:
    return f"idle of queue {line.queue}" if line.kind == "idle" and line.queue else line.kind


def costs_by_currency(line: Line) -> dict[str, dict[str, Fraction]]:
    figures = line.figures
    every = figures.weighed
    sources = {
        "allocated": figures.money(buckets=every),
        "utilised": figures.money(utilised=True, buckets=every),
        "idle": figures.money(buckets=("idle",)),
        "lost": figures.lost_costs,
        "charged": line.charged,
    }
    currencies = {currency for money in sources.values() for currency in money}
    return {
        currency: {name: money.get(currency, Fraction(0)) for name, money in sources.items()}
        for currency in sorted(currencies)
    }


def _line(line: Line, by: tuple[str, ...]) -> dict[str, Any]:
    figures = line.figures
    part = utilisation(figures)
    return {
        "kind": line.kind,
        **({"queue": line.queue} if line.kind == "idle" else {}),
        "keys": dict(zip(by, line.keys, strict=True)),
        "gpuHours": _hours(sum(figures.weighed.values())),
        "usedHours": _hours(figures.weighed.get("used", 0)),
        "idleHours": _hours(figures.weighed.get("idle", 0)),
        "startingHours": _hours(figures.weighed.get("starting", 0)),
        "lostHours": _hours(figures.lost),
        "unsampledHours": _hours(figures.held - figures.sampled),
        "unpricedHours": _hours(figures.unpriced),
        "utilisation": None if part is None else plain(part, 4),
        "cost": {
            currency: {name: plain(amount) for name, amount in costs.items()}
            for currency, costs in costs_by_currency(line).items()
        },
    }


def _hours(weighed: int) -> str:
    return plain(hours(weighed), HOUR_PLACES)


def _money(money: Money) -> dict[str, str]:
    return {currency: plain(amount) for currency, amount in sorted(money.items())}


def csv_cell(name: str) -> str:
    return f"'{name}" if name.startswith(_FORMULA) else name
