"""What a decision has taken so far, on top of the inventory and the node table, with exact undo.

A decision tries, undoes and tries again here; its input stays as it was. It lasts for one decision.
Keeps: `release` undoes `take` without a trace, `unreserve` undoes `reserve`; amounts are exact,
so nothing drifts. `count_releasing` counts a running claim as gone: so a decision finds what evictions would make room for.
With `empty=True` nothing runs on the cluster: the test of whether a gang could ever fit.
Example: 8 GPUs on a node, 6 allocated. After `take` of the other two none is free; once a running claim of 4 is releasing, its
four are free, and `take` can take them.
"""

from __future__ import annotations

from fairlead.engine.inventory.counters import PoolCounters
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.models import made_on_demand
from fairlead.engine.inventory.neighbour_counts import NeighbourCounts
from fairlead.engine.inventory.neighbours import Facet
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.engine.types.pods import PODS, PodNeeds, Port, ports_clash
from fairlead.engine.types.values import Amount, Consumption, qualified

UNLIMITED = 1 << 62


class Ledger:
    def __init__(self, *, empty: bool = False) -> None:
        self.empty = empty
        self.taken: set[Device] = set()  # exclusive devices
        self.shares: dict[Device, int] = {}  # shared devices: how many shares of this decision
        self.used: dict[Device, dict[str, Amount]] = {}  # shared devices: capacity taken by them
        self.counters: dict[PoolCounters, list[Amount]] = {}  # beside the pool's `used`
        self.loads: dict[NodeInfo, dict[str, int]] = {}
        self.ports: dict[NodeInfo, list[Port]] = {}
        self.released: set[Device] = set()  # of those that their nodes are releasing: counted as released
        self.releasing: dict[Device, int] = {}  # running claims that count as gone
        self.releasing_whole: dict[Device, int] = {}  # of a shared device: those of them that take all of it
        self.releasing_pods: dict[NodeInfo, set[str]] = {}  # UIDs of pods that count as gone
        self.neighbours: NeighbourCounts | None = None  # None: terms of pods about other pods do not count

    def clear(self) -> None:
        for taken in (self.taken, self.shares, self.used, self.counters, self.loads, self.ports):
            taken.clear()
        for released in (self.released, self.releasing, self.releasing_whole, self.releasing_pods):
            released.clear()
        if self.neighbours is not None:
            self.neighbours.clear()

    # ----------------------------------------------------------------------------------------------- devices

    def free(self, device: Device) -> bool:
        """Whether no claim holds it, nor its node for one that is gone, counters aside. Of a shared device: no claim takes all of it."""
        if device in self.taken:
            return False
        use = device.use
        if use is None or self.empty:
            return True
        if use.releasing and device not in self.released:
            return False
        if device.shared:
            return use.whole <= self.releasing_whole.get(device, 0)
        return len(use.claims) <= self.releasing.get(device, 0)

    def exists(self, device: Device) -> bool:
        """Whether admin access finds something to see: nothing is made, and no GPU is cut, for a claim that takes nothing."""
        return self.empty or not made_on_demand(device) or self._consumes_already(device)

    def counters_fit(self, device: Device) -> bool:
        if device.shared and device in self.shares:
            return True  # counted already
        if self._consumes_already(device):
            return True
        pool = device.pool
        totals, own = pool.layout.totals, self.counters.get(pool)
        if own is None and pool.layout.each_fits and (self.empty or not pool.consumers):
            return True
        for index, value in device.counter_consumption:
            used = value if self.empty else value + pool.used[index]
            if own is not None:
                used += own[index]
            if used > totals[index]:
                return False
        return True

    def capacity_fits(self, device: Device, consumption: Consumption) -> bool:
        """Whether a shared device has this much of each capacity left."""
        own = self.used.get(device)
        running = device.use.consumed if device.use is not None and not self.empty else None
        full_names, totals = device.kind.full_names, device.kind.totals
        for name, value in consumption:
            full = full_names[name]
            used: Amount = own.get(full, 0) if own else 0
            if running:
                used += running.get(full, 0)
            if used + value > totals[full]:
                return False
        return True

    def take(self, device: Device, consumption: Consumption) -> bool:
        """Take the device (or this much of a shared one), if that is possible."""
        if not self.free(device) or (device.counter_consumption and not self.counters_fit(device)):
            return False
        if not device.shared:
            self.taken.add(device)
            if device.counter_consumption:
                self._consume_counters(device, 1)
            return True
        if not self.capacity_fits(device, consumption):
            return False
        self._add_share(device, consumption)
        return True

    def release(self, device: Device, consumption: Consumption) -> None:
        if not device.shared:
            self.taken.discard(device)
            if device.counter_consumption:
                self._consume_counters(device, -1)
            return
        self._consume_capacity(device, consumption, -1)
        shares = self.shares[device] - 1
        if shares:
            self.shares[device] = shares
            return
        del self.shares[device]
        if device.counter_consumption and not self._consumes_already(device):
            self._consume_counters(device, -1)

    def reserve(self, device: Device, consumption: Consumption) -> bool:
        """Take the device (or this much of it) even while a running claim holds it; False when it is taken already."""
        if not device.shared:
            if device in self.taken:
                return False
            self.taken.add(device)
            if device.counter_consumption and not self._consumes_already(device):
                self._consume_counters(device, 1)
            return True
        self._add_share(device, consumption)
        return True

    def unreserve(self, device: Device, consumption: Consumption) -> None:
        if device.shared or not self._consumes_already(device):
            self.release(device, consumption)
        else:
            self.taken.discard(device)

    def _add_share(self, device: Device, consumption: Consumption) -> None:
        """One more share of a shared device; the first consumes its counters, unless a running claim does."""
        shares = self.shares.get(device, 0)
        if device.counter_consumption and not shares and not self._consumes_already(device):
            self._consume_counters(device, 1)
        self.shares[device] = shares + 1
        self._consume_capacity(device, consumption, 1)

    def _consumes_already(self, device: Device) -> bool:
        """A running claim counts for the device's counters, and goes on doing so."""
        use = device.use
        return use is not None and not self.empty and len(use.claims) > self.releasing.get(device, 0)

    # ------------------------------------------------------------------------------------------ releasing

    def count_releasing(self, claim: AllocatedClaim, inventory: Inventory, sign: int) -> None:
        """Count a running claim as gone, or (sign -1) as running again. Not while this decision has taken its devices."""
        seen: set[Device] = set()
        for item in claim.devices:
            device = None if item.admin else inventory.device(item.ref)
            if device is None or device.use is None:
                continue
            if item.whole and device.shared:
                self.releasing_whole[device] = self.releasing_whole.get(device, 0) + sign
            if item.consumed:
                used = self.used.setdefault(device, {})
                for name, value in item.consumed:
                    used[name] = used.get(name, 0) - sign * value
            if device in seen:
                continue
            seen.add(device)
            consumes = device.counter_consumption and (self._consumes_already(device) or device in self.shares)
            releasing = self.releasing.get(device, 0) + sign
            if releasing:
                self.releasing[device] = releasing
            else:
                del self.releasing[device]
            if device.counter_consumption and consumes != (self._consumes_already(device) or device in self.shares):
                self._consume_counters(device, -sign)

    def count_pod_releasing(self, node: NodeInfo, uid: str, needs: PodNeeds, sign: int) -> None:
        """Count a pod as gone from its node, or (sign -1) as running again."""
        load = self.loads.setdefault(node, {})
        for name, value in needs.requests:
            load[name] = load.get(name, 0) - sign * value
        pods = self.releasing_pods.setdefault(node, set())
        if sign > 0:
            pods.add(uid)
        else:
            pods.discard(uid)
        if self.neighbours is not None:
            self.neighbours.release(uid, node, sign)

    def _consume_counters(self, device: Device, sign: int) -> None:
        own = self.counters.get(device.pool)
        if own is None:
            own = self.counters[device.pool] = [0] * len(device.pool.used)
        for index, value in device.counter_consumption:
            own[index] += sign * value

    def _consume_capacity(self, device: Device, consumption: Consumption, sign: int) -> None:
        used = self.used.setdefault(device, {})
        for name, value in consumption:
            full = qualified(name, device.pool.driver)
            used[full] = used.get(full, 0) + sign * value

    # ------------------------------------------------------------------------------------------------- nodes

    def node_lacks(self, node: NodeInfo, needs: PodNeeds) -> str | None:
        """What the node has too little of for one more pod with these needs; None when the pod fits."""
        lacking = self._lacking(node, needs)
        if lacking is not None:
            left, wanted = self.left(node, lacking), dict(needs.requests)[lacking]
            return f"{lacking}: {_thousandths(left)} left, {_thousandths(wanted)} wanted"
        if needs.ports:
            taken: list[Port] = list(self.ports.get(node, ()))
            if not self.empty:
                gone = self.releasing_pods.get(node, set())
                taken.extend(port for uid, ports in node.ports.items() if uid not in gone for port in ports)
            clash = ports_clash(needs.ports, taken)
            if clash is not None:
                return f"host port {clash[2]}/{clash[0]} is taken"
        return None

    def lacks_room(self, node: NodeInfo, needs: PodNeeds) -> bool:
        """Whether `node_lacks` anything: asked of every node, and told of few."""
        return self._lacking(node, needs) is not None or (
            bool(needs.ports) and self.node_lacks(node, needs) is not None
        )

    def _lacking(self, node: NodeInfo, needs: PodNeeds) -> str | None:
        """The first resource of which the node has too little left; None when it has enough of all."""
        load = self.loads.get(node)
        allocatable, used = node.allocatable, {} if self.empty else node.used
        for name, value in needs.requests:
            left = allocatable.get(name, 0) - used.get(name, 0)
            if load:
                left -= load.get(name, 0)
            if value > left and (
                allocatable or name != PODS
            ):  # a node that publishes no resources takes any number of pods
                return name
        return None

    def neighbours_refuse(self, node: NodeInfo, facet: Facet | None) -> str | None:
        """Which terms about other pods keep a pod of this facet off the node now; None when none does."""
        return None if facet is None or self.neighbours is None else self.neighbours.refusal(facet, node)

    def add_facet(self, node: NodeInfo, facet: Facet | None, times: int) -> None:
        """Count one pod of this facet on the node, or (-1) undo that."""
        if facet is not None and self.neighbours is not None:
            self.neighbours.add(facet, node, times)

    def left(self, node: NodeInfo, resource: str) -> int:
        """How much of the resource the node has left, in thousandths; as `node_lacks` counts."""
        total = node.allocatable.get(resource, 0)
        if total == 0 and resource == "pods" and not node.allocatable:
            return UNLIMITED
        load = self.loads.get(node)
        return total - (0 if self.empty else node.used.get(resource, 0)) - (load.get(resource, 0) if load else 0)

    def count_pod(self, node: NodeInfo, needs: PodNeeds, sign: int) -> None:
        """Count one pod with these needs on the node, or (-1) undo that."""
        load = self.loads.setdefault(node, {})
        for name, value in needs.requests:
            load[name] = load.get(name, 0) + sign * value
        if needs.ports:
            ports = self.ports.setdefault(node, [])
            change = ports.append if sign > 0 else ports.remove
            for port in needs.ports:
                change(port)


def _thousandths(value: int) -> str:
    return str(value // 1000) if value % 1000 == 0 else f"{value}m"
