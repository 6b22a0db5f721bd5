"""A report as JSON, for programs. Money, hours and parts are decimal text; what is not known is null."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from fairlead.history.cost.report import FLEET_PERCENT, IDLE_PERCENT, MEMORY_PERCENT, Report
from fairlead.history.cost.usage import hours
from fairlead.history.cost.window import shown
from fairlead.history.cost.written import HOUR_PLACES, conservation_json, plain
from fairlead.history.ledger.entries import BUCKETS


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
                "queue": own.queue,
                "namespace": own.namespace,
                "gang": own.gang,
                "claim": own.claim,
                "devices": own.devices,
                "memoryBytes": own.memory_bytes,
                "peakBytes": own.peak_bytes,
                "utilisation": _part(own.utilisation),
                "profile": own.size,
                "profileBytes": own.size_bytes,
                "savedHours": _hours(own.saved),
                "saved": _money(each.saved),
            }
            for each in report.sizing
            for own in (each.advice,)
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


def _hours(weighed: int | Fraction) -> str:
    return plain(hours(weighed), HOUR_PLACES)


def _money(amounts: Mapping[str, Fraction]) -> dict[str, str]:
    return {currency: plain(amount) for currency, amount in sorted(amounts.items())}
