"""What a decision has given away so far, on top of the inventory and the node table, with exact undo.

Exists so that a decision can try, take back and try again without touching its input. Lives for one decision. Every
`take` has a `release` that leaves no trace; amounts are exact, so nothing drifts. `lift` counts a running claim as given
back, `lower` undoes that: so is seen what evictions would make room for.
With `empty=True` the cluster is taken as if nothing ran on it: the test of whether a gang could ever fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.types.amounts import qualified
from fairlead.engine.types.pod_needs import ports_clash

if TYPE_CHECKING:
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.inventory import AllocatedClaim, Inventory
    from fairlead.engine.inventory.nodes import NodeInfo
    from fairlead.engine.inventory.pool import Pool
    from fairlead.engine.types.amounts import Amount
    from fairlead.engine.types.pod_needs import PodNeeds, Port

Consumption = tuple[tuple[str, "Amount"], ...]


class Ledger:
    __slots__ = ("counters", "empty", "gone", "gone_whole", "left", "loads", "ports", "shares", "taken", "used")

    def __init__(self, *, empty: bool = False) -> None:
        self.empty = empty
        self.taken: set[Device] = set()  # exclusive devices
        self.shares: dict[Device, int] = {}  # shared devices: how many shares of this decision
        self.used: dict[Device, dict[str, Amount]] = {}  # shared devices: capacity taken by them
        self.counters: dict[Pool, list[Amount]] = {}  # beside the pool's `used`
        self.loads: dict[NodeInfo, dict[str, int]] = {}
        self.ports: dict[NodeInfo, list[Port]] = {}
        self.gone: dict[Device, int] = {}  # running claims that count as given back
        self.gone_whole: dict[Device, int] = {}  # of a shared device: those of them that had all of it
        self.left: dict[NodeInfo, set[str]] = {}  # UIDs of pods that count as gone

    def clear(self) -> None:
        """As new."""
        for book in (self.taken, self.shares, self.used, self.counters, self.loads, self.ports):
            book.clear()
        for lifted in (self.gone, self.gone_whole, self.left):
            lifted.clear()

    # ----------------------------------------------------------------------------------------------- devices

    def free(self, device: Device) -> bool:
        """Nobody has it, counters aside. Of a shared device: nobody has the whole of it."""
        if device in self.taken:
            return False
        use = device.use
        if use is None or self.empty:
            return True
        if device.shared:
            return use.whole <= self.gone_whole.get(device, 0)
        return len(use.claims) <= self.gone.get(device, 0)

    def draws_fit(self, device: Device) -> bool:
        """Whether the counters it draws from have enough left."""
        if device.shared and device in self.shares:
            return True  # drawn already
        if self._drawn_before(device):
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
        self._add_share(device, consumption)
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

    def hold(self, device: Device, consumption: Consumption) -> bool:
        """Keep the device (or this much of it) from others, whoever has it now; False when it is kept already."""
        if not device.shared:
            if device in self.taken:
                return False
            self.taken.add(device)
            if device.draws and not self._drawn_before(device):
                self._draw(device, 1)
            return True
        self._add_share(device, consumption)
        return True

    def unhold(self, device: Device, consumption: Consumption) -> None:
        """Undo one `hold` that was True."""
        if device.shared or not self._drawn_before(device):
            self.release(device, consumption)
        else:
            self.taken.discard(device)

    def _add_share(self, device: Device, consumption: Consumption) -> None:
        """One more user of a shared device; the first draws its counters, unless a running claim does."""
        shares = self.shares.get(device, 0)
        if device.draws and not shares and not self._drawn_before(device):
            self._draw(device, 1)
        self.shares[device] = shares + 1
        self._consume(device, consumption, 1)

    def _drawn_before(self, device: Device) -> bool:
        """A running claim draws the device's counters, and goes on doing so."""
        use = device.use
        return use is not None and not self.empty and len(use.claims) > self.gone.get(device, 0)

    # ------------------------------------------------------------------------------------------ what would be free

    def lift(self, claim: AllocatedClaim, inventory: Inventory) -> None:
        """Count a running claim as given back. Not while this decision has given any of its devices away."""
        self._lift(claim, inventory, 1)

    def lower(self, claim: AllocatedClaim, inventory: Inventory) -> None:
        """Undo one `lift`, when all that was taken of its devices since is released."""
        self._lift(claim, inventory, -1)

    def _lift(self, claim: AllocatedClaim, inventory: Inventory, sign: int) -> None:
        seen: set[Device] = set()
        for held in claim.devices:
            device = None if held.admin else inventory.device(held.ref)
            if device is None or device.use is None:
                continue
            if held.whole and device.shared:
                self.gone_whole[device] = self.gone_whole.get(device, 0) + sign
            if held.consumed:
                used = self.used.setdefault(device, {})
                for name, value in held.consumed:
                    used[name] = used.get(name, 0) - sign * value
            if device in seen:
                continue
            seen.add(device)
            drawn = device.draws and (self._drawn_before(device) or device in self.shares)
            gone = self.gone.get(device, 0) + sign
            if gone:
                self.gone[device] = gone
            else:
                del self.gone[device]
            if device.draws and drawn != (self._drawn_before(device) or device in self.shares):
                self._draw(device, -sign)

    def lift_pod(self, node: NodeInfo, uid: str, needs: PodNeeds, sign: int = 1) -> None:
        """Count a pod as gone from its node, or (sign -1) as there again."""
        load = self.loads.setdefault(node, {})
        for name, value in needs.requests:
            load[name] = load.get(name, 0) - sign * value
        left = self.left.setdefault(node, set())
        if sign > 0:
            left.add(uid)
        else:
            left.discard(uid)

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
                gone = self.left.get(node, set())
                taken.extend(port for uid, ports in node.ports.items() if uid not in gone for port in ports)
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
