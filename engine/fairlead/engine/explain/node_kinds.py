"""Which kinds of nodes would take a gang's pods: those that exist, and those of which a flavor's template says how they are made.

A kind takes a pod where a node like it, with nothing running, has the labels, the room and enough devices, and its taints are
tolerated. Cordons, notices and taints of a node's state are of that node, not of its kind. What a gang lacks is told by this:
no kind takes one of its pods, and it never runs; some do, and devices lack there.

Example: pods with the node selector pool=h100, one node of four has that label and 8 GPUs. A gang of 2 pods of 8 lacks 8 devices;
with pool=h1000 no kind takes it. With hostname=a, a node's name, it lacks devices on a, and no other node would do (`serves`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.placement.model import CandidateNode, NodeSnapshot
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
from fairlead.engine.queues.charges import Charges
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.pods import Constraints, PodNeeds
from fairlead.engine.types.settings import Autoscaling, NodeTemplate

SHAPES_MAX = 64  # of one gang that are looked at
KEPT_MAX = 2_000_000  # nodes, over all kinds of requests and constraints that are remembered


class Misfit(NamedTuple):
    """A unit that no kind of node takes. `beside`: there are nodes with its devices, and what it needs besides rules out all of these."""

    unit: PlacementUnit
    beside: bool


class NodeKinds:
    """The kinds of nodes in one decision. `ever`: whether units fit the empty cluster. `scaling`: of flavors for which nodes can be asked for."""

    def __init__(
        self,
        known: KnownKinds,
        node_snapshot: NodeSnapshot,
        charges: Charges,
        scaling: Mapping[str, Autoscaling],
        from_zero: Sequence[str],
        ever: Callable[[GangRequest, list[PlacementUnit]], bool | None],
    ) -> None:
        """`from_zero`: flavors that scale, count requests by device class, and have no device now."""
        self._node_snapshot = node_snapshot
        self._charges = charges
        self._scaling = scaling
        self._from_zero = from_zero
        self._ever = ever
        self._known = known
        known.begin(node_snapshot, charges)

    def misfit(self, gang: GangRequest, units: Sequence[PlacementUnit]) -> Misfit | None:
        """The first unit that no kind takes. To be asked of a gang that does not fit the empty cluster."""
        alone = replace(
            gang,
            topology=None,
            subgroup_topology=None,
            align=None,
            placed_members=(),
            placed_nodes=(),
            placed_subgroups=(),
            placed_claims=(),
            refused=(),
        )
        for unit in _one_of_each_shape(units)[:SHAPES_MAX]:
            if self._ever(alone, [unit]) is not False:
                continue
            by_kind = self._taking(unit)
            # On one that takes no pods now it was not looked whether the devices do together.
            if not by_kind.isdisjoint(self._known.passing) or any(
                self._templates_take(name, unit) for name in self._scaling
            ):
                continue
            return Misfit(unit, not by_kind and bool(self._with_devices(unit)))
        return None

    def back(self, units: Sequence[PlacementUnit]) -> list[str]:
        """Names of nodes that take no pods now, or fewer than their kind, and would take some of these units once that is over.

        Without those that go soon.
        """
        passing = [node for node in self._known.passing if node.info.notice is None]
        shapes = _one_of_each_shape(units)[:SHAPES_MAX] if passing else ()
        found = frozenset[CandidateNode]().union(*map(self._taking, shapes))
        return [node.name for node in passing if node in found]

    def serves(self, flavor: str, units: Sequence[PlacementUnit]) -> bool:
        """Whether further nodes with devices of the flavor would take those of the units that may use them."""
        return all(self._serves(flavor, unit) for unit in _one_of_each_shape(units)[:SHAPES_MAX])

    def counts_from_zero(self, flavor: str, request: CompiledRequest) -> bool:
        """Whether the request is for the flavor, of which there is no device: by its class, where no other device has what it selects."""
        if flavor not in self._from_zero or request.class_name not in self._scaling[flavor].device_classes:
            return False
        return not request.filter.selectors or not self._charges.is_served(request, self._node_snapshot)

    def _serves(self, flavor: str, unit: PlacementUnit) -> bool:
        if not any(self._may_use(flavor, request) for request in _requests(unit)):
            return True
        scaling = self._scaling[flavor]
        asked = dict(scaling.node_selector)
        if any(asked.get(key, value) != value for needs in unit.shape.needs for key, value in needs.node_selector):
            return False
        if self._templates_take(flavor, unit) or (flavor in self._from_zero and not scaling.templates):
            return True
        return bool(self._taking(unit, flavor, fresh=True))

    def _templates_take(self, flavor: str, unit: PlacementUnit) -> bool:
        wanted = [request for request in _requests(unit) if self._may_use(flavor, request)]
        devices = sum(max(request.count, 1) for request in wanted)
        return bool(wanted) and any(
            template.devices >= devices and all(_takes(template, each) for each in unit.shape.needs)
            for template in self._scaling[flavor].templates
        )

    def _may_use(self, flavor: str, request: CompiledRequest) -> bool:
        if request.admin:
            return False
        return self.counts_from_zero(flavor, request) or flavor in self._charges.flavors_of_request(
            request, self._node_snapshot
        )

    def _taking(self, unit: PlacementUnit, flavor: str = "", *, fresh: bool = False) -> frozenset[CandidateNode]:
        """Nodes of kinds that take its pods, and that have enough devices."""
        found = self._with_devices(unit, flavor)
        for needs in unit.shape.needs:
            found &= self._admitting(needs.constraints, fresh=fresh)
        return frozenset(node for node in found if all(map(node.info.has_room_for, unit.shape.needs)))

    def _admitting(self, wanted: Constraints, *, fresh: bool) -> frozenset[CandidateNode]:
        """Nodes of kinds that pods with these constraints may use."""
        found = self._known.admitting.get((wanted, fresh))
        if found is None:
            nodes = self._node_snapshot.all
            found = frozenset(node for node in nodes if node.info.kind_refuses(wanted, fresh=fresh) is None)
            self._known.admitting[wanted, fresh] = found
        return found

    def _with_devices(self, unit: PlacementUnit, flavor: str = "") -> frozenset[CandidateNode]:
        """Nodes that have enough for each of its requests, whatever is in use; of the flavor, where a request may use such."""
        key = (unit.shape.claims, flavor)
        found = self._known.serving.get(key)
        if found is None:
            found = frozenset(self._node_snapshot.all)
            for claim in unit.shape.claims:
                for alternatives in claim.alternatives:
                    found &= frozenset[CandidateNode]().union(*(self._having(each, flavor) for each in alternatives))
            self._known.serving[key] = found
        return found

    def _having(self, request: CompiledRequest, flavor: str) -> frozenset[CandidateNode]:
        of = flavor if flavor and self._may_use(flavor, request) else ""
        found = self._known.having.get((request, of))
        if found is None:
            nodes = self._node_snapshot.all
            found = self._known.having[request, of] = frozenset(
                node for node in nodes if self._enough(node, request, of)
            )
        return found

    def _enough(self, node: CandidateNode, request: CompiledRequest, flavor: str) -> bool:
        devices = self._node_snapshot.candidates(node, request).devices
        if len(devices) < max(request.count, 1):
            return False
        return not flavor or sum(flavor in self._charges.of_device(each) for each in devices) >= max(request.count, 1)


class KnownKinds:
    """What was found of the nodes, as long as they and the flavors are the same. Memory only."""

    def __init__(self) -> None:
        self._membership = -1
        self._charges: Charges | None = None
        self.admitting: dict[tuple[Constraints, bool], frozenset[CandidateNode]] = {}
        self.having: dict[tuple[CompiledRequest, str], frozenset[CandidateNode]] = {}
        self.serving: dict[tuple[tuple[CompiledClaim, ...], str], frozenset[CandidateNode]] = {}
        self.passing: list[CandidateNode] = []

    def begin(self, nodes: NodeSnapshot, charges: Charges) -> None:
        kept = len(nodes.all) * (len(self.admitting) + len(self.having) + len(self.serving))
        if self._membership != nodes.membership or self._charges is not charges or kept > KEPT_MAX:
            self._membership, self._charges = nodes.membership, charges
            for known in (self.admitting, self.having, self.serving):
                known.clear()
            self.passing = [node for node in nodes.all if node.info.passing]


def _requests(unit: PlacementUnit) -> Iterable[CompiledRequest]:
    """The first alternative of each."""
    return [alternatives[0] for claim in unit.shape.claims for alternatives in claim.alternatives if alternatives]


def _one_of_each_shape(units: Sequence[PlacementUnit]) -> list[PlacementUnit]:
    found: dict[UnitShape, PlacementUnit] = {}
    for unit in units:
        found.setdefault(unit.shape, unit)
    return list(found.values())


def _takes(template: NodeTemplate, needs: PodNeeds) -> bool:
    """It has enough of resources for which it says nothing."""
    allocatable = {**dict(needs.requests), **dict(template.allocatable)}
    made = NodeInfo(name="", labels=dict(template.labels), taints=template.taints, allocatable=allocatable)
    return made.has_room_for(needs) and made.kind_refuses(needs.constraints, fresh=True) is None
