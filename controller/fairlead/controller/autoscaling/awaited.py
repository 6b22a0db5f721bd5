"""Gangs for which nodes are asked for: since when, what came of it, and when nodes are expected, from earlier scale-ups.

Since when is read once from the Gang object's condition, so that a new leader does not begin anew. A scale-up counts for a flavor when
a gang is admitted for which nodes were asked for and the flavor has more devices than it had then; the latest `SAMPLES_MAX` are kept in
the Flavor's status. Without a flavor that scales nothing is remembered and every call returns at once.
Example: earlier scale-ups took 240, 260 and 900 s; asked since 12:00:00, nodes are expected at 12:04:20.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from statistics import median

from msgspec.structs import replace

from fairlead.controller.book.book import Book, GangState, NodesAsked
from fairlead.controller.book.shown import NodesAwaited
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan

SAMPLES_MAX = 16


class AwaitedNodes:
    """The nodes that gangs wait for, in one term. `recorded`: since when the Gang object says that nodes are asked for; `remembered`: a Flavor's past scale-ups.

    `on_scale_up` is told the flavor, and how many seconds one took.
    """

    def __init__(
        self,
        book: Book,
        recorded: Callable[[GangId], float | None],
        remembered: Callable[[str], Iterable[float]],
        on_scale_up: Callable[[str, float], None],
    ) -> None:
        self.took: dict[str, tuple[float, ...]] = {}  # by flavor, seconds, the latest last
        self._book = book
        self._demand = book.all(GangState.demand)
        self._asked = book.all(GangState.nodes_asked)
        self._recorded = recorded
        self._remembered = remembered
        self._on_scale_up = on_scale_up

    def lift(self, requests: Iterable[GangRequest], *, scales: bool) -> list[GangRequest]:
        """The requests with since when nodes are asked for. The same objects as long as nothing changes. `scales`: whether a flavor does."""
        if not scales:
            if self._book.all(GangState.nodes_read):
                self._book.keep(GangState.nodes_asked, ())
                self._book.keep(GangState.nodes_read, ())
                self._book.keep(GangState.nodes_request, ())
            return list(requests)
        return [self._with_since(request) for request in requests]

    def _with_since(self, request: GangRequest) -> GangRequest:
        gang_id = (request.namespace, request.name)
        state = self._book[gang_id]
        if not state.nodes_read:
            state.nodes_read = True
            since = self._recorded(gang_id)
            if since is not None and state.nodes_asked is None:
                state.nodes_asked = NodesAsked(since, 0)
        asked = state.nodes_asked
        if asked is None:
            return request
        known = state.nodes_request
        if known is None or known[0] is not request or known[1].nodes_asked_since != asked.since:
            lifted = replace(request, nodes_asked_since=asked.since)
            known = state.nodes_request = (request, lifted)
        return known[1]

    def decided(self, plan: Plan, pending: Container[GangId], now: float) -> set[GangId]:
        """The gangs whose demand changed. A gang that is `pending` and was no part of the decision keeps what it had."""
        if not plan.demand and not self._demand and not self._asked:
            return set()
        devices = {total.flavor: total.devices for total in plan.flavors}
        for admission in plan.admissions:
            self._note_start((admission.namespace, admission.name), devices, now)
        considered = {(each.namespace, each.name) for each in (*plan.waiting, *plan.admissions)}
        demand = {(each.namespace, each.name): each for each in plan.demand}
        demand |= {
            gang_id: each
            for gang_id, each in self._demand.items()
            if gang_id not in considered and gang_id in pending and gang_id not in demand
        }
        changed = {
            gang_id
            for gang_id in demand.keys() | self._demand.keys()
            if demand.get(gang_id) != self._demand.get(gang_id)
        }
        asked: dict[GangId, NodesAsked] = {}
        for gang_id, each in demand.items():
            if each.since is not None:
                had = self._asked.get(gang_id)
                known = had is not None and had.devices and had.since == each.since
                asked[gang_id] = had if known and had else NodesAsked(each.since, devices.get(each.flavor, 0))
            if each.flavor not in self.took:
                self.took[each.flavor] = tuple(self._remembered(each.flavor))[-SAMPLES_MAX:]
        asked |= {
            gang_id: each for gang_id, each in self._asked.items() if gang_id in pending and gang_id not in considered
        }
        self._book.replace(GangState.nodes_asked, asked)
        self._book.replace(GangState.demand, demand)
        self._book.keep(GangState.nodes_note, demand)
        self._book.keep(GangState.nodes_request, asked)
        self._book.keep(GangState.nodes_read, considered | asked.keys())
        return changed

    def _note_start(self, gang_id: GangId, devices: Mapping[str, int], now: float) -> None:
        asked, demand = self._asked.get(gang_id), self._demand.get(gang_id)
        if asked is None or demand is None or devices.get(demand.flavor, 0) <= asked.devices:
            return
        took_s = max(0.0, now - asked.since)
        self.took[demand.flavor] = (*self.took.get(demand.flavor, ()), round(took_s, 1))[-SAMPLES_MAX:]
        self._on_scale_up(demand.flavor, took_s)

    def of(self, gang_id: GangId, now: float) -> NodesAwaited | None:
        state = self._book[gang_id]
        demand = state.demand
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
            note=state.nodes_note or "",
        )


def note(state: GangState, text: str) -> bool:
    """What the cluster answered; whether that is new. "": nothing to say."""
    new = (state.nodes_note or "") != text
    state.nodes_note = text or None
    return new
