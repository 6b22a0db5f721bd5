"""A comparison as texts for people, and as JSON for programs. Times are forecasts, counted from the snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairlead.engine.forecast.forecast import duration
from fairlead.engine.forecast.what_if import Comparison, Future, GangStart
from fairlead.engine.types.plan import QueueUse
from fairlead.engine.types.values import text
from fairlead.kube import timestamps

ROWS_MAX = 25
NOTICEABLE_S = 60.0
STARTS = ("gang", "queue", "before", "after", "change")
SHARES = ("queue", "flavor", "deserved", "fair share", "used now", "after: deserved", "fair share", "used now")
_NEVER = GangStart(queue="", p50_s=None, p90_s=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRow:
    """`better`: it starts sooner, or later; None: neither."""

    gang: str
    queue: str
    before: str
    after: str
    change: str
    better: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """`starts`: the first of those that change; `more` are left out. `shares`: rows in the order of `SHARES`."""

    headline: str
    starts: tuple[StartRow, ...]
    more: int
    evicted: tuple[str, ...]
    shares: tuple[tuple[str, ...], ...]
    figures: tuple[tuple[str, str], ...]
    note: str


def shown(found: Comparison) -> Shown:
    before, after = found.before, found.after
    ids = sorted(before.starts.keys() | after.starts.keys(), key=lambda each: (_order(after.starts.get(each)), each))
    changed = [each for each in ids if _moves(before.starts.get(each), after.starts.get(each))]
    runs = "every run lasts its median" if after.samples == 1 else f"{after.samples} samples of run times"
    notes = "; ".join(filter(None, (runs, after.note)))
    return Shown(
        headline=f"Forecast of starts: {len(changed)} of {len(ids)} waiting gangs start at another time.",
        starts=tuple(_row(each, before, after) for each in changed[:ROWS_MAX]),
        more=max(0, len(changed) - ROWS_MAX),
        evicted=tuple(_evicted(before, after)),
        shares=tuple(_shares(before, after)),
        figures=_figures(before, after),
        note=f"A forecast: {notes}; what is submitted later is not in it.",
    )


def _row(gang: str, before: Future, after: Future) -> StartRow:
    old, new = before.starts.get(gang), after.starts.get(gang)
    change, better = "", None
    if old is None:
        change = "new" if gang not in after.evicted else "evicted"
    elif new is not None and old.p50_s is not None and new.p50_s is not None:
        sooner = old.p50_s - new.p50_s
        change, better = f"{duration(abs(sooner))} {'sooner' if sooner > 0 else 'later'}", sooner > 0
    elif new is not None and new.p50_s is not None:
        change, better = "sooner", True
    elif old.p50_s is not None:
        change, better = "later", False
    return StartRow(
        gang=gang,
        queue=(new or old or _NEVER).queue or "-",
        before=_start(old),
        after=_start(new),
        change=change,
        better=better,
    )


def _start(found: GangStart | None) -> str:
    if found is None:
        return "-"
    if found.never:
        return "cannot run"
    if found.on_hold:
        return "on hold"
    if found.p50_s is None:
        return "later"
    late = f" (p90 {duration(found.p90_s)})" if found.p90_s is not None else ""
    return ("now" if found.p50_s < 1.0 else duration(found.p50_s)) + late


def _order(found: GangStart | None) -> float:
    return float("inf") if found is None or found.p50_s is None else found.p50_s


def _moves(old: GangStart | None, new: GangStart | None) -> bool:
    if old is None or new is None:
        return old is not new
    if (bool(old.never), bool(old.on_hold)) != (bool(new.never), bool(new.on_hold)) or (old.p50_s is None) != (
        new.p50_s is None
    ):
        return True
    return old.p50_s is not None and new.p50_s is not None and abs(old.p50_s - new.p50_s) >= NOTICEABLE_S


def _evicted(before: Future, after: Future) -> list[str]:
    more = [f"{gang} ({why})" for gang, why in sorted(after.evicted.items()) if gang not in before.evicted]
    fewer = sorted(before.evicted.keys() - after.evicted.keys())
    return [
        f"{title}: {', '.join(gangs[:8])}" + (f" and {len(gangs) - 8} more" if len(gangs) > 8 else "")
        for title, gangs in (("Evicted with the change", more), ("No longer evicted", fewer))
        if gangs
    ]


def _shares(before: Future, after: Future) -> list[tuple[str, ...]]:
    old = {(use.name, each.flavor): each for use in before.queues for each in use.flavors}
    rows: list[tuple[str, ...]] = []
    for use in after.queues:
        for each in use.flavors:
            was = old.get((use.name, each.flavor))
            figures = (each.deserved, each.fair_share, each.used)
            earlier = None if was is None else (was.deserved, was.fair_share, was.used)
            if earlier != figures:
                cells = ["-"] * 3 if earlier is None else [text(number) for number in earlier]
                rows.append((use.name, each.flavor, *cells, *map(text, figures)))
    return rows


def _figures(before: Future, after: Future) -> tuple[tuple[str, str], ...]:
    return (
        (
            "Devices",
            f"{before.devices} -> {after.devices}; in use now {before.used_now} -> {after.used_now}",
        ),
        (
            "Utilisation",
            f"{before.utilisation:.1%} -> {after.utilisation:.1%} on average, {duration(after.until_s)} ahead",
        ),
        (
            "Free GPUs on nodes partly in use",
            f"{before.fragmented:.1%} -> {after.fragmented:.1%} of the free ones",
        ),
    )


def as_json(found: Comparison, now: float) -> dict[str, Any]:
    return {"asOf": timestamps.seconds(now), "before": _future(found.before, now), "after": _future(found.after, now)}


def _future(future: Future, now: float) -> dict[str, Any]:
    return {
        "gangs": [
            {
                "gang": gang,
                "queue": start.queue,
                "p50": None if start.p50_s is None else timestamps.seconds(now + start.p50_s),
                "p90": None if start.p90_s is None else timestamps.seconds(now + start.p90_s),
                "p50Seconds": start.p50_s,
                "p90Seconds": start.p90_s,
                "never": start.never or None,
                "onHold": start.on_hold or None,
            }
            for gang, start in sorted(future.starts.items())
        ],
        "evicted": [{"gang": gang, "why": why} for gang, why in sorted(future.evicted.items())],
        "queues": [_queue(use) for use in future.queues],
        "devices": future.devices,
        "usedNow": future.used_now,
        "utilisation": round(future.utilisation, 4),
        "fragmentation": round(future.fragmented, 4),
        "horizonSeconds": round(future.until_s, 1),
        "samples": future.samples,
        "note": future.note or None,
    }


def _queue(use: QueueUse) -> dict[str, Any]:
    return {
        "name": use.name,
        "waiting": use.waiting,
        "admitted": use.admitted,
        "flavors": [
            {
                "flavor": each.flavor,
                "used": text(each.used),
                "demand": text(each.demand),
                "fairShare": text(each.fair_share),
                "deserved": text(each.deserved),
                "limit": None if each.limit is None else text(each.limit),
            }
            for each in use.flavors
        ],
    }
