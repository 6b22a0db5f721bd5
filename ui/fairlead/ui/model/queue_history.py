"""What a queue used and what was requested of it over time; pure.

The past is the ledger's, in the measure of each flavor: a queue's use has that of the queues below it, as in its status. Requested is what
is used and what waited: a gang that was admitted since waited for what it then held; what waits now is taken from the queue's status, and
divided among its waiting gangs by their pods. Deserved and limit are those of now: the ledger keeps no quotas. Means over equal parts of
the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.history.ledger.entries import Span, Wait
from fairlead.kube import quantity, timestamps
from fairlead.kube.resources import Raw
from fairlead.kube.timestamps import SECOND_US
from fairlead.ui.model.facts import Facts, Past
from fairlead.ui.model.queues import Line, Share, line
from fairlead.ui.model.runs import waiting
from fairlead.ui.model.time_chart import WINDOWS

POINTS = 120
USUAL_WINDOW = "24h"
SPARK_POINTS = 48
DAY_S = WINDOWS["24h"]
LATE_S = 120.0  # within which of its admission a gang's claims are allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One flavor. `used` and `requested`: means of `POINTS` parts of the window, in order of time."""

    flavor: str
    share: Share
    used: tuple[float, ...]
    requested: tuple[float, ...]
    deserved: float
    limit: float | None

    @property
    def most(self) -> float:
        return max((*self.used, *self.requested, self.deserved), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHistory:
    """`known_from`: unix seconds from which on the ledger knows; None: it knows nothing."""

    line: Line
    since: float
    until: float
    series: tuple[Series, ...]
    known_from: float | None
    missing: str = ""


def window_of(query: Mapping[str, str]) -> str:
    """The window in a URL's query. Raises ValueError that names the field, the value and what may stand there."""
    window = query.get("window") or USUAL_WINDOW
    if window not in WINDOWS:
        raise ValueError(f"window: {window[:40]!r}: there is {', '.join(WINDOWS)}")
    return window


def queue_history(facts: Facts, past: Past, raw: Raw, *, lasts_s: float) -> QueueHistory:
    since, until = facts.at - lasts_s, facts.at
    seen = line(raw)
    names = _below(facts.queues, seen.name)
    spans = [each for each in past.spans if each.queue in names]
    bins = _Bins(since, until)
    used, requested = dict[str, list[float]](), dict[str, list[float]]()
    for span in spans:
        begin, end = span.start_us / SECOND_US, until if span.goes_on else span.end_us / SECOND_US
        for held in (used, requested):
            bins.add(held.setdefault(span.flavor, bins.empty()), begin, end, float(span.amount))
    for flavor, amount, begin, end in (*_waited(past, spans, names), *_waits(facts, spans, raw, names)):
        bins.add(requested.setdefault(flavor, bins.empty()), begin, end, amount)
    begins = past.begins(since)
    shares = {share.flavor: share for share in seen.shares}
    # Of what was held and is not in the ledger, such as cpu, nothing is known: no picture shows that as nothing used.
    unknown = {
        share.flavor
        for share in seen.shares
        if share.flavor not in used and not past.missing and (quantity.amount(share.used) or share.past_usage)
    }
    flavors = sorted((shares.keys() | used.keys() | requested.keys()) - {"", *unknown})
    return QueueHistory(
        line=seen,
        since=since,
        until=until,
        series=tuple(
            Series(
                flavor=flavor,
                share=(share := shares.get(flavor, Share(flavor=flavor))),
                used=tuple(used.get(flavor, bins.empty())),
                requested=tuple(requested.get(flavor, bins.empty())),
                deserved=quantity.amount(share.deserved),
                limit=None if share.limit is None else quantity.amount(share.limit),
            )
            for flavor in flavors
        ),
        known_from=None if past.known_us is None else max(since, past.known_us[0] / SECOND_US),
        missing=past.missing or ("" if begins is None else f"history begins {timestamps.seconds(begins)}"),
    )


def as_json(found: QueueHistory) -> dict[str, Any]:
    return {
        "queue": found.line.name,
        "window": {"from": timestamps.seconds(found.since), "to": timestamps.seconds(found.until)},
        "knownFrom": None if found.known_from is None else timestamps.seconds(found.known_from),
        "missing": found.missing,
        "flavors": [
            {
                "flavor": each.flavor,
                "deserved": each.deserved,
                "limit": each.limit,
                "used": [round(value, 4) for value in each.used],
                "requested": [round(value, 4) for value in each.requested],
            }
            for each in found.series
        ],
    }


class _Bins:
    """Adds amounts over time to means of equal parts of a window."""

    def __init__(self, since: float, until: float, points: int = POINTS) -> None:
        self._since, self._points, self._wide = since, points, (until - since) / points

    def empty(self) -> list[float]:
        return [0.0] * self._points

    def add(self, to: list[float], begin: float, end: float, amount: float) -> None:
        first = max(0.0, (begin - self._since) / self._wide)
        last = min(float(self._points), (end - self._since) / self._wide)
        place = int(first)
        while first < last:
            following = min(last, place + 1.0)
            to[place] += amount * (following - first)
            first, place = following, place + 1


def _below(queues: Iterable[Raw], name: str) -> frozenset[str]:
    """The queue and those below it."""
    children: dict[str, list[str]] = {}
    for raw in queues:
        parent = (raw.get("spec") or {}).get("parent")
        if parent:
            children.setdefault(str(parent), []).append(str(raw["metadata"]["name"]))
    found, todo = {name}, [name]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return frozenset(found)


def _waited(past: Past, spans: Iterable[Span], names: frozenset[str]) -> Iterable[tuple[str, float, float, float]]:
    """Flavor, amount, and from when to when: of gangs that were admitted. One that was evicted keeps its age: it waits again from the end of
    its earlier run on, and what it held until then is in what was used. What a span holds was asked for by the admission nearest to it alone:
    one that was undone at once is followed by another.
    """
    begun = _by_gang(spans)
    admitted: dict[tuple[str, str], list[Wait]] = {}
    for wait in past.waits:
        if wait.queue in names:
            admitted.setdefault((wait.namespace, wait.gang), []).append(wait)
    for gang, waits in admitted.items():
        own = begun.get(gang, ())
        for span in own:
            wait = min(waits, key=lambda each: (abs(span.allocated_us - each.admitted_us), each.admitted_us))
            if abs(span.allocated_us - wait.admitted_us) <= LATE_S * SECOND_US:
                ended = (each.end_us for each in own if each.end_us <= wait.admitted_us and not each.goes_on)
                since_us = max((wait.queued_us, *ended))
                yield span.flavor, float(span.amount), since_us / SECOND_US, wait.admitted_us / SECOND_US


def _by_gang(spans: Iterable[Span]) -> dict[tuple[str, str], list[Span]]:
    found: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        found.setdefault((span.namespace, span.gang), []).append(span)
    return found


def _waits(
    facts: Facts, spans: Iterable[Span], raw: Raw, names: frozenset[str]
) -> Iterable[tuple[str, float, float, float]]:
    """The same of gangs that wait now."""
    sizes: Mapping[str, int] = {
        f"{gang['metadata'].get('namespace', '')}/{gang['metadata']['name']}": int(
            (gang.get("spec") or {}).get("size") or 1
        )
        for gang in facts.gangs
    }
    own = [run for run in waiting(facts.gangs, at=facts.at) if run.queue in names]
    pods = sum(sizes[run.gang] for run in own)
    held = {
        f"{namespace}/{name}": max(span.end_us for span in of_gang) / SECOND_US
        for (namespace, name), of_gang in _by_gang(spans).items()
    }
    for use in (raw.get("status") or {}).get("usage") or ():
        left = quantity.amount(str(use.get("demand", 0))) - quantity.amount(str(use.get("allocated", 0)))
        for run in own if left > 0 else ():
            since = max(run.start, held.get(run.gang, 0.0))
            yield str(use["flavor"]), left * sizes[run.gang] / pods, since, facts.at


def day_of_use(queues: Iterable[Raw], past: Past) -> Mapping[tuple[str, str], tuple[float, ...]]:
    """What each queue and those below it used of each flavor in the window of the past: means of `SPARK_POINTS` equal parts, in order of time.

    Kept with the past: one answer of the ledger serves many pages. {} where the ledger knows nothing.
    """
    if past.window_us is None:
        return {}
    parents = {raw["metadata"]["name"]: (raw.get("spec") or {}).get("parent") for raw in queues}
    key = ("day", frozenset(parents.items()))
    found: Mapping[tuple[str, str], tuple[float, ...]] | None = past.made.get(key)
    if found is None:
        found = past.made[key] = _day_of_use(parents, past, *past.window_us)
    return found


def _day_of_use(
    parents: Mapping[str, str | None], past: Past, since_us: int, until_us: int
) -> Mapping[tuple[str, str], tuple[float, ...]]:
    bins = _Bins(since_us / SECOND_US, until_us / SECOND_US, SPARK_POINTS)
    own: dict[tuple[str, str], list[float]] = {}
    for span in past.spans:
        used = own.setdefault((span.queue, span.flavor), bins.empty())
        bins.add(used, span.start_us / SECOND_US, span.end_us / SECOND_US, float(span.amount))
    sums: dict[tuple[str, str], list[float]] = {}
    for (queue, flavor), used in own.items():
        above, seen = queue, set[str]()
        while above and above not in seen:
            seen.add(above)
            total = sums.setdefault((above, flavor), bins.empty())
            total[:] = [a + b for a, b in zip(total, used, strict=True)]
            above = parents.get(above) or ""
    return {key: tuple(used) for key, used in sums.items()}
