"""Bills and reports written out: as JSON and CSV for programs, and the words of a report, the same in text and on its page.

Money is decimal text with up to 12 places, hours with up to 6. The CSV is for spreadsheets, which run a cell that begins with `=`, `+`,
`-` or `@` as a formula: names, which tenants choose, get an apostrophe before such a beginning (OWASP, CSV injection).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from fairlead.history.cost.bill import Bill, Conservation, Line
from fairlead.history.cost.report import FLEET_PERCENT, IDLE_PERCENT, MEMORY_PERCENT, Holder, Report
from fairlead.history.cost.usage import Figures, Money, hours
from fairlead.history.cost.window import shown
from fairlead.history.ledger.entries import BUCKETS
from fairlead.history.prices import rounded

MONEY_PLACES: Final = 12
HOUR_PLACES: Final = 6
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
COLUMNS: Final = (
    "gpuHours", "usedHours", "idleHours", "startingHours", "lostHours", "unsampledHours", "unpricedHours", "utilisation",
    "currency", "allocatedCost", "utilisedCost", "idleCost", "lostCost", "charged", "uncharged",
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
        "total": {
            "gpuHours": _hours(bill.figures.held),
            "charged": _money(bill.charged),
            "uncharged": _money(bill.uncharged),
            "resources": _resources(bill.figures),
        },
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
    """One row per line and currency. A line with several currencies has its hours in each of its rows.

    Behind all others a column for each flavor of which pods requested something, such as `memory GiB-hours`.
    """
    flavors = pod_units(bill)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["kind", *bill.asked.by, *COLUMNS, *(f"{name} {unit}" for name, unit in flavors.items())])
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
                *(cost.get(name, "") for name in ("allocated", "utilised", "idle", "lost", "charged", "uncharged")),
                *(plain(figures.pods[name].hours, HOUR_PLACES) if name in figures.pods else "" for name in flavors),
            ])  # fmt: skip
    return out.getvalue()


def pod_units(bill: Bill) -> dict[str, str]:
    """The flavors of which pods requested something, in name order, and the units of their hours."""
    return {name: time.unit for name, time in sorted(bill.figures.pods.items())}


def unpriced_pods(bill: Bill) -> list[str]:
    """`7.0 cpu-hours of flavor cpu`, for each of which some have no price."""
    found = sorted(bill.figures.pods.items())
    return [f"{number(time.unpriced)} {time.unit} of flavor {name}" for name, time in found if time.unpriced]


def _resources(figures: Figures) -> dict[str, dict[str, str]]:
    return {
        name: {
            "unit": time.unit,
            "hours": plain(time.hours, HOUR_PLACES),
            "unpricedHours": plain(time.unpriced, HOUR_PLACES),
        }
        for name, time in sorted(figures.pods.items())
    }


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
        "uncharged": line.uncharged,
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
        "resources": _resources(figures),
        "cost": {
            currency: {name: plain(amount) for name, amount in costs.items()}
            for currency, costs in costs_by_currency(line).items()
        },
    }


def _hours(weighed: int | Fraction) -> str:
    return plain(hours(weighed), HOUR_PLACES)


def _money(money: Money) -> dict[str, str]:
    return {currency: plain(amount) for currency, amount in sorted(money.items())}


def csv_cell(name: str) -> str:
    return f"'{name}" if name.startswith(_FORMULA) else name


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
            f"{each.namespace}/{each.gang or each.claim}",
            str(each.devices),
            gibibytes(each.memory_bytes),
            gibibytes(each.peak_bytes),
            percent(each.utilisation),
            each.size,
            gpu_hours(each.saved),
            money(each.saved_cost),
        ]
        for each in report.sizing
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


def report_json(report: Report) -> dict[str, Any]:
    figures = report.figures
    return {
        "window": {"from": shown(report.known.window.since_us), "to": shown(report.known.window.until_us)},
        "missing": report.known.missing,
        "targets": {"fleetPercent": list(FLEET_PERCENT), "memoryPercent": MEMORY_PERCENT, "idlePercent": IDLE_PERCENT},
        "utilisation": _part(report.utilisation),
        "unsampled": _part(report.unsampled),
        "idle": _part(report.idle),
        "memory": _part(report.memory),
        "deviceTime": {
            **conservation_json(report.conservation),
            "cost": {bucket: _money(figures.money(buckets=(bucket,))) for bucket in BUCKETS},
        },
        "lostToEvictions": {"gpuHours": _hours(figures.lost), "cost": _money(figures.lost_costs)},
        "idleHolders": [
            {
                "queue": each.queue,
                "namespace": each.namespace,
                "gang": each.gang,
                "idleHours": _hours(each.idle),
                "heldHours": _hours(each.held),
                "cost": _money(each.cost),
            }
            for each in report.holders
        ],
        "rightSizing": [
            {
                "queue": each.queue,
                "namespace": each.namespace,
                "gang": each.gang,
                "claim": each.claim,
                "devices": each.devices,
                "memoryBytes": each.memory_bytes,
                "peakBytes": each.peak_bytes,
                "utilisation": _part(each.utilisation),
                "profile": each.size,
                "profileBytes": each.size_bytes,
                "savedHours": _hours(each.saved),
                "saved": _money(each.saved_cost),
            }
            for each in report.sizing
        ],
        "waits": [
            {
                "queue": each.queue,
                "gangs": each.gangs,
                "p50Seconds": each.p50_s,
                "p95Seconds": each.p95_s,
                "targetSeconds": each.target_s,
                "met": each.met,
            }
            for each in report.waiting
        ],
    }


def _part(part: Fraction | None) -> str | None:
    return None if part is None else plain(part, 4)
