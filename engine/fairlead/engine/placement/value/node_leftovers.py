"""What each node has left: thousandths left of its devices, and free CPU; and how much of a device a request takes there.

What `fragmentation` and `scarce` measure, read from one ledger and remembered until the node changes. Devices with counters of
their own (partitions, and GPUs that may be cut) and MIG devices are left out; all others of a node count as alike.
"""

from __future__ import annotations

from fairlead.engine.allocator.candidates import Candidates
from fairlead.engine.allocator.requests import CompiledRequest
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.inventory.models import mig_share
from fairlead.engine.inventory.pool import NodeDevices
from fairlead.engine.placement.model import CandidateNode, NodeSnapshot
from fairlead.engine.placement.value.leftover import WHOLE, Leftovers
from fairlead.engine.placement.value.workload import CPU
from fairlead.engine.types.values import qualified

SHARES_MAX = 512  # requests remembered per node


class NodeLeftovers:
    """What is left on the nodes of one snapshot, in one ledger."""

    def __init__(self, node_snapshot: NodeSnapshot, ledger: Ledger) -> None:
        self.node_snapshot = node_snapshot
        self.ledger = ledger
        self._devices: dict[CandidateNode, tuple[NodeDevices, list[Device]]] = {}
        self._shares: dict[CandidateNode, tuple[NodeDevices, dict[CompiledRequest, int]]] = {}
        self._states: dict[CandidateNode, tuple[int, Leftovers, int]] = {}

    def forget_gone(self) -> None:
        """Nodes that went take memory, once they are many."""
        if len(self._states) > 2 * len(self.node_snapshot.all):
            for memory in (self._devices, self._shares, self._states):
                memory.clear()

    def state(self, node: CandidateNode) -> tuple[Leftovers, int]:
        """Thousandths left of each device, sorted, and free CPU in thousandths of a core."""
        known = self._states.get(node)
        if known is not None and known[0] == node.changes:
            return known[1], known[2]
        leftovers = tuple(sorted([self.left(device) for device in self.devices(node)]))
        info = node.info
        load = self.ledger.loads.get(info)
        cpu = info.allocatable.get(CPU, 0) - (0 if self.ledger.empty else info.used.get(CPU, 0))
        cpu -= load.get(CPU, 0) if load else 0
        self._states[node] = (node.changes, leftovers, cpu)
        return leftovers, cpu

    def left(self, device: Device) -> int:
        """Thousandths that the device has left: of a shared one, of the capacity that is scarcest on it."""
        ledger = self.ledger
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

    def devices(self, node: CandidateNode) -> list[Device]:
        """Those without counters of their own, MIG devices left out."""
        known = self._devices.get(node)
        if known is None or known[0] is not node.devices:
            devices = [
                device
                for device in node.devices.devices
                if not device.counter_consumption and mig_share(device) is None
            ]
            known = self._devices[node] = (node.devices, devices)
        return known[1]

    def share(self, node: CandidateNode, request: CompiledRequest) -> int:
        """Thousandths of a device that the request takes there; 0 where no device is one that it may have."""
        known = self._shares.get(node)
        if known is None or known[0] is not node.devices or len(known[1]) >= SHARES_MAX:
            known = self._shares[node] = (node.devices, {})
        share = known[1].get(request)
        if share is None:
            share = known[1][request] = _share(self.node_snapshot.candidates(node, request))
        return share


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
