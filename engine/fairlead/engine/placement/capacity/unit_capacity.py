"""How many units of a shape a node takes at most, and what rules a placement out before it is searched for.

Proving a "no" by search costs much, and most are of these kinds: too few devices, too little room on nodes. Where devices are local to their
nodes and no terms about other pods count a bound may be too high, never too low; elsewhere it is not used. `alike_fit` is exact, for gangs
of alike pods on the empty cluster, or silent. Capacities of all nodes are kept: a question costs the nodes that changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fairlead.engine.inventory.device import Device
from fairlead.engine.placement.capacity.device_fit import DeviceFit
from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes
from fairlead.engine.placement.model import CandidateNode, NodeScope, NodeSnapshot, TopologyDomain
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
from fairlead.engine.types.pods import PODS

UNBOUNDED = 1 << 20


def counts(units: Iterable[PlacementUnit]) -> dict[UnitShape, int]:
    found: dict[UnitShape, int] = {}
    for unit in units:
        found[unit.shape] = found.get(unit.shape, 0) + 1
    return found


def too_many(units: Sequence[PlacementUnit], nodes_for: Callable[[UnitShape], ScoredNodes]) -> bool:
    """Whether the units certainly do not fit: those of one shape, or all of them by the number of devices."""
    wanted = counts(units)
    for shape, count in wanted.items():
        most = 0
        scored_nodes = nodes_for(shape)
        for node in scored_nodes.ranked():
            most += units_on(node, scored_nodes)
            if most >= count:
                break
        if most < count:
            return True
    free: set[Device] = set()
    for shape in wanted:
        scored_nodes = nodes_for(shape)
        for claim in shape.claims:
            for request in (request for alternatives in claim.alternatives for request in alternatives):
                for node in scored_nodes.among:
                    found = scored_nodes.node_snapshot.candidates(node, request)
                    if found.consumption or request.admin:
                        return False  # shared or not taken at all: counting devices proves nothing
                    free.update(device for device in found.devices if scored_nodes.ledger.free(device))
    return sum(unit.shape.least for unit in units) > len(free)


def units_on(node: CandidateNode, scored_nodes: ScoredNodes) -> int:
    """How many units of the shape the node takes at most, by devices and by the pods' requests."""
    shape = scored_nodes.shape
    most = UNBOUNDED
    for claim in shape.claims:
        for alternatives in claim.alternatives:
            here = 0
            for request in alternatives:
                found = scored_nodes.node_snapshot.candidates(node, request)
                if found.consumption or request.admin:
                    here = UNBOUNDED
                else:
                    here = max(here, 1 if request.all else scored_nodes.fit.free(request, found) // request.count)
            most = min(most, here)
    if not node.info.allocatable:
        return most
    load = scored_nodes.ledger.loads.get(node.info, {})
    for resource, value in shape.needs[0].requests if shape.needs else ():
        left = node.info.allocatable.get(resource, 0) - load.get(resource, 0)
        if not scored_nodes.ledger.empty:
            left -= node.info.used.get(resource, 0)
        most = min(most, max(0, left) // value)
    return most


def alike_fit(units: Sequence[PlacementUnit], snapshot: NodeSnapshot, fit: DeviceFit) -> bool | None:
    """Whether units of one plain shape fit together on the empty cluster; None where only a search can tell.

    `fit`: of the shape's claims, in the ledger of the empty cluster. Ends at the first nodes that are enough, so thousands of
    pods that all differ cost one look at a node each.
    """
    shape = units[0].shape
    if not shape.plain or shape.bound or snapshot.has_network_attached:
        return None
    request, missing = shape.claims[0].alternatives[0][0], len(units)
    if request.admin or request.all:
        return None
    for node in snapshot.all:
        most = 0 if node.info.refuses(shape.needs[0]) is not None else _pods_when_empty(node, shape)
        if most and (spare := fit.spare(node)) is not None:
            if not snapshot.candidates(node, request).plain:
                return None
            missing -= min(most, spare.left // request.count + 1)
            if missing <= 0:
                return True
    return False


def _pods_when_empty(node: CandidateNode, shape: UnitShape) -> int:
    """By the pods' requests and host ports."""
    needs, allocatable = shape.needs[0], node.info.allocatable
    most = 1 if needs.ports else UNBOUNDED
    for resource, value in needs.requests:
        if allocatable or resource != PODS:  # a node that publishes no resources takes any number of pods
            most = min(most, allocatable.get(resource, 0) // value)
    return most


KNOWN_MAX = 64  # shapes and scopes that are remembered; each has a number for each node


class UnitCapacity:
    """The capacity for units, for one placer, whose `scored_nodes` these are."""

    def __init__(self, scored_nodes: Callable[[UnitShape, NodeScope], ScoredNodes]) -> None:
        self._scored_nodes = scored_nodes
        self._known: dict[object, _OfShape] = {}

    def in_domains(
        self, shape: UnitShape, scope: NodeScope, domains: Iterable[TopologyDomain]
    ) -> dict[TopologyDomain, int]:
        """How many units the nodes of each take at most. What `scope` says of a domain does not count."""
        units = self.by_node(shape, scope)
        return {domain: sum([units.get(node, 0) for node in domain.nodes]) for domain in domains}

    def by_node(self, shape: UnitShape, scope: NodeScope) -> dict[CandidateNode, int]:
        """The nodes that may take a unit now, with how many."""
        whole = scope._replace(among=None)
        scored = self._scored_nodes(shape, whole)
        found = self._known.get((shape, whole))
        if found is None or found.scored is not scored:
            while len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            found = self._known[shape, whole] = _OfShape(scored)
        return found.now()


class _OfShape:
    def __init__(self, scored: ScoredNodes) -> None:
        self.scored = scored
        self._units: dict[CandidateNode, int] = {}
        self._cursor = -1

    def now(self) -> dict[CandidateNode, int]:
        scored = self.scored
        snapshot, log = scored.node_snapshot, scored.node_snapshot.log
        scored.fit.catch_up()
        changed: Iterable[CandidateNode] | None = None if self._cursor < 0 else log.since(self._cursor)
        self._cursor = log.cursor
        if changed is None or scored.shape.facets or snapshot.has_network_attached:
            self._units.clear()
            changed = snapshot.all
        for node in dict.fromkeys(changed):
            units = self._on(node)
            if units:
                self._units[node] = units
            else:
                self._units.pop(node, None)
        return self._units

    def _on(self, node: CandidateNode) -> int:
        spare = self.scored.fit.nodes.get(node)
        if spare is None or not self.scored.eligible(node) or not self.scored.takes(node):
            return 0
        return units_on(node, self.scored)
