"""The tree of queues with what each uses, its fair share, what it deserves and how much is requested now; pure.

All figures are those of Queue status, which the controller writes; nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fairlead.kube.containment import computed, described
from fairlead.kube.resources import Raw

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
