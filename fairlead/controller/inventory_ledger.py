"""What a decision has given away so far, on top of the inventory and the node table, with exact undo.

Exists so that a decision can try, take back and try again without touching its input. Lives for one decision. Every
`take` has a `release` that leaves no trace; amounts are exact, so nothing drifts.
With `empty=True` the cluster is taken as if nothing ran on it: the test of whether a gang could ever fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.controller.capacity import qualified
from fairlead.controller.nodes import ports_clash

if TYPE_CHECKING:
    from fairlead.controller.inventory_device import Device
    from fairlead.controller.inventory_pool import Pool
    from fairlead.controller.model import Amount
    from fairlead.controller.nodes import NodeInfo, PodNeeds, Port

Consumption = tuple[tuple[str, "Amount"], ...]


class Ledger:
    __slots__ = ("counters", "empty", "loads", "ports", "shares", "taken", "used")

    def __init__(self, *, empty: bool = False) -> None:
        self.empty = empty
        self.taken: set[Device] = set()  # exclusive devices
        self.shares: dict[Device, int] = {}  # shared devices: how many shares of this decision
        self.used: dict[Device, dict[str, Amount]] = {}  # shared devices: capacity taken by them
        self.counters: dict[Pool, list[Amount]] = {}  # beside the pool's `used`
        self.loads: dict[NodeInfo, dict[str, int]] = {}
        self.ports: dict[NodeInfo, list[Port]] = {}

    def clear(self) -> None:
        """As new."""
        for book in (self.taken, self.shares, self.used, self.counters, self.loads, self.ports):
            book.clear()

    # ----------------------------------------------------------------------------------------------- devices

    def free(self, device: Device) -> bool:
        """Nobody has it, counters aside. Of a shared device: nobody has the whole of it."""
        if device in self.taken:
            return False
        use = device.use
        if use is None or self.empty:
            return True
        return not use.whole if device.shared else not use.claims

    def draws_fit(self, device: Device) -> bool:
        """Whether the counters it draws from have enough left."""
        if device.shared and device in self.shares:
            return True  # drawn already
        if device.use is not None and device.use.claims and not self.empty:
            return True
        pool = device.pool
        totals, mine = pool.layout.totals, self.counters.get(pool)
        for place, value in device.draws:
            used = value if self.empty else value + pool.used[place]
            if mine is not None:
                used += mine[place]
            if used > totals[place]:
                return False
        return True

    def room(self, device: Device, consumption: Consumption) -> bool:
        """Whether a shared device has this much of each capacity left."""
        mine = self.used.get(device)
        theirs = device.use.consumed if device.use is not None and not self.empty else None
        for name, value in consumption:
            full = qualified(name, device.pool.driver)
            used: Amount = mine.get(full, 0) if mine else 0
            if theirs:
                used += theirs.get(full, 0)
            if used + value > device.kind.totals[full]:
                return False
        return True

    def take(self, device: Device, consumption: Consumption) -> bool:
        """Give the device (or this much of a shared one) away, if that is possible."""
        if not self.free(device) or (device.draws and not self.draws_fit(device)):
            return False
        if not device.shared:
            self.taken.add(device)
            if device.draws:
                self._draw(device, 1)
            return True
        if not self.room(device, consumption):
            return False
        shares = self.shares.get(device, 0)
        if device.draws and not shares and not self._drawn_before(device):
            self._draw(device, 1)
        self.shares[device] = shares + 1
        self._consume(device, consumption, 1)
        return True

    def release(self, device: Device, consumption: Consumption) -> None:
        """Undo one `take`."""
        if not device.shared:
            self.taken.discard(device)
            if device.draws:
                self._draw(device, -1)
            return
        self._consume(device, consumption, -1)
        shares = self.shares[device] - 1
        if shares:
            self.shares[device] = shares
            return
        del self.shares[device]
        if device.draws and not self._drawn_before(device):
            self._draw(device, -1)

    def take_share(self, device: Device, consumption: Consumption) -> bool:
        """Only the capacity: for admin access, which holds no device and draws no counters."""
        if not self.room(device, consumption):
            return False
        self._consume(device, consumption, 1)
        return True

    def release_share(self, device: Device, consumption: Consumption) -> None:
        self._consume(device, consumption, -1)

    def _drawn_before(self, device: Device) -> bool:
        return device.use is not None and bool(device.use.claims) and not self.empty

    def _draw(self, device: Device, sign: int) -> None:
        mine = self.counters.get(device.pool)
        if mine is None:
            mine = self.counters[device.pool] = [0] * len(device.pool.used)
        for place, value in device.draws:
            mine[place] += sign * value

    def _consume(self, device: Device, consumption: Consumption, sign: int) -> None:
        used = self.used.setdefault(device, {})
        for name, value in consumption:
            full = qualified(name, device.pool.driver)
            used[full] = used.get(full, 0) + sign * value

    # ------------------------------------------------------------------------------------------------- nodes

    def node_lacks(self, node: NodeInfo, needs: PodNeeds) -> str | None:
        """What the node has too little of for one more pod with these needs; None when it takes it."""
        load = self.loads.get(node)
        allocatable, used = node.allocatable, node.used
        for name, value in needs.requests:
            total = allocatable.get(name, 0)
            if total == 0 and name == "pods" and not allocatable:
                continue  # a node that says nothing of its resources takes any pod that asks none
            left = total - (0 if self.empty else used.get(name, 0))
            if load is not None:
                left -= load.get(name, 0)
            if value > left:
                return f"{name}: {_thousandths(left)} left, {_thousandths(value)} wanted"
        if needs.ports:
            taken: list[Port] = list(self.ports.get(node, ()))
            if not self.empty:
                taken.extend(port for ports in node.ports.values() for port in ports)
            clash = ports_clash(needs.ports, taken)
            if clash is not None:
                return f"host port {clash[2]}/{clash[0]} is taken"
        return None

    def load(self, node: NodeInfo, needs: PodNeeds, sign: int) -> None:
        """Count one pod with these needs on the node, or (sign -1) take it off."""
        load = self.loads.setdefault(node, {})
        for name, value in needs.requests:
            load[name] = load.get(name, 0) + sign * value
        if needs.ports:
            ports = self.ports.setdefault(node, [])
            for port in needs.ports:
                if sign > 0:
                    ports.append(port)
                else:
                    ports.remove(port)


def _thousandths(value: int) -> str:
    return str(value // 1000) if value % 1000 == 0 else f"{value}m"
