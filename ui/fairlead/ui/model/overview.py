"""The overview: what the GPUs do, what needs attention, which gangs start next; pure.

GPUs are counted as on the map and by `fairlead top`: one that is held in part is in use, a free one may be fragmented or kept for a gang,
and one that is drained, cordoned or broken is unavailable unless a claim holds it. Busy is the mean load of the devices in use of which
their driver wrote lately; a share of a GPU has the load of the GPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, get_args

from fairlead.engine.types.reasons import Code
from fairlead.kube.containment import computed
from fairlead.kube.resources import Raw
from fairlead.ui.model.cluster import ClusterView, NodeView, State
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.runs import Run, waiting

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """`gpus` None: the viewer may not see devices. `longest`: of the gangs that wait, the one that waits longest. `attention`: at most
    `OF_KIND_MAX` of a kind, and how many there are in `found`.
    """

    gpus: Gpus | None
    waiting: int
    longest: Run | None
    attention: tuple[Attention, ...]
    found: Mapping[Kind, int]
    starts: tuple[Run, ...]


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
            longest=min(waits, key=lambda run: (run.start, run.gang), default=None),
            attention=tuple(_first_of_each_kind(every)),
            found={kind: found[kind] for kind in KINDS if found[kind]},
            starts=tuple(sorted((run for run in waits if run.end is not None), key=_start)[:STARTS]),
        )


def _start(run: Run) -> tuple[float, int, str]:
    return run.end or 0.0, run.position or sys.maxsize, run.gang


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
