"""Gangs for which nodes are asked for: since when, what came of it, and when nodes are expected, from earlier scale-ups.

Since when is read once from the Gang object's condition, so that a new leader does not begin anew. A scale-up counts for a flavor when
a gang is admitted for which nodes were asked for and the flavor has more devices than it had then; the latest `SAMPLES_MAX` are kept in
the Flavor's status. Without a flavor that scales nothing is remembered and every call returns at once.
Example: earlier scale-ups took 240, 260 and 900 s; asked since 12:00:00, nodes are expected at 12:04:20.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import NodeDemand, Plan
from fairlead.kube import timestamps

CONDITION = "AwaitingNodes"
SAMPLES_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesAwaited:
    """What the gang's status says of its demand. Unix seconds."""

    demand: NodeDemand
    expected: float | None = None
    samples: int = 0  # earlier scale-ups of the flavor
    median_s: float = 0.0
    note: str = ""  # what the cluster answered

    @property
    def text(self) -> str:
        demand = self.demand
        if demand.state != "Asked":
            return demand.message
        if self.expected is not None:
            when = f"nodes are expected by {timestamps.seconds(self.expected)}: the median of {self._scale_ups} is {self.median_s:.0f} s"
        elif self.samples:
            when = f"nodes take longer than usual: the median of {self._scale_ups} is {self.median_s:.0f} s"
        else:
            when = f"no scale-up of flavor {demand.flavor} is known yet, so it is not known when nodes come"
        return f"{when}; {self.note}" if self.note else when

    @property
    def _scale_ups(self) -> str:
        return f"{self.samples} scale-up{'' if self.samples == 1 else 's'} of flavor {self.demand.flavor}"

    def status(self) -> dict[str, Any]:
        """`status.nodesAwaited` of the Gang."""
        demand = self.demand
        found = {
            "state": demand.state,
            "mode": demand.mode,
            "flavor": demand.flavor,
            "since": None if demand.since is None else timestamps.seconds(demand.since),
            "expected": None if self.expected is None else timestamps.seconds(self.expected),
            "evictsFrom": None if demand.evicts_from is None else timestamps.seconds(demand.evicts_from),
            "message": self.text[:1024],
        }
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Asked:
    since: float
    devices: int  # that the flavor had then


class AwaitedNodes:
    """Of one term. `recorded`: since when the Gang object says that nodes are asked for; `remembered`: a Flavor's past scale-ups."""

    def __init__(
        self, recorded: Callable[[GangId], float | None], remembered: Callable[[str], Iterable[float]]
    ) -> None:
        self.demand: dict[GangId, NodeDemand] = {}
        self.notes: dict[GangId, str] = {}
        self.took: dict[str, tuple[float, ...]] = {}  # by flavor, seconds, the latest last
        self.on_scale_up: Callable[[str, float], None] | None = None
        self._recorded = recorded
        self._remembered = remembered
        self._asked: dict[GangId, _Asked] = {}
        self._seen: set[GangId] = set()
        self._lifted: dict[GangId, tuple[GangRequest, float, GangRequest]] = {}

    def lift(self, requests: Iterable[GangRequest], *, scales: bool) -> list[GangRequest]:
        """The requests with since when nodes are asked for. The same objects as long as nothing changes. `scales`: whether a flavor does."""
        if not scales:
            if self._seen:
                self._asked.clear()
                self._seen.clear()
                self._lifted.clear()
            return list(requests)
        return [self._with_since(request) for request in requests]

    def _with_since(self, request: GangRequest) -> GangRequest:
        gang_id = (request.namespace, request.name)
        if gang_id not in self._seen:
            self._seen.add(gang_id)
            since = self._recorded(gang_id)
            if since is not None:
                self._asked.setdefault(gang_id, _Asked(since, 0))
        asked = self._asked.get(gang_id)
        if asked is None:
            return request
        known = self._lifted.get(gang_id)
        if known is None or known[0] is not request or known[1] != asked.since:
            lifted = dataclasses.replace(request, nodes_asked_since=asked.since)
            known = self._lifted[gang_id] = (request, asked.since, lifted)
        return known[2]

    def decided(self, plan: Plan, pending: Container[GangId], now: float) -> set[GangId]:
        """The gangs whose demand changed. A gang that is `pending` and was no part of the decision keeps what it had."""
        if not plan.demand and not self.demand and not self._asked:
            return set()
        devices = {total.flavor: total.devices for total in plan.flavors}
        for admission in plan.admissions:
            self._note_start((admission.namespace, admission.name), devices, now)
        considered = {(each.namespace, each.name) for each in (*plan.waiting, *plan.admissions)}
        demand = {(each.namespace, each.name): each for each in plan.demand}
        demand |= {
            gang_id: each
            for gang_id, each in self.demand.items()
            if gang_id not in considered and gang_id in pending and gang_id not in demand
        }
        changed = {
            gang_id for gang_id in demand.keys() | self.demand.keys() if demand.get(gang_id) != self.demand.get(gang_id)
        }
        before, self._asked = self._asked, {}
        for gang_id, each in demand.items():
            if each.since is not None:
                had = before.get(gang_id)
                known = had is not None and had.devices and had.since == each.since
                self._asked[gang_id] = had if known and had else _Asked(each.since, devices.get(each.flavor, 0))
            if each.flavor not in self.took:
                self.took[each.flavor] = tuple(self._remembered(each.flavor))[-SAMPLES_MAX:]
        self._asked |= {
            gang_id: each for gang_id, each in before.items() if gang_id in pending and gang_id not in considered
        }
        self.demand = demand
        self.notes = {gang_id: note for gang_id, note in self.notes.items() if gang_id in demand}
        self._lifted = {gang_id: each for gang_id, each in self._lifted.items() if gang_id in self._asked}
        self._seen &= considered | self._asked.keys()
        return changed

    def _note_start(self, gang_id: GangId, devices: Mapping[str, int], now: float) -> None:
        asked, demand = self._asked.get(gang_id), self.demand.get(gang_id)
        if asked is None or demand is None or devices.get(demand.flavor, 0) <= asked.devices:
            return
        took_s = max(0.0, now - asked.since)
        self.took[demand.flavor] = (*self.took.get(demand.flavor, ()), round(took_s, 1))[-SAMPLES_MAX:]
        if self.on_scale_up is not None:
            self.on_scale_up(demand.flavor, took_s)

    def of(self, gang_id: GangId, now: float) -> NodesAwaited | None:
        demand = self.demand.get(gang_id)
        if demand is None:
            return None
        took = self.took.get(demand.flavor, ())
        usual = median(took) if took else 0.0
        expected = demand.since + usual if took and demand.since is not None and demand.state == "Asked" else None
        return NodesAwaited(
            demand=demand,
            expected=expected if expected is not None and expected > now else None,
            samples=len(took),
            median_s=usual,
            note=self.notes.get(gang_id, ""),
        )

    def note(self, gang_id: GangId, text: str) -> bool:
        """What the cluster answered; whether that is new. "": nothing to say."""
        if self.notes.get(gang_id, "") == text:
            return False
        if text:
            self.notes[gang_id] = text
        else:
            self.notes.pop(gang_id, None)
        return True


def recorded_since(gang_object: Mapping[str, Any] | None) -> float | None:
    """Unix seconds: since when the condition of a Gang object holds."""
    for each in ((gang_object or {}).get("status") or {}).get("conditions") or ():
        if each.get("type") == CONDITION and each.get("status") == "True":
            try:
                return timestamps.parse(each.get("lastTransitionTime") or "")
            except ValueError:
                return None
    return None
