"""A report as one HTML page that needs nothing else: no script, no file and no host. Light and dark, and readable when printed.

Names come from tenants: every text is escaped by the template, and the page's own policy forbids scripts and requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from fairlead.history.cost import written
from fairlead.history.cost.bill import Day
from fairlead.history.cost.report import FLEET_PERCENT, IDLE_PERCENT, MEMORY_PERCENT, Report
from fairlead.history.cost.window import shown
from fairlead.history.cost.written import gpu_hours, lasting, money, percent
from fairlead.history.ledger.entries import BUCKETS, Bucket

COLUMNS_MAX: Final = 62
GAPS_MAX: Final = 20
BANDS: Final = (
    (FLEET_PERCENT[0] / 100, FLEET_PERCENT[1] / 100),
    (0.0, IDLE_PERCENT / 100),
    (MEMORY_PERCENT / 100, 1.0),
)
"""Where each target is met, in the order of `written.targets`."""
MEANING: Final[Mapping[Bucket, str]] = {
    "used": "held by a claim, and in use",
    "idle": "held by a claim whose device was idle",
    "starting": "held by a claim whose pods did not run yet",
    "nominated": "kept for a gang that is about to start",
    "fragmented": "free, but no usual request could be given it then",
    "free": "free",
    "drained": "kept back by an operator: drained, or its node is cordoned",
    "broken": "tainted, or its node is away",
    "unknown": "not seen",
}


class Bar(NamedTuple):
    """A row of a chart: values from 0 to 1 with their classes, and texts before and behind."""

    label: str
    parts: Sequence[tuple[str, float]]
    text: str
    mark: float | None = None


@cache
def _template() -> Template:
    made = Environment(
        loader=PackageLoader("fairlead.history.cost"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "bands": BANDS,
        "buckets": BUCKETS,
        "gaps_max": GAPS_MAX,
        "shown": shown,
        "target_bar": _target_bar,
        "two": lambda value: f"{value:.2f}",
        "within": lambda part: max(0.0, min(1.0, part)),
        "written": written,
    }
    return made.get_template("report.html")


def html(report: Report) -> str:
    span = report.known.window
    return (
        _template()
        .render(
            report=report,
            title=f"GPU report, {shown(span.since_us)[:10]} to {shown(span.until_us)[:10]}",
            columns=_columns(report.conservation.days),
            device_time=_device_time(report),
            idle_bars=_idle_bars(report),
            wait_bars=_wait_bars(report),
        )
        .lstrip()
        + "\n"
    )


def _target_bar(name: str, part: Fraction | None) -> Bar:
    return Bar(name, [("idle" if "Idle" in name else "used", float(part or 0))], percent(part))


def _device_time(report: Report) -> list[tuple[str, ...]]:
    """Bucket, what it means, hours, part, cost."""
    time = report.conservation
    rows: list[tuple[str, ...]] = [
        (
            name,
            MEANING[name],
            gpu_hours(time.weighed[name]),
            f"{time.percent[name]} %",
            money(report.figures.money(buckets=(name,))),
        )
        for name in BUCKETS
        if time.weighed[name]
    ]
    whole = "100.0 %" if time.total else ""
    return [*rows, ("total", f"{time.units} devices, {len(time.days)} days", gpu_hours(time.total), whole, "")]


def _columns(days: Sequence[Day]) -> list[tuple[str, dict[str, float]]]:
    """A column per day, or per several days where there are too many."""
    per, found = max(1, -(-len(days) // COLUMNS_MAX)), list[tuple[str, dict[str, float]]]()
    for place in range(0, len(days), per):
        some = days[place : place + per]
        weighed = {name: sum(day.weighed.get(name, 0) for day in some) for name in BUCKETS}
        total = sum(weighed.values())
        found.append(
            (shown(some[0].day_us)[5:10], {name: part / total if total else 0.0 for name, part in weighed.items()})
        )
    return found


def _idle_bars(report: Report) -> list[Bar]:
    most = max((each.idle for each in report.holders), default=1)
    return [
        Bar(written.holder_name(each), [("idle", each.idle / most)], gpu_hours(each.idle)) for each in report.holders
    ]


def _wait_bars(report: Report) -> list[Bar]:
    longest = max((max(each.p95_s, each.target_s or 0.0) for each in report.waiting), default=1.0) or 1.0
    return [
        Bar(
            each.queue or "-",
            [("used", each.p50_s / longest), ("starting", (each.p95_s - each.p50_s) / longest)],
            f"p95 {lasting(each.p95_s)}",
            None if each.target_s is None else each.target_s / longest,
        )
        for each in report.waiting
    ]
