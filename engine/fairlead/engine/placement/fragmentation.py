"""Fragmentation of nodes, measured against the usual requests: what a placement on a node would cost future ones.

Brings together the mix (`types.workload`), the nodes with their devices, and the value of leftovers (`leftover`). Ranks what is
possible; never decides what is. Considers devices without counters and CPU here, partitions in `partitions`; requests for several
kinds of device at once, or by several pods, are not ranked.
Where the mix has fewer than two kinds of request every placement costs the same: there is no score, and placement packs.
Compare: fragmentation gradient descent (FGD, Weng et al. 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.inventory.mig_share import mig_share
from fairlead.engine.placement.leftover import LeftoverValue, Rooms, UsualRequest
from fairlead.engine.placement.partitions import PartitionScore
from fairlead.engine.placement.prices import WHOLE
from fairlead.engine.types.amounts import qualified

if TYPE_CHECKING:
    from fairlead.engine.allocator.candidates import Candidates
    from fairlead.engine.allocator.requests import CompiledRequest, Compiler
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.inventory.node_devices import NodeDevices
    from fairlead.engine.placement.candidate_nodes import CandidateNode, NodeSnapshot
    from fairlead.engine.placement.shapes import UnitShape
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.engine.types.workload import Workload
    from fairlead.kube import resource

CPU = "cpu"
KINDS_MIN = 2  # fewer are no mix
SHARES_MAX = 512  # requests remembered per node
Profile = tuple[int, ...]  # thousandths of a device that each usual request takes on a node; 0: it can't run there


class FragmentationScore:
    """One mix on the cluster as it is, refreshed when nodes change; for one placer, whose ledger it reads."""

    def __init__(
        self, usual: list[tuple[CompiledRequest, int, float]], node_snapshot: NodeSnapshot, ledger: Ledger
    ) -> None:
        """`usual`: request, CPU (thousandths of a core), and its part of the mix."""
        self._usual = usual
        self._node_snapshot = node_snapshot
        self._ledger = ledger
        self._profiles: dict[CandidateNode, tuple[NodeDevices, Profile, int]] = {}  # and how many devices count
        self._shares: dict[CandidateNode, tuple[NodeDevices, dict[CompiledRequest, int]]] = {}
        self._states: dict[CandidateNode, tuple[int, Rooms, int]] = {}
        self._parts: list[float] = []
        self._values: dict[Profile, LeftoverValue] = {}
        self.partitions = PartitionScore(usual, node_snapshot, ledger)
        self.refresh()

    @classmethod
    def of(
        cls, workload: Workload | None, compiler: Compiler, node_snapshot: NodeSnapshot, ledger: Ledger
    ) -> FragmentationScore | None:
        if workload is None:
            return None
        kinds: dict[tuple[object, int, int], tuple[CompiledRequest, int, int]] = {}
        for demand in workload.demands:
            request = _single_request(demand.spec, compiler)
            if request is not None:
                cpu = _cpu(demand.needs)
                key = (request.filter, request.count, cpu)
                known = kinds.get(key, (request, cpu, 0))
                kinds[key] = (known[0], cpu, known[2] + demand.count)
        total = sum(count for _, _, count in kinds.values())
        if len(kinds) < KINDS_MIN:
            return None
        return cls([(request, cpu, count / total) for request, cpu, count in kinds.values()], node_snapshot, ledger)

    def cost(self, shape: UnitShape, node: CandidateNode) -> tuple[int, int]:
        """(waste, loss) of one unit of this shape there; low is better. The unit is likely to fit."""
        found = self._cost(shape, node)
        return (self.partitions.cost(shape, node) or (0, 0)) if found is None else found[:2]

    def room(self, shape: UnitShape, node: CandidateNode) -> int:
        """How much room the unit's shared device should have, in thousandths; 0: any."""
        found = self._cost(shape, node)
        return 0 if found is None else found[2]

    def left(self, device: Device) -> int:
        """Thousandths that the device has left: of a shared one, of the capacity that is scarcest on it."""
        ledger = self._ledger
        if not ledger.free(device):
            return 0
        if not device.shared:
            return WHOLE
        mine = ledger.used.get(device)
        running = device.use.consumed if device.use is not None and not ledger.empty else None
        if not mine and not running:
            return WHOLE
        least = WHOLE
        for name, total in device.kind.totals.items():
            used = (mine.get(name, 0) if mine else 0) + (running.get(name, 0) if running else 0)
            if used and total:
                least = min(least, int((total - used) * WHOLE // total))
        return max(least, 0)

    # ------------------------------------------------------------------------------------------------------ one node

    def _cost(self, shape: UnitShape, node: CandidateNode) -> tuple[int, int, int] | None:
        value = self._values.get(self._profile(node)[0])
        if value is None or len(shape.needs) != 1:
            return None
        count = share = 0
        if shape.claims:
            if not shape.plain:
                return None
            request = shape.claims[0].alternatives[0][0]
            count, share = request.count, self._share(node, request)
            if not share:
                return None
        rooms, cpu = self._state(node)
        if count and sum([room >= share for room in rooms]) < count:
            return None
        return value.cost(rooms, cpu, count=count, share=share, wanted_cpu=_cpu(shape.needs[0]))

    def _state(self, node: CandidateNode) -> tuple[Rooms, int]:
        known = self._states.get(node)
        if known is not None and known[0] == node.changes:
            return known[1], known[2]
        rooms = tuple(sorted([self.left(device) for device in _whole_devices(node)]))
        info = node.info
        load = self._ledger.loads.get(info)
        cpu = info.allocatable.get(CPU, 0) - (0 if self._ledger.empty else info.used.get(CPU, 0))
        cpu -= load.get(CPU, 0) if load else 0
        self._states[node] = (node.changes, rooms, cpu)
        return rooms, cpu

    def _profile(self, node: CandidateNode) -> tuple[Profile, int]:
        found = self._profiles.get(node)
        if found is None or found[0] is not node.devices:
            profile = tuple([self._share(node, request) for request, _, _ in self._usual])
            found = self._profiles[node] = (node.devices, profile, len(_whole_devices(node)))
        return found[1], found[2]

    def _share(self, node: CandidateNode, request: CompiledRequest) -> int:
        """Thousandths of a device that the request takes there; 0 where it can't run. All devices of a node count as alike."""
        known = self._shares.get(node)
        if known is None or known[0] is not node.devices or len(known[1]) >= SHARES_MAX:
            known = self._shares[node] = (node.devices, {})
        share = known[1].get(request)
        if share is None:
            share = known[1][request] = _share(self._node_snapshot.candidates(node, request))
        return share

    # -------------------------------------------------------------------------------------------------- the cluster

    def refresh(self) -> bool:
        """Read the nodes again, as they came, went or changed; True when that changes the score of any.

        Makes a LeftoverValue for each kind of node. Requests that few nodes serve weigh more.
        """
        kinds: dict[tuple[Profile, int, int], int] = {}
        self.partitions.forget_gone()
        if len(self._profiles) > 2 * len(self._node_snapshot.all):
            for memory in (self._profiles, self._shares, self._states):
                memory.clear()
        for node in self._node_snapshot.all:
            key = (*self._profile(node), node.info.allocatable.get(CPU, 0))
            kinds[key] = kinds.get(key, 0) + 1
        capacity = [0] * len(self._usual)
        devices = 0
        requests: dict[Profile, tuple[UsualRequest, ...]] = {}
        for (profile, whole, cpu), number in kinds.items():
            devices += number * whole
            if profile not in requests:
                requests[profile] = tuple(
                    UsualRequest(request.count, share, wanted_cpu, part)
                    for (request, wanted_cpu, part), share in zip(self._usual, profile, strict=True)
                )
            for index, usual in enumerate(requests[profile]):
                if usual.share:
                    capacity[index] += number * usual.size * usual.copies((WHOLE,) * whole, cpu)
        # Two digits are enough, and spare a look at every node whenever one comes or goes.
        parts = [float(f"{max(amount / (devices * WHOLE), 0.001):.1e}") if devices else 1.0 for amount in capacity]
        if parts == self._parts and requests.keys() <= self._values.keys():
            return False
        self._parts = parts
        self._values = {}
        for profile, of_profile in requests.items():
            able = [(usual, part) for usual, part in zip(of_profile, parts, strict=True) if usual.share]
            if able:
                weights = [usual.frequency / (usual.size / WHOLE) ** 0.5 / part / WHOLE for usual, part in able]
                self._values[profile] = LeftoverValue(tuple(usual for usual, _ in able), weights)
        return True


def _whole_devices(node: CandidateNode) -> list[Device]:
    """Devices without counters of their own, MIG devices left out."""
    return [device for device in node.devices.devices if not device.counter_consumption and mig_share(device) is None]


def _share(found: Candidates) -> int:
    for device in found.devices:
        if device.counter_consumption or device in found.sizes:
            continue
        if not device.shared:
            return WHOLE
        totals, driver = device.kind.totals, device.pool.driver
        parts = [
            -(-value * WHOLE // totals[full])
            for name, value in found.consumption[device]
            if totals.get(full := qualified(name, driver))
        ]
        return max(1, min(WHOLE, int(max(parts, default=WHOLE))))
    return 0


def _cpu(needs: PodNeeds) -> int:
    for name, value in needs.requests:
        if name == CPU:
            return value
    return 0


def _single_request(spec: resource.ResourceClaimSpec, compiler: Compiler) -> CompiledRequest | None:
    try:
        claim = compiler.compile_spec(spec)
    except InvalidClaimError:
        return None
    return claim.alternatives[0][0] if claim.plain else None
