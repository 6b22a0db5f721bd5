"""How many devices and nodes each rejection removes for a request, counted once per kind of request.

Counting reads every node and device, so its results are kept: for the decision, since many shapes differ in counts only or in
what their pods need besides devices, and what was found on each node for later decisions, until that node changes.
Changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from fairlead.cel.devices.managed import named_drivers
from fairlead.engine.allocator.requests import CompiledRequest
from fairlead.engine.explain.count_sums import ClusterCounts, KnownCounts, NodeCounts, RequestCounts
from fairlead.engine.explain.nodes import NodeRefusals, NodeRoom
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.placement.model import CandidateNode, NodeSnapshot
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
from fairlead.engine.types.reasons import Rejection, RequestShortage

NO_DEVICES: Mapping[Device, tuple[str, str]] = MappingProxyType({})
_ORDER = {why: place for place, why in enumerate(Rejection)}


class CountCaches:
    def __init__(self) -> None:
        self.known = KnownCounts()
        self.room = NodeRoom()


class Shortages(NamedTuple):
    """What one unit lacks: one entry per alternative of each request; of each request the alternative that comes nearest to a place; and the
    counts of that with the fewest devices for its count. A request for a part of a device, of which others may have another, is not the scarcest.
    """

    all: tuple[RequestShortage, ...]
    nearest: tuple[RequestShortage, ...]
    worst: RequestCounts | None
    scarcest: (
        RequestShortage | None
    )  # of requests for devices of several drivers that with the fewest free ones; None: all are of one

    @property
    def selector_failed(self) -> bool:
        """On devices without which the worst request, or an alternative, has too few."""
        if self.worst is not None and self.worst.removed.get(Rejection.SELECTOR_ERROR):
            return True
        short = (each for each in self.all if each.alternatives > 1 and each.per_node_best < each.wanted)
        return any(why is Rejection.SELECTOR_ERROR for each in short for why, _ in each.removed)


class ShortageCounter:
    """Counts what units lack in one decision, against the ledger as it is now. `taken_by` and `held_for`: (gang, queue) by device.

    Nodes with such devices are counted for this decision only: the gangs are another's in the next.
    """

    def __init__(
        self,
        caches: CountCaches,
        node_snapshot: NodeSnapshot,
        ledger: Ledger,
        taken_by: Mapping[Device, tuple[str, str]],
        held_for: Mapping[Device, tuple[str, str]],
    ) -> None:
        self._known, self._room = caches.known, caches.room
        self._special = sorted({device.node for device in (*taken_by, *held_for) if device.node})  # names of nodes
        self._node_snapshot = node_snapshot
        self._ledger = ledger
        self._taken_by = taken_by
        self._held_for = held_for
        self._counts: dict[object, RequestCounts] = {}
        self._on_nodes: dict[object, tuple[ClusterCounts, dict[CandidateNode, NodeCounts]]] = {}  # by kind of request
        self._refusals: dict[object, NodeRefusals] = {}  # by refusal class
        self._room.update(node_snapshot, ledger)

    def nodes(self, shape: UnitShape) -> NodeRefusals:
        """Which nodes refuse the pods, devices aside."""
        kind = self._room.refusal_class(shape.needs, self._node_snapshot, self._ledger)
        found = self._refusals.get(kind)
        if found is None:
            nodes = len(self._node_snapshot.all)
            found = self._known.of(("needs", shape.needs), nodes, lambda: NodeRefusals(shape.needs))
            found.update(self._node_snapshot, self._ledger)
            self._refusals[kind] = found
        return found

    def shortages(self, unit: PlacementUnit, refusals: NodeRefusals) -> Shortages:
        found: list[RequestShortage] = []
        nearest: list[RequestShortage] = []
        worst: RequestCounts | None = None
        scarcest: RequestShortage | None = None
        least = 0.0
        drivers = {
            named_drivers(request.filter.class_selectors)
            for claim in unit.shape.claims
            for alternatives in claim.alternatives
            for request in alternatives
        }
        for claim, claim_request in zip(unit.shape.claims, unit.claims, strict=True):
            for alternatives in claim.alternatives:
                of_request: list[tuple[RequestShortage, RequestCounts]] = []
                for request in alternatives:
                    counts = self._counts_for(request, refusals)
                    of = _class_of(request) if len(drivers) > 1 else ""
                    shortage = _shortage(str(claim_request), request, counts, len(alternatives), of)
                    of_request.append((shortage, counts))
                found += [shortage for shortage, _ in of_request]
                if not of_request:
                    continue
                closest, counts = max(of_request, key=lambda each: _nearness(each[0]))
                nearest.append(closest)
                whole = closest.of and not any(request.filter.capacity for request in alternatives)
                if whole and (scarcest is None or closest.free / closest.wanted < scarcest.free / scarcest.wanted):
                    scarcest = closest
                if worst is None or counts.best / closest.wanted < least:
                    worst, least = counts, counts.best / closest.wanted
        return Shortages(tuple(found), tuple(nearest), worst, scarcest)

    def _counts_for(self, request: CompiledRequest, refusals: NodeRefusals) -> RequestCounts:
        kind = (request.filter, request.admin, request.all)
        counts = self._counts.get((kind, refusals))
        if counts is None:
            if self._node_snapshot.has_network_attached:
                counts = self._count_all(request, refusals)
            else:
                counts = self._count_changed(kind, request, refusals)
            self._counts[kind, refusals] = counts
        return counts

    def _count_all(self, request: CompiledRequest, refusals: NodeRefusals) -> RequestCounts:
        """Where nodes share devices: each counts at the first node that reaches it."""
        counts = RequestCounts()
        seen: set[Device] = set()
        for node in self._node_snapshot.all:
            found = self._count_on(node, request, seen=seen)
            counts.add(node, found, refusals)
            counts.detail = counts.detail or found.detail
        return counts

    def _count_changed(self, kind: object, request: CompiledRequest, refusals: NodeRefusals) -> RequestCounts:
        known, special = self._on_nodes.get(kind) or self._count_nodes(kind, request)
        return known.total(special, refusals)

    def _count_nodes(
        self, kind: object, request: CompiledRequest
    ) -> tuple[ClusterCounts, dict[CandidateNode, NodeCounts]]:
        """The cluster's counts, as of now, and those of the nodes that count in this decision only."""
        snapshot = self._node_snapshot
        known = self._known.of(("devices", kind), len(snapshot.all), ClusterCounts)
        changed = snapshot.log.since(known.cursor)
        if changed is None:
            known = self._known.renew(("devices", kind), ClusterCounts())
            changed = snapshot.all
        known.cursor = snapshot.log.cursor
        special: dict[CandidateNode, NodeCounts] = {}
        for node in dict.fromkeys([*changed, *known.special]):
            exists = snapshot.by_name.get(node.name) is node
            count = exists and node.name not in self._special
            known.put(node, self._count_on(node, request, seen=None) if count else None)
        known.special = [snapshot.by_name[name] for name in self._special if name in snapshot.by_name]
        for node in known.special:
            known.put(node, None)
            special[node] = self._count_on(node, request, seen=None)
        self._on_nodes[kind] = (known, special)
        return known, special

    def _count_on(self, node: CandidateNode, request: CompiledRequest, *, seen: set[Device] | None) -> NodeCounts:
        found = self._node_snapshot.candidates(node, request)
        counts = NodeCounts()
        counts.devices = len(node.devices.devices) + found.removed.get(Rejection.POOL, 0)
        removed = counts.removed = dict(found.removed)
        counts.detail = found.errors[0][1] if found.errors else found.tainted[0][1] if found.tainted else ""
        if request.all and found.all_problem is not None:
            counts.detail = found.all_problem
        plain, held_for, free = found.plain and not request.admin, self._held_for, self._ledger.free
        for device in found.devices:
            if seen is not None:
                if device in seen:
                    counts.devices -= 1
                    continue
                seen.add(device)
            if plain and device not in held_for:
                rejection = None if free(device) else _taken(device)
            else:
                rejection = self._rejection(request, device, found.consumption.get(device, ()))
            if rejection is None:
                counts.free += 1
                continue
            removed[rejection] = removed.get(rejection, 0) + 1
            if (rejection is Rejection.IN_USE or rejection is Rejection.SHARED_FULL) and device.use is not None:
                for uid in device.use.claims:
                    counts.holders[uid] = counts.holders.get(uid, 0) + 1
            elif device in self._taken_by or device in self._held_for:
                gang = (self._taken_by.get(device) or self._held_for[device])[0]
                counts.holders[gang] = counts.holders.get(gang, 0) + 1
        return counts

    def _rejection(
        self, request: CompiledRequest, device: Device, consumption: tuple[tuple[str, object], ...]
    ) -> Rejection | None:
        ledger = self._ledger
        if request.admin:
            return None if ledger.exists(device) else Rejection.NOT_MADE
        if not ledger.free(device):
            return Rejection.HELD if device in self._held_for else _taken(device)
        if device.counter_consumption and not ledger.counters_fit(device):
            return Rejection.COUNTERS
        if device.shared and not ledger.capacity_fits(device, consumption):  # type: ignore[arg-type]
            return Rejection.SHARED_FULL
        return None


def _taken(device: Device) -> Rejection:
    """Why it is not free: by a claim, or by its node for one that is gone."""
    claimed = device.use is None or bool(device.use.claims)
    return Rejection.IN_USE if claimed else Rejection.RELEASING


def _class_of(request: CompiledRequest) -> str:
    drivers = " or ".join(named_drivers(request.filter.class_selectors))
    driver = f" (driver {drivers})" if drivers not in {"", request.class_name} else ""
    return f"DeviceClass {request.class_name}{driver}"


def _shortage(
    claim: str, request: CompiledRequest, counts: RequestCounts, alternatives: int, of: str
) -> RequestShortage:
    removed = sorted(counts.removed.items(), key=lambda item: _ORDER[item[0]])
    return RequestShortage(
        claim=claim,
        request=request.name,
        wanted=max(request.count, 1),
        per_node_best=counts.best,
        devices=counts.devices,
        removed=tuple((why, number) for why, number in removed if number),
        nodes=counts.nodes,
        detail=counts.detail,
        alternatives=alternatives,
        of=of,
    )


def _nearness(shortage: RequestShortage) -> tuple[float, int]:
    """By what part of it one node has, then by how many devices serve it once they are free; of equal ones the first counts."""
    return min(1.0, shortage.per_node_best / shortage.wanted), min(shortage.wanted, shortage.serving)
