"""The page of time: what was chosen, and runs by queue or by node within its window; pure.

A window ends now, with the forecasts after it, or at a time of the past, of which the ledger alone is shown. It begins with the first data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from fairlead.api.texts import natural
from fairlead.kube import timestamps
from fairlead.kube.timestamps import SECOND_US
from fairlead.ui.model.facts import Facts, Past
from fairlead.ui.model.runs import Run, ledger_runs, runs
from fairlead.ui.model.scope import EVERYTHING, Scope

By = Literal["queue", "node"]
BYS: tuple[By, ...] = get_args(By)
WINDOWS: Mapping[str, float] = {"1h": 3600.0, "6h": 21_600.0, "24h": 86_400.0, "7d": 604_800.0}
ZOOMS: Mapping[str, float] = {"10m": 600.0, **WINDOWS}
USUAL = "6h"
GROUPS_MAX = 40  # of a page
LEAST_S = 300.0  # of a picture, however young its data are


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was chosen. `until`: when the window ends, unix seconds; None: now. `only`: the one queue or node that is shown; "" for all."""

    by: By = "queue"
    window: str = USUAL
    until: float | None = None
    only: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Choice:
        """The choice in a URL's query. Raises ValueError that names the field, the value and what may stand there."""
        by, window, page = query.get("by") or "queue", query.get("window") or USUAL, query.get("page") or "1"
        if by not in BYS:
            raise ValueError(f"by: {by[:40]!r}: there is {', '.join(BYS)}")
        if window not in ZOOMS:
            raise ValueError(f"window: {window[:40]!r}: there is {', '.join(ZOOMS)}")
        until = timestamps.parsed(query.get("until"))
        if query.get("until") and (until is None or until < 0):
            raise ValueError(f"until: {query['until'][:40]!r}: a time such as 2026-11-25T20:30:00Z")
        if not (page.isascii() and page.isdigit() and len(page) < 9 and int(page) > 0):
            raise ValueError(f"page: {page[:20]!r}: a number from 1 up")
        only = (query.get("only") or "").strip()
        return cls(by=next(each for each in BYS if each == by), window=window, until=until, only=only, page=int(page))

    def query(self, **changed: Any) -> str:
        """The choice as a URL's query, "" where everything is as usual."""
        made = replace(self, **changed)
        until = "" if made.until is None else timestamps.seconds(made.until)
        fields = {"by": made.by, "window": made.window, "until": until, "only": made.only, "page": made.page}
        kept = {name: value for name, value in fields.items() if value not in {"", 1, "queue", USUAL}}
        return f"?{urlencode(kept)}" if kept else ""

    @property
    def lasts_s(self) -> float:
        return ZOOMS[self.window]

    def past(self, now: float) -> Choice:
        """The same, with an end that is now or later as none."""
        return replace(self, until=None) if self.until is not None and self.until >= now else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A queue or a node. `runs`: what runs, then what waits, in line, then what ran, the longest first."""

    name: str
    runs: tuple[Run, ...]

    def of(self, state: str) -> int:
        return sum(run.state == state for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeChart:
    """`since`, `now`, `until`: unix seconds; `end`: of the past that is shown, now or before. `groups` of the page; `total` of all. `gaps`: when
    nothing was seen. `begins`: the ledger, within the chosen window; `older`: it has more before. `missing`: what is not known of the past.
    """

    choice: Choice
    since: float
    now: float
    end: float
    until: float
    groups: tuple[Group, ...]
    total: int
    pages: int
    gaps: tuple[tuple[float, float], ...] = ()
    begins: float | None = None
    older: bool = False
    missing: str = ""

    @property
    def count(self) -> int:
        return sum(len(group.runs) for group in self.groups)

    @property
    def earlier(self) -> Choice | None:
        """Half a window back; None where the ledger has nothing of that."""
        return self._ending(self.end - self.choice.lasts_s / 2) if self.older else None

    @property
    def later(self) -> Choice | None:
        return None if self.choice.until is None else self._ending(self.end + self.choice.lasts_s / 2)

    @property
    def closer(self) -> Choice | None:
        """The next shorter window around the middle of this one; up to now where this one is."""
        return self._zoomed(-1)

    @property
    def farther(self) -> Choice | None:
        return self._zoomed(1)

    def around(self, at: float) -> Choice | None:
        """The next shorter window with that time in its middle."""
        return self._zoomed(-1, at)

    def _ending(self, until: float, window: str = "") -> Choice:
        return replace(self.choice, until=until, window=window or self.choice.window, page=1).past(self.now)

    def _zoomed(self, by: int, at: float | None = None) -> Choice | None:
        every = list(ZOOMS)
        place = every.index(self.choice.window) + by
        if not 0 <= place < len(every):
            return None
        middle = self.end - self.choice.lasts_s / 2 if at is None else at
        until = self.now if at is None and self.choice.until is None else middle + ZOOMS[every[place]] / 2
        return self._ending(until, every[place])


def time_chart(facts: Facts, past: Past, choice: Choice, scope: Scope = EVERYTHING) -> TimeChart:
    """A page beyond the last is the last. The future that is shown is as long as forecasts need, at most as long as the past."""
    now = facts.at
    choice = choice.past(now)
    end = now if choice.until is None else choice.until
    asked = end - choice.lasts_s
    by_node = choice.by == "node"
    found = (
        runs(facts, past, since=asked, scope=scope, by_node=by_node)
        if choice.until is None
        else ledger_runs(past, since=asked, scope=scope, by_node=by_node)
    )
    groups = _grouped(found, choice)
    known = [] if past.known_us is None else [past.known_us[0] / SECOND_US]
    since = max(asked, min(min([*known, *(run.start for run in found)], default=asked), end - LEAST_S))
    pages = max(1, -(-len(groups) // GROUPS_MAX))
    choice = replace(choice, page=min(choice.page, pages))
    at = (choice.page - 1) * GROUPS_MAX
    return TimeChart(
        choice=choice,
        since=since,
        now=now,
        end=end,
        until=end if choice.until is not None else _until(groups, now, now - since),
        groups=tuple(groups[at : at + GROUPS_MAX]),
        total=len(groups),
        pages=pages,
        gaps=tuple(
            (max(since, gap.start_us / SECOND_US), min(end, gap.end_us / SECOND_US))
            for gap in past.gaps
            if gap.end_us / SECOND_US > since and gap.start_us / SECOND_US < end
        ),
        begins=past.begins(asked),
        older=any(begin < asked for begin in known),
        missing=past.missing,
    )


def as_json(chart: TimeChart) -> dict[str, Any]:
    """All runs of the page, those too that the picture folds."""
    return {
        "asOf": timestamps.seconds(chart.now),
        "window": {"from": timestamps.seconds(chart.since), "to": timestamps.seconds(chart.until)},
        "by": chart.choice.by,
        "page": chart.choice.page,
        "pages": chart.pages,
        "missing": chart.missing,
        "groups": [{"name": group.name, "runs": [_run(run) for run in group.runs]} for group in chart.groups],
    }


def _run(run: Run) -> dict[str, Any]:
    waits = run.state == "waits"
    return {
        "gang": run.gang if run.is_gang else "",
        "claim": "" if run.is_gang else run.gang,
        "queue": run.queue,
        "state": run.state,
        "from": timestamps.seconds(run.start),
        "to": None if waits or run.end is None else timestamps.seconds(run.end),
        "devices": run.devices,
        "nodes": list(run.nodes),
        "ended": run.ended,
        "lost": run.lost,
        "position": run.position,
        "p50": timestamps.seconds(run.end) if waits and run.end is not None else None,
        "p90": None if run.p90 is None else timestamps.seconds(run.p90),
        "never": run.never,
    }


def _grouped(found: Iterable[Run], choice: Choice) -> list[Group]:
    by_name: dict[str, list[Run]] = {}
    for run in found:
        name = run.queue if choice.by == "queue" else "".join(run.nodes[:1])
        if not choice.only or name == choice.only:
            by_name.setdefault(name, []).append(run)
    return [Group(name=name, runs=tuple(sorted(by_name[name], key=_order))) for name in sorted(by_name, key=natural)]


def _order(run: Run) -> tuple[int, float, str]:
    if run.state == "waits":
        return 1, run.position or sys.maxsize, run.gang
    lasts = (run.end or run.start) - run.start
    return (0 if run.state == "runs" else 2), -lasts * (run.devices or 1), run.gang


def _until(groups: Iterable[Group], now: float, past_s: float) -> float:
    """Now and a twentieth of the past where nothing is forecast."""
    ends = [run.p90 or run.end or now for group in groups for run in group.runs if run.state == "waits"]
    ahead = max(ends, default=now) - now
    return now + (min(past_s, max(ahead * 1.05, past_s / 6)) if ahead > 0 else past_s / 20)
