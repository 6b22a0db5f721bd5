"""The overview: what the GPUs do, what needs attention, which gangs start next; pure.

GPUs are counted as on the map and by `fairlead top`: one that is held in part is in use, a free one may be fragmented or kept for a gang,
and one that is drained, cordoned or broken is unavailable unless a claim holds it. Busy is the mean load of the devices in use of which
their driver wrote lately; a share of a GPU has the load of the GPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from fairlead.engine.types.reasons import Code
from fairlead.history.prices import rounded
from fairlead.kube import timestamps
from fairlead.kube.containment import computed
from fairlead.kube.resources import Raw
from fairlead.ui.model import day as days
from fairlead.ui.model.cluster import ClusterView, NodeView, State
from fairlead.ui.model.day import Day
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.runs import Run, waiting
from fairlead.ui.model.scope import Scope

STARTS = 5
OF_KIND_MAX = 5
Kind = Literal["evicting", "broken", "never fits", "unknown queue", "idle too long", "drained"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # the most urgent first


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Something to look at. `gang` is namespace/name, or "" and `node` says where."""

    kind: Kind
    text: str
    gang: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """`busy_percent` None: no driver wrote of the load lately."""

    total: int
    counts: Mapping[State, int]
    busy_percent: int | None

    @property
    def in_use(self) -> int:
        return sum(self.counts[state] for state in ("held", "idle", "starting"))

    @property
    def free(self) -> int:
        return sum(self.counts[state] for state in ("free", "nominated", "fragmented"))

    @property
    def unavailable(self) -> int:
        return self.counts["drained"] + self.counts["broken"]


class Longest(NamedTuple):
    """Since when, in unix seconds, the gang waits that waits longest."""

    gang: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """`gpus` None: the viewer may not see devices. `attention`: at most `OF_KIND_MAX` of a kind; how many there are is in `found`."""

    gpus: Gpus | None
    waiting: int
    longest: Longest | None
    attention: tuple[Attention, ...]
    found: Mapping[Kind, int]
    starts: tuple[Run, ...]


def as_json(found: Overview, day: Day, scope: Scope, *, at: float) -> dict[str, Any]:
    """`day`: of the viewer, as `day_for` gives it."""
    gpus = found.gpus
    return {
        "asOf": timestamps.seconds(at),
        "gpus": None
        if gpus is None
        else {
            "total": gpus.total,
            "inUse": gpus.in_use,
            "free": gpus.free,
            "unavailable": gpus.unavailable,
            "states": dict(gpus.counts),
            "busyPercent": gpus.busy_percent,
        },
        "idleCostLastHour": {name: str(rounded(each)) for name, each in sorted(day.idle_cost_for(scope).items())},
        "waiting": found.waiting,
        "longestWait": None
        if found.longest is None
        else {"gang": found.longest.gang, "since": timestamps.seconds(found.longest.since)},
        "attention": [asdict(each) for each in found.attention],
        "attentionCounts": dict(found.found),
        "starts": [
            {
                "gang": run.gang,
                "queue": run.queue,
                "p50": timestamps.seconds(run.end),
                "p90": None if run.p90 is None else timestamps.seconds(run.p90),
            }
            for run in found.starts
            if run.end is not None
        ],
        "day": days.as_json(day),
    }


def day_for(day: Day, scope: Scope) -> Day:
    """What a viewer may see of the day: all devices, or what the idle ones of its namespaces cost."""
    return day if scope.cluster and scope.namespaces is None else Day(idle_cost=day.idle_cost, missing=days.NOT_ALL)


class _Gang(NamedTuple):
    raw: Raw
    wait: Run | None
    attention: Attention | None


@dataclass(kw_only=True)
class OverviewMemory:
    """What was found of each gang, so that only those that changed are looked at again; it changes no overview."""

    _gangs: dict[str, _Gang] = field(default_factory=dict)
    _view: ClusterView | None = None
    _of_view: tuple[Gpus, tuple[Attention, ...]] | None = None

    def of(self, facts: Facts, view: ClusterView | None) -> Overview:
        known, now = self._gangs, dict[str, _Gang]()
        for raw in facts.gangs:
            name = f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"
            before = known.get(name)
            now[name] = before if before is not None and before.raw is raw else _looked_at(raw, name, facts.at)
        self._gangs = now
        if view is not None and view is not self._view:
            self._view, self._of_view = view, (_gpus(view), tuple(_of_nodes(view.nodes)))
        gpus, of_nodes = self._of_view if view is not None and self._of_view is not None else (None, ())
        waits = [each.wait for each in now.values() if each.wait is not None]
        every = sorted(
            (*(each.attention for each in now.values() if each.attention is not None), *of_nodes),
            key=lambda each: (KINDS.index(each.kind), each.gang, each.node),
        )
        found = Counter(each.kind for each in every)
        return Overview(
            gpus=gpus,
            waiting=len(waits),
            longest=min(
                (Longest(run.gang, run.start) for run in waits), key=lambda each: (each.since, each.gang), default=None
            ),
            attention=tuple(_first_of_each_kind(every)),
            found={kind: found[kind] for kind in KINDS if found[kind]},
            starts=tuple(_starts(waits, facts.at)),
        )


def _starts(waits: Iterable[Run], at: float) -> list[Run]:
    """The next; a time that is over is now."""
    due = [
        replace(run, end=max(run.end, at), p90=None if run.p90 is None else max(run.p90, at))
        for run in waits
        if run.end is not None
    ]
    return sorted(due, key=lambda run: (run.end or at, run.position or sys.maxsize, run.gang))[:STARTS]


def _first_of_each_kind(every: Iterable[Attention]) -> Iterable[Attention]:
    seen: Counter[Kind] = Counter()
    for each in every:
        seen[each.kind] += 1
        if seen[each.kind] <= OF_KIND_MAX:
            yield each


def _looked_at(raw: Raw, name: str, at: float) -> _Gang:
    return _Gang(
        raw,
        next(waiting((raw,), at=at), None),
        computed(partial(_of_gang, raw, name), lambda _: None),  # the page of gangs says what cannot be read of it
    )


def _of_gang(raw: Raw, name: str) -> Attention | None:
    status = raw.get("status") or {}
    conditions = {
        each["type"]: str(each.get("message") or "")
        for each in status.get("conditions") or ()
        if each.get("status") == "True"
    }
    why = str((status.get("why") or {}).get("message") or status.get("message") or "")
    if "Evicting" in conditions:
        return Attention(kind="evicting", gang=name, text=conditions["Evicting"])
    if "Idle" in conditions:
        return Attention(kind="idle too long", gang=name, text=conditions["Idle"])
    if status.get("phase") != "Waiting":
        return None
    if status.get("reason") == Code.UNKNOWN_QUEUE:
        return Attention(kind="unknown queue", gang=name, text=why)
    never = (status.get("forecast") or {}).get("never") or status.get("reason") == Code.NEVER_FITS
    return Attention(kind="never fits", gang=name, text=why) if never else None


def _of_nodes(nodes: Iterable[NodeView]) -> Iterable[Attention]:
    """One entry of a node for each state in which its GPUs are not available to others, held or not."""
    for node in nodes:
        for kind in ("broken", "drained"):
            notes = [gpu.note for gpu in node.gpus if gpu.note and gpu.rest == kind]
            if notes:
                count = f"{len(notes)} of {len(node.gpus)} GPUs" if len(node.gpus) > 1 else "its GPU"
                yield Attention(kind=kind, node=node.name, text=f"{count}: {'; '.join(dict.fromkeys(notes))}")


def _gpus(view: ClusterView) -> Gpus:
    loads = [
        hold.utilization_percent
        for node in view.nodes
        for gpu in node.gpus
        for hold in (*gpu.holds[:1], *(hold for part in gpu.parts for hold in part.holds[:1]))
        if hold.utilization_percent is not None
    ]
    return Gpus(total=view.gpus, counts=view.counts, busy_percent=round(sum(loads) / len(loads)) if loads else None)
