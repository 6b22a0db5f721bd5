"""The tree of queues with what each uses, its fair share, what it deserves and how much is requested, now and over time; pure.

All figures of now are those of Queue status, which the controller writes; nothing is computed again. The past is the ledger's, in the
measure of each flavor: a queue's use has that of the queues below it, as in its status. Requested is what is used and what waited: a gang
that was admitted since waited for what it then held; what waits now is taken from the queue's status, and divided among its waiting gangs
by their pods. Deserved and limit are those of now: the ledger keeps no quotas. Means over equal parts of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fairlead.history.ledger.entries import Span, Wait
from fairlead.kube import quantity, timestamps
from fairlead.kube.containment import computed, described
from fairlead.kube.resources import Raw
from fairlead.kube.timestamps import SECOND_US
from fairlead.ui.model.facts import Facts, Past
from fairlead.ui.model.runs import waiting
from fairlead.ui.model.time_chart import WINDOWS

DEPTH_MAX = 32


@dataclass(frozen=True, kw_only=True)
class Share:
    """A queue in one flavor, in the flavor's measure, as the API writes amounts."""

    flavor: str
    deserved: str = "0"
    fair_share: str = "0"
    used: str = "0"
    demand: str = "0"  # used, and what waiting gangs request
    limit: str | None = None
    past_usage: float | None = None


@dataclass(frozen=True, kw_only=True)
class Line:
    """One queue in its place in the tree."""

    name: str
    depth: int
    parent: str | None = None
    running: int = 0
    waiting: int = 0
    shares: tuple[Share, ...] = ()
    problem: str = ""
    open_to_all: bool = False
    """No selector limits which namespaces may name it."""
    evictions: tuple[str, ...] = field(default=(), repr=False)
    schedule: tuple[str, ...] = ()
    """Which entries of its schedule are in force until when, and when that changes next; the quotas are those of now."""
    budget: str = ""
    """What it has spent of its budget, and when that renews."""
    wait_target: str = ""
    hold: str = ""
    """Which hold keeps its gangs from being admitted: its own, or that of a queue above."""


def tree(queues: Iterable[Raw]) -> list[Line]:
    """Parents before their children, siblings by name. A queue whose parent does not exist is listed at the root."""
    by_name = {raw["metadata"]["name"]: raw for raw in queues}
    children: dict[str | None, list[str]] = {}
    for name, raw in sorted(by_name.items()):
        parent = (raw.get("spec") or {}).get("parent")
        children.setdefault(parent if parent in by_name else None, []).append(name)
    lines: list[Line] = []
    seen: set[str] = set()

    def walk(parent: str | None, depth: int) -> None:
        for name in children.get(parent, ()):
            if name not in seen and depth <= DEPTH_MAX:
                seen.add(name)
                lines.append(line(by_name[name], depth=depth, leaf=name not in children))
                walk(name, depth + 1)

    walk(None, 0)
    lines += [line(by_name[name], depth=0) for name in sorted(by_name.keys() - seen)]  # in a cycle
    return lines


def line(raw: Raw, *, depth: int = 0, leaf: bool = True) -> Line:
    """The line of a queue that cannot be read: its name, and why."""

    def instead(error: Exception) -> Line:
        problem = f"it cannot be shown ({described(error)}); the others are"
        return Line(name=raw["metadata"]["name"], depth=depth, problem=problem)

    return computed(partial(_line, raw, depth=depth, leaf=leaf), instead)


def _line(raw: Raw, *, depth: int, leaf: bool) -> Line:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    return Line(
        name=raw["metadata"]["name"],
        depth=depth,
        parent=spec.get("parent"),
        running=int(status.get("running") or 0),
        waiting=int(status.get("waiting") or 0),
        shares=tuple(_shares(spec, status)),
        problem=_problem(status),
        open_to_all=leaf and spec.get("namespaceSelector") is None,
        evictions=tuple(status.get("evictions") or ()),
        schedule=tuple(_schedule(spec, status)),
        budget=_budget(spec, status),
        wait_target=str(spec.get("waitTarget") or ""),
        hold=_hold(status),
    )


def _hold(status: Mapping[str, Any]) -> str:
    """The hold in a sentence, as the controller says it."""
    conditions = status.get("conditions") or ()
    found = (each for each in conditions if each.get("type") == "OnHold" and each.get("status") == "True")
    return next((str(each.get("message") or "on hold") for each in found), "")


_EXHAUSTED = {
    "noBorrow": "; until then it gets no more than it deserves",
    "stop": "; until then none of its gangs starts",
}


def _budget(spec: Raw, status: Raw) -> str:
    budget, now = spec.get("budget"), status.get("budget") or {}
    if not budget:
        return ""
    if budget.get("flavor"):
        flavor = budget["flavor"]
        unit = f"{now['unit']} of flavor {flavor}" if now.get("unit") else f"hours of flavor {flavor}"
        whole = f"{now.get('hours') or budget.get('hours')} {unit} a {budget.get('per')}"
    else:
        whole = f"{now.get('gpuHours') or budget.get('gpuHours')} GPU-hours a {budget.get('per')}"
    renews = f"; renews at {now['renewsAt']}" if now.get("renewsAt") else ""
    if now.get("spent") is None:
        return f"{whole}; what is spent is not known, so nothing is stopped{renews}"
    then = _EXHAUSTED.get(budget.get("onExhausted") or "warn", "") if now.get("percent", 0) >= 100 else ""
    return f"{now['spent']} of {whole} spent ({now.get('percent')} %){renews}{then}"


def _schedule(spec: Raw, status: Raw) -> Iterable[str]:
    """None where nothing is known of it yet: the controller has not written it."""
    now = _scheduled(spec, status)
    if now is None:
        return
    for entry in now.get("inForce") or ():
        until = f"until {entry['until']}" if entry.get("until") else "all the time: it starts again before it ends"
        yield f"{entry['name']} is in force {until}"
    if not now.get("inForce"):
        change = f"; an entry comes into force at {now['nextChange']}" if now.get("nextChange") else ""
        yield f"no entry is in force{change}"
    elif now.get("nextChange") and not any(each.get("until") == now["nextChange"] for each in now["inForce"]):
        yield f"another comes into force at {now['nextChange']}"


def _scheduled(spec: Raw, status: Raw) -> Raw | None:
    """What the controller wrote of the schedule; None without one."""
    found: Raw | None = status.get("schedule")
    return found if spec.get("schedule") else None


def _shares(spec: Raw, status: Raw) -> Iterable[Share]:
    now = _scheduled(spec, status)
    quotas = {
        quota["flavor"]: quota
        for quota in (spec if now is None else {"flavors": now.get("quotas")}).get("flavors") or ()
    }
    usage = {use["flavor"]: use for use in status.get("usage") or ()}
    for flavor in sorted(quotas.keys() | usage.keys()):
        quota, use = quotas.get(flavor, {}), usage.get(flavor, {})
        yield Share(
            flavor=flavor,
            deserved=str(quota.get("deserved", 0)),
            fair_share=str(use.get("fairShare", 0)),
            used=str(use.get("allocated", 0)),
            demand=str(use.get("demand", 0)),
            limit=None if quota.get("limit") is None else str(quota["limit"]),
            past_usage=use.get("pastUsage"),
        )


def _problem(status: Raw) -> str:
    """What the controller found wrong with the queue itself (its Ready condition), or ""."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "not ready")
    return ""


POINTS = 120
USUAL_WINDOW = "24h"
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


DAY_S = WINDOWS["24h"]
SPARK_POINTS = 48


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
