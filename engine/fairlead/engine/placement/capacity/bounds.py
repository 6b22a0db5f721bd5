"""Upper bounds that rule a placement out before it is searched for: too few devices, too little room on nodes.

`alike_fit` is exact, for gangs of alike pods on the empty cluster, or silent.
Proving a "no" by search costs much, and most are of these kinds. Where devices are local to their nodes a bound may be too
high, never too low; elsewhere it is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.types.pod_needs import PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairlead.engine.inventory.device import Device
    from fairlead.engine.placement.candidate_nodes import CandidateNode, NodeSnapshot
    from fairlead.engine.placement.capacity.device_fit import DeviceFit
    from fairlead.engine.placement.capacity.scored_nodes import ScoredNodes
    from fairlead.engine.placement.shapes import PlacementUnit, UnitShape

UNBOUNDED = 1 << 20


def counts(units: Iterable[PlacementUnit]) -> dict[UnitShape, int]:
    """How many units there are of each shape."""
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
