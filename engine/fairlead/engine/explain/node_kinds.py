"""Which kinds of nodes would take a gang's pods: those that exist, and those of which a flavor's template says how they are made.

A kind takes a pod where a node like it, with nothing running, has the labels, the room and enough devices, and its taints are
tolerated. Cordons, notices and taints of a node's state are of that node, not of its kind. What a gang lacks is told by this:
no kind takes one of its pods, and it never runs; some do, and devices lack there.

Example: pods with the node selector pool=h100, one node of four has that label and 8 GPUs. A gang of 2 pods of 8 lacks 8 devices;
with pool=h1000 no kind takes it. With hostname=a, a node's name, it lacks devices on a, and no other node would do (`serves`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fairlead.engine.inventory.nodes import NodeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.placement.candidate_nodes import CandidateNode, NodeSnapshot
    from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
    from fairlead.engine.queues.charges import Charges
    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.engine.types.settings import Autoscaling, NodeTemplate

SHAPES_MAX = 64  # of one gang that are looked at


class Misfit(NamedTuple):
    """A unit that no kind of node takes. `beside`: there are nodes with its devices, and what it needs besides rules out all of these."""

    unit: PlacementUnit
    beside: bool


class NodeKinds:
    """Of one decision. `ever`: whether units fit the empty cluster. `scaling`: of flavors for which nodes can be asked for."""

    def __init__(
        self,
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

    def misfit(self, gang: GangRequest, units: Sequence[PlacementUnit]) -> Misfit | None:
        """The first unit that no kind takes. To be asked of a gang that does not fit the empty cluster."""
        alone = replace(
            gang,
            topology=None,
            subgroup_topology=None,
            placed_nodes=(),
            placed_subgroups=(),
            placed_claims=(),
            refused=(),
        )
        for unit in _one_of_each_shape(units)[:SHAPES_MAX]:
            if self._ever(alone, [unit]) is not False or self._away(unit):
                continue
            if any(self._templates_take(name, unit) for name in self._scaling):
                continue
            having = [node for node in self._node_snapshot.all if self._has_devices(node, unit)]
            return Misfit(unit, bool(having) and not any(_takes_by_kind(node, unit) for node in having))
        return None

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
        return any(
            self._has_devices(node, unit, flavor)
            and all(node.info.kind_takes(each, fresh=True) for each in unit.shape.needs)
            for node in self._node_snapshot.all
        )

    def _away(self, unit: PlacementUnit) -> bool:
        """Whether a node takes it by its kind, and not as it is."""
        return any(
            any(node.info.refuses(each) is not None for each in unit.shape.needs)
            and _takes_by_kind(node, unit)
            and self._has_devices(node, unit)
            for node in self._node_snapshot.all
        )

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

    def _has_devices(self, node: CandidateNode, unit: PlacementUnit, flavor: str = "") -> bool:
        """Whether the node has enough for each request; of the flavor, where it may use such."""
        return all(
            any(self._enough(node, request, flavor) for request in alternatives)
            for claim in unit.shape.claims
            for alternatives in claim.alternatives
        )

    def _enough(self, node: CandidateNode, request: CompiledRequest, flavor: str) -> bool:
        devices = self._node_snapshot.candidates(node, request).devices
        if flavor and self._may_use(flavor, request):
            return sum(flavor in self._charges.of_device(each) for each in devices) >= max(request.count, 1)
        return len(devices) >= max(request.count, 1)


def _takes_by_kind(node: CandidateNode, unit: PlacementUnit) -> bool:
    return all(node.info.kind_takes(each, fresh=False) for each in unit.shape.needs)


def _requests(unit: PlacementUnit) -> Iterable[CompiledRequest]:
    """The first alternative of each."""
    return [alternatives[0] for claim in unit.shape.claims for alternatives in claim.alternatives if alternatives]


def _one_of_each_shape(units: Sequence[PlacementUnit]) -> list[PlacementUnit]:
    found: dict[UnitShape, PlacementUnit] = {}
    for unit in units:
        found.setdefault(unit.shape, unit)
    return list(found.values())


def _takes(template: NodeTemplate, needs: PodNeeds) -> bool:
    """Of resources for which it says nothing it has enough."""
    allocatable = {**dict(needs.requests), **dict(template.allocatable)}
    made = NodeInfo(name="", labels=dict(template.labels), taints=template.taints, allocatable=allocatable)
    return made.kind_takes(needs, fresh=True)
