"""What a device that no claim holds is good for: a usual request, a gang that it is held for, or nothing.

The usual requests are those that placement learns from (`engine.types.workload`): what a pod asks of devices by one claim, and of
its node. A free device is fragmented where none of them that has room on the node could be given it.
Example: a node has two free GPUs and no CPU left; the usual requests all need CPU: both are fragmented.
Constraints between devices of a claim are not considered: what is called free here may still not fit one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from fairlead.api import repair
from fairlead.controller.accounting.units import Units
from fairlead.engine.allocator.candidates import candidates, taints
from fairlead.engine.allocator.requests import CompiledRequest, Compiler, InvalidClaimError
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.ledger import Consumption
from fairlead.engine.inventory.node_devices import NodeDevices
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.types.amounts import qualified
from fairlead.engine.types.pod_needs import PodNeeds
from fairlead.engine.types.workload import Workload
from fairlead.history.ledger.entries import Unavailable, Unit, Vacancy
from fairlead.kube import resource

Usual = tuple[PodNeeds, CompiledRequest]


class UsualRequests:
    """The requests of a workload, compiled against the classes of now."""

    def __init__(self, workload: Workload | None, classes: Mapping[str, resource.DeviceClass]) -> None:
        self.selectors = Selectors()
        self.all: tuple[Usual, ...] = tuple(_compiled(workload, classes)) if workload is not None else ()


def _compiled(workload: Workload, classes: Mapping[str, resource.DeviceClass]) -> Iterable[Usual]:
    compiler = Compiler(classes)
    for demand in workload.demands:
        try:
            claim = compiler.compile_spec(demand.spec)
        except InvalidClaimError:
            continue
        for alternatives in claim.alternatives:
            for request in alternatives:
                if not request.admin:
                    yield demand.needs, request


def unavailable(
    node: NodeInfo | None,
    devices: Sequence[Device],
    rules: Sequence[resource.DeviceTaintRuleSpec],
    *,
    anywhere: bool = False,
) -> Unavailable | None:
    """Why nothing can be given of a unit; None: something can.

    Broken: its node is gone or not ready, or each of its devices is tainted by more than drains. Drained: an operator keeps it back, its
    node is cordoned or its devices are drained, and nothing else is wrong. `anywhere`: it has no node.
    """
    if not anywhere and (node is None or not node.ready):
        return "broken"
    found = [tuple(taints(device, rules)) for device in devices]
    cordoned = not anywhere and node is not None and node.unschedulable
    if not cordoned and not all(found):
        return None
    return "drained" if all(drains(taint) for own in found for taint in own) else "broken"


def drains(taint: resource.DeviceTaint) -> bool:
    """Whether an operator keeps the GPU back, in either of the two ways that `fairlead device drain` has."""
    return taint.key == repair.DRAIN_TAINT or (taint.key == repair.TAINT and taint.value == "drained")


def of_use(node: NodeInfo, devices: NodeDevices, usual: UsualRequests, units: Units) -> set[Unit] | None:
    """The units of which a usual request could be given a device now. None: nothing is known of what is usual."""
    if not usual.all:
        return None
    found: set[Unit] = set()
    for needs, request in usual.all:
        if not _has_room(node, needs):
            continue
        passed = candidates(devices, request.filter, usual.selectors)
        free = [device for device in passed.devices if _available(device, passed.consumption.get(device, ()))]
        enough = len(free) == len(passed.devices) if request.all else len(free) >= request.count
        if free and enough:
            found.update(map(units.of, free))
    return found


def vacancy(unit: Unit, *, closed: Unavailable | None, reserved: bool, useful: Collection[Unit] | None) -> Vacancy:
    if closed is not None:
        return closed
    if reserved:
        return "nominated"
    return "free" if useful is None or unit in useful else "fragmented"


def _has_room(node: NodeInfo, needs: PodNeeds) -> bool:
    if node.refuses(needs) is not None:
        return False
    return all(
        node.used.get(name, 0) + wanted <= node.allocatable.get(name, 0) for name, wanted in needs.requests if wanted
    )


def _available(device: Device, consumption: Consumption) -> bool:
    use = device.use
    held = use is not None and bool(use.claims)
    if use is not None and held:
        if not device.shared or use.whole:
            return False
        totals = device.kind.totals
        names = ((qualified(name, device.pool.driver), value) for name, value in consumption)
        return all(use.consumed.get(name, 0) + value <= totals.get(name, 0) for name, value in names)
    pool = device.pool
    return all(pool.used[index] + value <= pool.layout.totals[index] for index, value in device.counter_consumption)
