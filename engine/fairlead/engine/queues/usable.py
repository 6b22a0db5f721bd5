"""What of the cluster can be used at all, flavor by flavor: what shares are divided from.

Broken hardware makes all shares smaller. Else a queue would hold its part of the broken devices in working ones. Not counted
are free devices with a taint or under a taint rule, and free devices of nodes that are cordoned, not ready, gone or about to go. What is in
use counts as long as it is, unless it must go (NoExecute).
Taints that some nodes always have do not matter: some pods tolerate them. The only state is which pools to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator.candidates import taints
from fairlead.engine.inventory.nodes import tolerated
from fairlead.engine.queues.charges import Charge, add

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.inventory import Inventory
    from fairlead.engine.inventory.nodes import NodeTable
    from fairlead.engine.inventory.pool import Pool
    from fairlead.engine.queues.charges import Charges
    from fairlead.engine.types.amounts import Amount
    from fairlead.kube.resource import DeviceTaint


class Usable:
    """What pods can use of one inventory and one node table."""

    def __init__(self, inventory: Inventory, nodes: NodeTable) -> None:
        self._inventory = inventory
        self._nodes = nodes
        self._in_doubt: list[Pool] = []
        self._seen = (-1, -1)

    def of(self, total: Mapping[str, Amount], charges: Charges) -> Charge:
        """`total` is what all pools are together."""
        left = dict(total)
        for pool in self._pools():
            add(left, charges.whole(pool), -1)
            add(left, charges.of_pool(pool, self._devices_in_doubt(pool)))
        return left

    def _pools(self) -> list[Pool]:
        """Those with devices that may be of no use, worked out again when slices, rules or nodes change."""
        seen = (self._inventory.structure, self._nodes.structure)
        if seen != self._seen:
            self._seen = seen
            self._in_doubt = [
                pool
                for pool in self._inventory.pools_unordered()
                if pool.problem is None
                and (pool.tainted or self._ruled(pool) or any(not self._open(name) for name in pool.local))
            ]
        return self._in_doubt

    def _ruled(self, pool: Pool) -> bool:
        """Whether a taint rule may be about one of its devices."""
        return any(
            rule.device_selector is not None
            and rule.device_selector.driver in {None, pool.driver}
            and rule.device_selector.pool in {None, pool.name}
            for rule in self._inventory.rules
        )

    def _open(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and node.ready and not node.unschedulable and node.notice is None

    def _devices_in_doubt(self, pool: Pool) -> dict[Device, bool]:
        """The devices that no gang can be given now, and whether they count: while a holder may keep them."""
        found: dict[Device, bool] = {}
        for device in pool.devices.values():
            found_taints = list(taints(device, self._inventory.rules))
            if found_taints or (device.node is not None and not self._open(device.node)):
                evicting = [taint for taint in found_taints if taint.effect == "NoExecute"]
                found[device] = device.use is not None and self._may_stay(device, evicting)
        return found

    def _may_stay(self, device: Device, evicting: list[DeviceTaint]) -> bool:
        """Whether a holder tolerates each taint that would evict it, for a while at least."""
        if not evicting:
            return True
        claims = [self._inventory.claim(uid) for uid in (device.use.claims if device.use is not None else ())]
        return any(
            all(tolerated(taint.key, taint.value, taint.effect, held.tolerations) for taint in evicting)
            for claim in claims
            for held in (claim.devices if claim is not None else ())
            if held.ref == device.ref and not held.admin
        )
