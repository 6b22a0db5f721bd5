"""What is taken of the cluster, and what is left: devices, counters and capacities, and room on nodes."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from fairlead.api.certificate import DeviceId, Given
from fairlead.bounded.limits import fraction
from fairlead.evidence.document import Facts
from fairlead.evidence.node_fit import Port, milli, needs, pinned, ports
from fairlead.evidence.published import Device, full, number, pools
from fairlead.kube import core


class Holdings:
    """With what is `given` to others taken."""

    def __init__(self, facts: Facts, given: tuple[Given, ...]) -> None:
        self.facts, self.given = facts, given
        self.nodes = {node.metadata.name: node for node in facts.nodes}
        self.holders: dict[DeviceId, set[str]] = defaultdict(set)  # claims, namespace/name
        self.whole: dict[DeviceId, set[str]] = defaultdict(set)  # those of them without a share ID
        self.taken: dict[DeviceId, set[str]] = defaultdict(set)  # by gangs of `given`
        self.consumed: dict[tuple[DeviceId, str], Fraction] = defaultdict(Fraction)  # by qualified name of the capacity
        self._hold()
        self.devices: dict[DeviceId, Device] = {}
        self.broken: list[Device] = []  # of pools that cannot be used
        self.sizes: dict[tuple[str, str, str, str], Fraction] = {}  # of counters: driver, pool, counter set, counter
        for devices, counters, usable in pools(facts.slices):
            self.broken += [] if usable else devices
            self.devices |= {device.id: device for device in devices if usable}
            self.sizes |= {(*devices[0].id[:2], *key): value for key, value in counters.items() if devices and usable}
        self._at: dict[str | None, list[Device]] = defaultdict(list)  # by node; None: those without one of their own
        for device in self.devices.values():
            self._at[device.where.node_name or None].append(device)
        self.left = dict(self.sizes)
        for device in filter(self.in_use, self.devices.values()):
            for key, drawn in device.draws.items():
                self.left[(*device.id[:2], *key)] -= drawn
        self.used: dict[tuple[str, str], int] = defaultdict(int)  # node, resource: thousandths
        self.ports: dict[str, set[Port]] = defaultdict(set)
        specs = {member.uid: member.spec for gang in facts.gangs for member in gang.members}
        placed = [(pinned(pod), pod.spec) for pod in facts.pods if not pod.finished]
        for node, spec in [*placed, *((node, specs[uid]) for each in given for uid, node in each.pods.items())]:
            self.ports[node] |= ports(spec)
            for name, value in needs(spec).items():
                self.used[node, name] += value

    def _hold(self) -> None:
        for claim in self.facts.claims:
            for item in claim.status.allocation.devices.results if claim.status.allocation else ():
                key = (item.driver, item.pool, item.device)
                if not item.admin_access:
                    self.holders[key].add(claim.metadata.key)
                    self.whole[key] |= {claim.metadata.key} if item.share_id is None else set()
                    for name, value in item.consumed_capacity.items():
                        self.consumed[key, full(name, item.driver)] += number(value)
        for gang in self.given:
            for share in gang.devices:
                self.taken[share.device].add(gang.gang)
                for name, text in share.consumes.items():
                    self.consumed[share.device, full(name, share.device[0])] += fraction(text)

    def reached(self, node: core.Node) -> list[Device]:
        attached = [device for device in self._at[None] if device.reached_from(node)]
        return self._at[node.metadata.name] + attached

    def in_use(self, device: Device) -> bool:
        return bool(self.holders[device.id] or self.taken[device.id])

    def held(self, device: Device) -> bool:
        """Whether others have all of it."""
        return bool(self.whole[device.id]) if device.shared else self.in_use(device)

    def overdrawn(self, device: Device) -> list[tuple[str, str]]:
        """The counters that have too little left for it."""
        known = self.in_use(device) and device.shared
        return [key for key, value in device.draws.items() if not known and self.left[(*device.id[:2], *key)] < value]

    def free_capacity(self, device: Device, name: str) -> Fraction:
        return number(device.spec.capacity[name].value) - self.consumed[device.id, full(name, device.id[0])]

    def room(self, node: core.Node, name: str) -> int:
        """Thousandths left; a node that says nothing of itself takes any number of pods."""
        unlimited = 1 << 40 if name == "pods" and not node.status.allocatable else 0
        return unlimited + milli(node.status.allocatable.get(name, 0)) - self.used[node.metadata.name, name]
