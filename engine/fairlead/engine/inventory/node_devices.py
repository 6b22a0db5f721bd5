"""The devices that one node can reach, in order, and what was derived from them."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.pool import Pool
    from fairlead.kube import resource


class NodeDevices:
    """Immutable but for `cache`; a change of the node's devices or labels makes a new one.

    `problems` are pools that have devices for the node and can't be used: incomplete or invalid.
    """

    __slots__ = ("cache", "devices", "labels", "local_only", "problems", "rules", "tainted")

    def __init__(
        self, pools: list[Pool], node: str, labels: Mapping[str, str], rules: tuple[resource.DeviceTaintRuleSpec, ...]
    ) -> None:
        self.rules = rules
        self.labels = labels
        self.problems: list[Pool] = []
        self.local_only = True
        devices: list[Device] = []
        for pool in pools:
            reached = list(pool.local.get(node, ()))
            if pool.network_attached:
                attached = [device for device in pool.network_attached if device.reachable_from(node, labels)]
                if attached:
                    self.local_only = False
                    reached = sorted(reached + attached, key=attrgetter("order"))
            if pool.problem is not None:
                if reached or node in pool.local:
                    self.problems.append(pool)
                continue
            devices.extend(reached)
        self.devices = tuple(devices)
        self.tainted = bool(rules) or any(device.kind.taints for device in devices)
        self.cache: dict[object, object] = {}  # what the allocator derived: candidates by filter
