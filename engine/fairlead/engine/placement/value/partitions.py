"""Where partitions (MIG devices, and GPUs that may be cut) cost the usual requests least: nodes, and placements on a node.

Brings together the mix, the nodes' counters and the value of what is left of a GPU (`cuts`). A request is scored where all of
its candidates on a node consume counters of one GPU each; elsewhere there is no score. Orders what is possible, never
decides what is. Alike GPUs share one value, and it is remembered which state costs what: placing looks at numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from fairlead.engine.allocator.requests import CompiledRequest, DeviceFilter
from fairlead.engine.inventory.counters import CounterConsumption, PoolCounters
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.inventory.pool import NodeDevices
from fairlead.engine.placement.model import CandidateNode, NodeSnapshot
from fairlead.engine.placement.shapes import UnitShape
from fairlead.engine.placement.value.cuts import MEMORY_MAX, Cut, CutValue, Kind, State, after

Parent = tuple[PoolCounters, str, list[int], CutValue]
"""A GPU: its pool, its counter set, the set's indexes in the pool's layout, and what it is worth."""
Options = dict[Kind, tuple[Cut, ...]]
"""The cuts that serve a request, by kind of GPU."""


OPTIONS_MAX = 512  # requests remembered per node
_NO_OPTIONS: Options = {}


class PartitionScore:
    def __init__(
        self, usual: list[tuple[CompiledRequest, int, float]], node_snapshot: NodeSnapshot, ledger: Ledger
    ) -> None:
        """`usual`: request, CPU, and its part of the mix."""
        self._node_snapshot = node_snapshot
        self._ledger = ledger
        self._usual: dict[DeviceFilter, tuple[CompiledRequest, float, float]] = {}
        for request, _, part in usual:
            known, devices, several = self._usual.get(request.filter, (request, 0.0, 0.0))
            amount = part * request.count
            self._usual[request.filter] = (known, devices + amount, several + (amount if request.count > 1 else 0.0))
        self._values: dict[object, CutValue] = {}
        self._cuts: dict[int, tuple[CounterConsumption, tuple[Kind, Cut] | None]] = {}
        self._by_devices: dict[tuple[int, ...], tuple[Sequence[CounterConsumption], Options]] = {}
        self._options: dict[CandidateNode, tuple[NodeDevices, dict[DeviceFilter, Options]]] = {}
        self._parents: dict[CandidateNode, tuple[NodeDevices, list[Parent]]] = {}
        self._states: dict[CandidateNode, tuple[int, list[tuple[CutValue, State]]]] = {}

    def forget_gone(self) -> None:
        """Nodes that went take memory, once they are many."""
        if len(self._parents) > 2 * len(self._node_snapshot.all):
            for memory in (self._options, self._parents, self._states):
                memory.clear()

    def cost(self, shape: UnitShape, node: CandidateNode) -> tuple[int, int] | None:
        """(cost, tie) of one unit of this shape there, low is better; None where there is no score.

        The tie: what its GPU keeps, then all that the node keeps, then its GPUs of which nothing is used; for several devices the
        latter first.
        """
        if len(shape.needs) != 1 or not shape.plain:
            return None
        request = shape.claims[0].alternatives[0][0]
        options = self._options_of(node, request)
        if not options:
            return None
        states = list(self._state(node))
        cost = left = 0
        for _ in range(request.count):
            best: tuple[tuple[int, int], int, State] | None = None
            for place, (value, state) in enumerate(states):
                if (value, state) in states[:place]:
                    continue
                for cut in options.get(value.kind, ()):
                    found = value.cost(state, cut)
                    if found is not None and (best is None or found < best[0]):
                        best = (found, place, after(state, cut))
            if best is None:
                return None
            (more, left), place, rest = best
            cost += more
            states[place] = (states[place][0], rest)
        whole = sum([value.whole(state) for value, state in states])
        keeps = sum([value.left(state) for value, state in states])
        whole, keeps = min(whole, 999), min(keeps, 999_999)
        node_keeps = whole * 1_000_000 + keeps if request.count > 1 else keeps * 1000 + whole
        return cost, left * 1_000_000_000 + node_keeps

    def ordered(
        self,
        node: CandidateNode,
        request: CompiledRequest,
        devices: Sequence[Device],
        among: Callable[[Sequence[Device]], Sequence[Device]],
    ) -> Sequence[Device]:
        """Those that cost least first. `among` orders equals, as far as the request may come; and all, where there is no score."""
        if request.admin or not self._options_of(node, request):
            return among(devices)
        values = {(parent[0], parent[1]): parent for parent in self._parents_of(node)}
        groups: dict[tuple[bool, tuple[int, int]], list[Device]] = {}
        for device in devices:
            pool = device.pool
            _, cut = self._cut(device) or (None, ())
            _, _, indexes, value = values[pool, pool.layout.counter_set_of(device.counter_consumption)]
            found = value.cost(self._free(pool, indexes), cut)
            groups.setdefault((found is None, found or (0, 0)), []).append(device)
        ordered: list[Device] = []
        for _, equal in sorted(groups.items(), key=itemgetter(0)):
            ordered += among(equal) if len(equal) > 1 and len(ordered) < request.count else equal
        return ordered

    # ------------------------------------------------------------------------------------------------------ one node

    def _state(self, node: CandidateNode) -> list[tuple[CutValue, State]]:
        known = self._states.get(node)
        if known is None or known[0] != node.changes:
            states = [(value, self._free(pool, indexes)) for pool, _, indexes, value in self._parents_of(node)]
            known = self._states[node] = (node.changes, states)
        return known[1]

    def _free(self, pool: PoolCounters, indexes: list[int]) -> State:
        totals, ledger = pool.layout.totals, self._ledger
        own = ledger.counters.get(pool)
        if own is None:
            return tuple([totals[at] - (0 if ledger.empty else pool.used[at]) for at in indexes])
        return tuple([totals[at] - (0 if ledger.empty else pool.used[at]) - own[at] for at in indexes])

    def _parents_of(self, node: CandidateNode) -> list[Parent]:
        known = self._parents.get(node)
        if known is None or known[0] is not node.devices:
            pools = dict.fromkeys([device.pool for device in node.devices.devices if device.counter_consumption])
            usual = [self._options_of(node, request) for request, _, _ in self._usual.values()]
            parents = [
                (pool, name, indexes, self._value(_kind(pool, indexes), usual))
                for pool in pools
                for name, indexes in pool.layout.sets.items()
            ]
            known = self._parents[node] = (node.devices, parents)
        return known[1]

    def _value(self, kind: Kind, usual: list[Options]) -> CutValue:
        """The value of GPUs of this kind on which the usual requests are served so."""
        cuts = tuple([options.get(kind, ()) for options in usual])
        key = (kind, cuts)
        value = self._values.get(key)
        if value is None:
            demand: dict[tuple[Cut, ...], float] = {}
            total = several = 0.0
            for served, (_, devices, of_several) in zip(cuts, self._usual.values(), strict=True):
                if served:
                    demand[served] = demand.get(served, 0.0) + devices
                    size = _size(served[0], kind[1])
                    total += devices * size
                    several += of_several * size
            groups: dict[str, list[int]] = {}
            for place, name in enumerate(kind[0]):
                groups.setdefault(name.rstrip("0123456789"), []).append(place)
            value = self._values[key] = CutValue(
                kind, tuple(demand), tuple(demand.values()), tuple(groups.values()), several / total if total else 0.0
            )
        return value

    def _options_of(self, node: CandidateNode, request: CompiledRequest) -> Options:
        known = self._options.get(node)
        if known is None or known[0] is not node.devices or len(known[1]) >= OPTIONS_MAX:
            known = self._options[node] = (node.devices, {})
        options = known[1].get(request.filter)
        if options is None:
            options = known[1][request.filter] = self._made(self._node_snapshot.candidates(node, request).devices)
        return options

    def _made(self, devices: Sequence[Device]) -> Options:
        """Alike nodes share what their devices consume, so most have been seen before."""
        consumptions = [device.counter_consumption for device in devices]
        if not consumptions or not all(consumptions):
            return _NO_OPTIONS
        key = tuple(map(id, consumptions))
        known = self._by_devices.get(key)
        if known is None:
            found: dict[Kind, dict[Cut, None]] = {}
            options: Options = _NO_OPTIONS
            cuts = [self._cut(device) for device in devices]
            if all(cuts):
                for kind, cut in filter(None, cuts):
                    found.setdefault(kind, {})[cut] = None
                options = {kind: tuple(sorted(each)) for kind, each in found.items()}
            if len(self._by_devices) >= MEMORY_MAX:
                self._by_devices.clear()
            known = self._by_devices[key] = (consumptions, options)  # they stay, so no other gets their identity
        return known[1]

    def _cut(self, device: Device) -> tuple[Kind, Cut] | None:
        """The kind of its GPU and what it consumes of it; None for one that consumes counters of several sets."""
        consumption = device.counter_consumption
        known = self._cuts.get(id(consumption))
        if known is None:
            if len(self._cuts) >= MEMORY_MAX:
                self._cuts.clear()
            known = self._cuts[id(consumption)] = (
                consumption,
                self._cut_anew(device),
            )  # it stays, as its identity is the key
        return known[1]

    def _cut_anew(self, device: Device) -> tuple[Kind, Cut] | None:
        layout, consumption = device.pool.layout, device.counter_consumption
        name = layout.counter_set_of(consumption)
        places = {at: place for place, at in enumerate(layout.sets[name])}
        if any(at not in places for at, _ in consumption):
            return None
        return _kind(device.pool, layout.sets[name]), tuple([(places[at], value) for at, value in consumption])


def _kind(pool: PoolCounters, indexes: list[int]) -> Kind:
    layout = pool.layout
    return tuple([layout.keys[at][1] for at in indexes]), tuple([layout.totals[at] for at in indexes])


def _size(cut: Cut, totals: State) -> float:
    """The largest part that it takes of a counter which has more than one."""
    return max((float(value / totals[place]) for place, value in cut if totals[place] > 1), default=1.0)
