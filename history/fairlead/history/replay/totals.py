"""What a simulated span of time adds up to: devices in use and idle, gangs waiting, and what each queue had of what it was due.

Devices are counted as whole GPUs: a partition as its share of its parent. All sums are of amount × seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.inventory import Inventory
    from fairlead.engine.types.plan import Plan
    from fairlead.engine.types.references import DeviceRef


def _share(device: Device) -> float:
    if not device.counter_consumption:
        return 1.0
    return float(device.pool.layout.share(device.counter_consumption))


def size_of(inventory: Inventory, devices: Iterable[DeviceRef]) -> float:
    """In whole devices; one that is not published any more counts as one."""
    found = (inventory.device(ref) for ref in devices)
    return sum(1.0 if device is None else _share(device) for device in found)


def capacity_of(inventory: Inventory) -> float:
    """Devices that are a whole: partitions are parts of others."""
    return float(sum(_share(device) >= 1.0 for pool in inventory.pools_unordered() for device in pool.devices.values()))


@dataclass(slots=True)
class QueueSums:
    """Of one queue in one flavor, in the flavor's measure × seconds."""

    used: float = 0.0
    fair_share: float = 0.0
    demand: float = 0.0
    short: float = 0.0  # what it was due and asked for and did not have


@dataclass(slots=True)
class Totals:
    capacity: float = 0.0
    used: float = 0.0
    seconds: float = 0.0
    capacity_s: float = 0.0
    used_s: float = 0.0
    idle_while_waiting_s: float = 0.0
    queues: dict[tuple[str, str], QueueSums] = field(default_factory=dict)  # by queue and flavor
    curve: list[tuple[float, float, int]] = field(
        default_factory=list
    )  # seconds since the beginning, part in use, gangs that wait
    _rates: dict[tuple[str, str], tuple[float, float, float]] = field(default_factory=dict)

    def set_capacity(self, inventory: Inventory) -> None:
        self.capacity = capacity_of(inventory)

    def take(self, devices: float) -> None:
        self.used += devices

    def note(self, plan: Plan) -> None:
        """What queues have from now on."""
        self._rates = {
            (queue.name, use.flavor): (float(use.used), float(use.fair_share), float(use.demand))
            for queue in plan.queues
            for use in queue.flavors
        }

    def pass_time(self, seconds: float, waiting: int) -> None:
        if seconds <= 0:
            return
        self.curve.append((self.seconds, self.used / self.capacity if self.capacity else 0.0, waiting))
        self.seconds += seconds
        self.capacity_s += self.capacity * seconds
        self.used_s += self.used * seconds
        if waiting:
            self.idle_while_waiting_s += max(0.0, self.capacity - self.used) * seconds
        for key, (used, fair_share, demand) in self._rates.items():
            sums = self.queues.setdefault(key, QueueSums())
            sums.used += used * seconds
            sums.fair_share += fair_share * seconds
            sums.demand += demand * seconds
            sums.short += max(0.0, min(fair_share, demand) - used) * seconds
