"""How the cluster's devices and nodes fall away for what a gang asks: filter by filter, counted once per kind of ask.

Exists apart from the words because counting looks at every node and device, and is kept for the decision: many shapes differ in
counts only. Changes nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from fairlead.engine.types.reasons import Holder, Rejection, RequestShortage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.node_info import CandidateNode, NodeSnapshot
    from fairlead.engine.placement.shapes import PlacementUnit, UnitShape

NOBODY: Mapping[Device, tuple[str, str]] = MappingProxyType({})
_ORDER = {why: place for place, why in enumerate(Rejection)}


class RequestCounts:
    """How the cluster's devices fall away for one ask of one shape."""

    __slots__ = ("best", "detail", "devices", "free", "holders", "incomplete", "nodes", "removed", "shown")

    def __init__(self) -> None:
        self.devices = 0
        self.free = 0
        self.best = 0  # most free on one node
        self.nodes = 0  # nodes with at least one free
        self.removed: dict[Rejection, int] = {}
        self.holders: dict[str, int] = {}  # claim UID, or gang id for this decision's: devices
        self.detail = ""
        self.incomplete = False
        self.shown: tuple[Holder, ...] | None = None  # the largest holders, once asked for


class ShortageCounter:
    """Of one decision, against the ledger as it is now. `taken_by` and `held_for`: (gang, queue) by device."""

    def __init__(
        self,
        sites: NodeSnapshot,
        ledger: Ledger,
        taken_by: Mapping[Device, tuple[str, str]],
        held_for: Mapping[Device, tuple[str, str]],
    ) -> None:
        self._sites = sites
        self._ledger = ledger
        self._taken_by = taken_by
        self._held_for = held_for
        self._census: dict[object, RequestCounts] = {}
        self._refusals: dict[object, tuple[dict[str, list[str]], set[CandidateNode]]] = {}

    def nodes(self, shape: UnitShape) -> tuple[dict[str, list[str]], set[CandidateNode]]:
        """Nodes refused for what is not a device, by need; and the nodes that are left."""
        found = self._refusals.get(shape.needs)
        if found is not None:
            return found
        refused: dict[str, list[str]] = {}
        willing: set[CandidateNode] = set()
        for site in self._sites.all:
            why = next((why for needs in shape.needs if (why := site.node.refuses(needs)) is not None), None)
            example = site.node.name
            if why is None:
                lacking = next(
                    (lack for needs in shape.needs if (lack := self._ledger.node_lacks(site.node, needs)) is not None),
                    None,
                )
                if lacking is not None:
                    why, _, rest = lacking.partition(":")
                    example += f":{rest}" if rest else ""
            if why is None:
                willing.add(site)
            else:
                refused.setdefault(why, []).append(example)
        self._refusals[shape.needs] = (refused, willing)
        return refused, willing

    def shortages(
        self, unit: PlacementUnit, willing: set[CandidateNode]
    ) -> tuple[tuple[RequestShortage, ...], RequestCounts | None]:
        """One entry per alternative of each request, and the census of the request that is shortest of devices."""
        shortages: list[RequestShortage] = []
        worst: RequestCounts | None = None
        least = 0.0
        for claim, asked in zip(unit.shape.claims, unit.claims, strict=True):
            for asks in claim.alternatives:
                for ask in asks:
                    census = self._count(unit.shape, ask, willing)
                    count = max(ask.count, 1)
                    shortages.append(
                        RequestShortage(
                            claim=str(asked),
                            request=ask.name,
                            wanted=count,
                            per_node_best=census.best,
                            devices=census.devices,
                            removed=tuple(
                                (why, number)
                                for why, number in sorted(census.removed.items(), key=lambda item: _ORDER[item[0]])
                                if number
                            ),
                            nodes=census.nodes,
                            detail=census.detail,
                        )
                    )
                    if worst is None or census.best / count < least:
                        worst, least = census, census.best / count
        return tuple(shortages), worst

    def _count(self, shape: UnitShape, ask: CompiledRequest, willing: set[CandidateNode]) -> RequestCounts:
        key = (shape.needs, ask.filter, ask.admin, ask.all)
        census = self._census.get(key)
        if census is None:
            census = self._census[key] = RequestCounts()
            seen: set[Device] | None = set() if self._sites.roaming else None
            for site in self._sites.all:
                self._count_on(census, site, ask, reachable=site in willing, seen=seen)
        return census

    def _count_on(
        self,
        census: RequestCounts,
        site: CandidateNode,
        ask: CompiledRequest,
        *,
        reachable: bool,
        seen: set[Device] | None,
    ) -> None:
        found = self._sites.candidates(site, ask)
        census.devices += len(site.devices.devices) + found.removed.get(Rejection.POOL, 0)
        for why, number in found.removed.items():
            census.removed[why] = census.removed.get(why, 0) + number
        if found.removed.get(Rejection.POOL):
            census.incomplete = True
        if not census.detail:
            census.detail = found.errors[0][1] if found.errors else found.tainted[0][1] if found.tainted else ""
            if ask.all and found.all_problem is not None:
                census.detail = found.all_problem
        here = 0
        in_use = 0  # the usual answer, counted at once
        plain, promised, free = found.plain and not ask.admin, self._held_for, self._ledger.free
        for device in found.devices:
            if seen is not None:
                if device in seen:
                    census.devices -= 1
                    continue
                seen.add(device)
            if plain and device not in promised:
                lost = None if free(device) else Rejection.IN_USE
            else:
                lost = self._why_not(ask, device, found.consumption.get(device, ()))
            if lost is None and not reachable:
                lost = Rejection.NODE
            if lost is None:
                here += 1
                continue
            if lost is Rejection.IN_USE:
                in_use += 1
            else:
                census.removed[lost] = census.removed.get(lost, 0) + 1
            if (lost is Rejection.IN_USE or lost is Rejection.SHARED_FULL) and device.use is not None:
                for uid in device.use.claims:
                    census.holders[uid] = census.holders.get(uid, 0) + 1
            elif device in self._taken_by or device in self._held_for:
                gang = (self._taken_by.get(device) or self._held_for[device])[0]
                census.holders[gang] = census.holders.get(gang, 0) + 1
        if in_use:
            census.removed[Rejection.IN_USE] = census.removed.get(Rejection.IN_USE, 0) + in_use
        census.free += here
        census.nodes += bool(here)
        census.best = max(census.best, here)

    def _why_not(
        self, ask: CompiledRequest, device: Device, consumption: tuple[tuple[str, object], ...]
    ) -> Rejection | None:
        ledger = self._ledger
        if ask.admin:
            return None
        if not ledger.free(device):
            return Rejection.HELD if device in self._held_for else Rejection.IN_USE
        if device.draws and not ledger.draws_fit(device):
            return Rejection.COUNTERS
        if device.shared and not ledger.room(device, consumption):  # type: ignore[arg-type]
            return Rejection.SHARED_FULL
        return None
