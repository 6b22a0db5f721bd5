"""A report as one HTML page that needs nothing else: no script, no file and no host. Light and dark, and readable when printed.

Names come from tenants: every text is escaped, and the page's own policy forbids scripts and requests. Charts are inline SVG, in units of
its viewBox; their colours are classes of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from fairlead.history.cost import page, written
from fairlead.history.cost.bill import Day
from fairlead.history.cost.report import FLEET_PERCENT, IDLE_PERCENT, MEMORY_PERCENT, Report
from fairlead.history.cost.window import shown
from fairlead.history.cost.written import gpu_hours, lasting, money, percent, targets, verdict
from fairlead.history.ledger.entries import BUCKETS, Bucket

COLUMNS_MAX: Final = 62
GAPS_MAX: Final = 20
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
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #ffffff; --line: #d8dde4; --track: #eef1f4;
  --used: #0072b2; --idle: #e69f00; --starting: #56b4e9; --nominated: #cc79a7; --fragmented: #d55e00; --free: #b9c2cc; --drained: #8a6d3b; --broken: #3d3d3d;
  --unknown: #8c8c8c; --band: #cfe9dc; --good: #00694c; --bad: #b3400a; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #a3adba; --paper: #14181e; --line: #333b46; --track: #222932;
  --used: #4aa8e0; --idle: #f0b73a; --starting: #8fd0f5; --nominated: #dd9cc2; --fragmented: #f08a3c; --free: #4a5563; --drained: #c2a36b; --broken: #d0d0d0;
  --unknown: #7d7d7d; --band: #1f4636; --good: #5fd3a5; --bad: #ff9a63; } }
@media print { :root { color-scheme: light; } body { margin: 0; } section { break-inside: avoid; }
  rect, .key i { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; } p { margin: .4rem 0; } .soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td:first-child { overflow-wrap: anywhere; min-width: 7em; }
th { font-weight: 600; color: var(--soft); } td.n, th.n { text-align: right; white-space: nowrap; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: var(--ink); } svg text.axis { fill: var(--soft); }
.grid { stroke: var(--line); } .track { fill: var(--track); } .band { fill: var(--band); } .mark { stroke: var(--ink); stroke-width: 2; }
.met { color: var(--good); } .missed { color: var(--bad); font-weight: 600; } .key i { display: inline-block; width: .8em; height: .8em; margin: 0 .35em 0 .9em; }
"""


def html(report: Report) -> str:
    span = report.known.window
    title = f"GPU report, {shown(span.since_us)[:10]} to {shown(span.until_us)[:10]}"
    classes = "".join(
        f"rect.{name} {{ fill: var(--{name}); }} .key i.{name} {{ background: var(--{name}); }}\n" for name in BUCKETS
    )
    body = [
        f'<h1>{escape(title)}</h1><p class="soft">{escape(str(span))}</p>',
        f'<p class="missed">{escape(report.known.missing)}</p>' if report.known.missing else "",
        _section("Against the targets", _targets(report)),
        _section("Where all device time went", _device_time(report)),
        _section("What was not put to use", _losses(report)),
        _section("Who held idle devices", _holders(report)),
        _section("What would do with less", _sizing(report)),
        _section("How long gangs waited", _waiting(report)),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}{classes}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _targets(report: Report) -> str:
    bands = (
        (FLEET_PERCENT[0] / 100, FLEET_PERCENT[1] / 100),
        (0.0, IDLE_PERCENT / 100),
        (MEMORY_PERCENT / 100, 1.0),
    )
    found: list[str] = []
    for (name, part, wanted, met), band in zip(targets(report), bands, strict=True):
        colour = "idle" if "Idle" in name else "used"
        rows = [Bar(name, [(colour, float(part or 0))], percent(part))]
        found.append(page.bars(f"{name}: {percent(part)}, target {wanted}", rows, band))
        found.append(f'<p class="soft">Target {escape(wanted)}: <span class="{_class(met)}">{verdict(met)}</span></p>')
    if report.unsampled:
        found.append(
            f'<p class="soft">{percent(report.unsampled)} of the time held has no samples; it counts as busy.</p>'
        )
    return "".join(found)


def _device_time(report: Report) -> str:
    time = report.conservation
    key = "".join(f'<i class="{name}"></i>{name}' for name in BUCKETS if time.weighed[name])
    rows = [
        [
            name,
            MEANING[name],
            gpu_hours(time.weighed[name]),
            f"{time.percent[name]} %",
            money(report.figures.money(buckets=(name,))),
        ]
        for name in BUCKETS
        if time.weighed[name]
    ]
    rows.append(
        [
            "total",
            f"{time.units} devices, {len(time.days)} days",
            gpu_hours(time.total),
            "100.0 %" if time.total else "",
            "",
        ]
    )
    gaps = "".join(
        f"<li>{escape(shown(gap.start_us))} to {escape(shown(gap.end_us))}: {escape(gap.reason)}</li>"
        for gap in time.gaps[:GAPS_MAX]
    )
    more = f"<li>and {len(time.gaps) - GAPS_MAX} more</li>" if len(time.gaps) > GAPS_MAX else ""
    return (
        page.stacked("Device time by day", _columns(time.days))
        + f'<p class="key">{key}</p>'
        + _table(["", "", "hours", "part", "cost"], rows, numbers=(2, 3, 4))
        + (f"<p>Not seen:</p><ul>{gaps}{more}</ul>" if gaps else "")
    )


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


def _losses(report: Report) -> str:
    return _table(["", "hours", "cost"], written.losses(report), numbers=(1, 2))


def _holders(report: Report) -> str:
    if not report.holders:
        return "<p>None.</p>"
    most = max(each.idle for each in report.holders)
    chart = page.bars(
        "Idle device time by gang",
        [Bar(written.holder_name(each), [("idle", each.idle / most)], gpu_hours(each.idle)) for each in report.holders],
    )
    return chart + _table(["gang", "queue", "idle", "of its time", "cost"], written.holders(report), numbers=(2, 3, 4))


def _sizing(report: Report) -> str:
    if not report.sizing:
        return "<p>Nothing that the samples show.</p>"
    rows = written.sizing(report)
    head = ["gang or claim", "devices", "has", "peak", "load", "would do", "free", "saved"]
    note = f"{report.sizing_total - len(rows)} more are not shown. " if report.sizing_total > len(rows) else ""
    return _table(head, rows, numbers=(1, 2, 3, 4, 6, 7)) + (
        f'<p class="soft">{note}A profile would do that has the peak and a quarter more, and at least the mean load. Load has bursts: ask the owner.</p>'
    )


def _waiting(report: Report) -> str:
    if not report.waiting:
        return "<p>No gang was admitted.</p>"
    longest = max(max(each.p95_s, each.target_s or 0.0) for each in report.waiting) or 1.0
    chart = page.bars(
        "Waits by queue: p50 and p95, and the target as a line",
        [
            Bar(
                each.queue or "-",
                [("used", each.p50_s / longest), ("starting", (each.p95_s - each.p50_s) / longest)],
                f"p95 {lasting(each.p95_s)}",
                None if each.target_s is None else each.target_s / longest,
            )
            for each in report.waiting
        ],
    )
    return chart + _table(
        ["queue", "gangs", "p50", "p95", "target of p95", ""], written.waits(report), numbers=(1, 2, 3, 4)
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if place in numbers else ''}>{escape(text)}</{tag}>" for place, text in enumerate(row)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{lines}</tbody></table>"


def _class(met: bool | None) -> str:
    return "soft" if met is None else "met" if met else "missed"


WIDTH = 720
ROW = 26
LABEL = 190
BAR = 12


class Bar(NamedTuple):
    """A row of `bars`: values from 0 to 1 with their classes, and texts before and behind."""

    label: str
    parts: Sequence[tuple[str, float]]
    text: str
    mark: float | None = None


def stacked(title: str, columns: Sequence[tuple[str, Mapping[str, float]]], height: int = 160) -> str:
    """One column per entry, of parts of 1 from below in the order given; `columns` has labels and parts by class."""
    top, left, bottom = 8, 48, height - 22
    slot = (WIDTH - left - 4) / max(1, len(columns))
    body = [
        f'<line class="grid" x1="{left}" x2="{WIDTH}" y1="{_y(part, top, bottom)}" y2="{_y(part, top, bottom)}"/>'
        f'<text class="axis" x="{left - 6}" y="{_y(part, top, bottom)}" text-anchor="end" dy="4">{round(part * 100)} %</text>'
        for part in (0.0, 0.5, 1.0)
    ]
    every = max(1, -(-len(columns) // 10))
    for place, (label, parts) in enumerate(columns):
        x, y = left + place * slot, float(bottom)
        shown = [f"{name} {part:.1%}" for name, part in parts.items() if part]
        body.append(f"<g><title>{escape(f'{label}: ' + ', '.join(shown))}</title>")
        for name, part in parts.items():
            high = part * (bottom - top)
            y -= high
            if part:
                body.append(
                    f'<rect class="{escape(name)}" x="{x + slot * 0.08:.2f}" y="{y:.2f}" width="{slot * 0.84:.2f}" height="{high:.2f}"/>'
                )
        body.append("</g>")
        if place % every == 0:
            body.append(
                f'<text class="axis" x="{x + slot / 2:.2f}" y="{height - 6}" text-anchor="middle">{escape(label)}</text>'
            )
    return _svg(title, height, body)


def bars(title: str, rows: Sequence[Bar], band: tuple[float, float] | None = None) -> str:
    """A row per bar, from left to right; `mark` is a line across it, `band` a range behind all of them."""
    height = ROW * len(rows) + 6
    span = WIDTH - LABEL - 150
    body: list[str] = []
    if band is not None:
        body.append(
            f'<rect class="band" x="{LABEL + band[0] * span:.2f}" y="0" width="{(band[1] - band[0]) * span:.2f}" height="{height}"/>'
        )
    for place, row in enumerate(rows):
        y, x = place * ROW + 6, float(LABEL)
        label = row.label if len(row.label) <= 28 else row.label[:27] + "…"
        body.append(
            f'<text x="{LABEL - 8}" y="{y + BAR - 2}" text-anchor="end">{escape(label)}<title>{escape(row.label)}</title></text>'
            f'<rect class="track" x="{LABEL}" y="{y}" width="{span}" height="{BAR}"/>'
        )
        for name, part in row.parts:
            wide = max(0.0, min(1.0, part)) * span
            body.append(f'<rect class="{escape(name)}" x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{BAR}"/>')
            x += wide
        if row.mark is not None:
            at = LABEL + max(0.0, min(1.0, row.mark)) * span
            body.append(f'<line class="mark" x1="{at:.2f}" x2="{at:.2f}" y1="{y - 3}" y2="{y + BAR + 3}"/>')
        body.append(f'<text x="{LABEL + span + 8}" y="{y + BAR - 2}">{escape(row.text)}</text>')
    return _svg(title, height, body)


def _svg(title: str, height: int, body: Sequence[str]) -> str:
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg">'
        f"{''.join(body)}</svg>"
    )


def _y(part: float, top: int, bottom: int) -> str:
    return f"{bottom - part * (bottom - top):.2f}"
