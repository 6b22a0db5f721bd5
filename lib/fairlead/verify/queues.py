"""What queues hold, and what gangs cost at least: in a flavor's measure."""

from __future__ import annotations

from fractions import Fraction

from fairlead.api.flavor import selector_of
from fairlead.bounded.limits import fraction
from fairlead.evidence.document import Gang
from fairlead.evidence.published import Ask, Device, asks, consumption, full, is_admin, number, share, wants_all
from fairlead.evidence.queue_tree import QueueTree
from fairlead.kube import resource
from fairlead.verify.cluster import Cluster


class Queues(QueueTree):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.facts)
        self.cluster = cluster
        self.flavors = {flavor["metadata"]["name"]: flavor["spec"] for flavor in cluster.facts.flavors}

    def used(self, queue: str, flavor: str) -> Fraction:
        """By running gangs, leaving pods included, and by those of `given` that start or are nominated."""
        total, counted = Fraction(0), set[str]()
        claims = {claim.metadata.uid: claim for claim in self.cluster.facts.claims}
        for gang in self.cluster.facts.running:
            mine = {uid: claims[uid] for uid in gang.holds if uid in claims and uid not in counted}
            counted |= mine.keys()
            for claim in mine.values() if queue in self.path(self.of(gang)[0]) and not self.of(gang)[1] else ():
                for item in claim.status.allocation.devices.results if claim.status.allocation else ():
                    consumed = {name: number(value) for name, value in item.consumed_capacity.items()}
                    device = self.cluster.devices.get((item.driver, item.pool, item.device))
                    total += self.cost(flavor, device, consumed) if device and not item.admin_access else 0
        pending = {gang.id: gang for gang in self.cluster.facts.gangs}
        for given in self.cluster.given:
            if given.role != "Reserved" and queue in self.path(self.of(pending[given.gang])[0]):
                for each in given.devices:
                    consumed = {name: fraction(text) for name, text in each.consumes.items()}
                    total += self.cost(flavor, self.cluster.devices[each.device], consumed)
        return total

    def charge(self, gang: Gang, flavor: str) -> Fraction:
        """The least that its claims cost, wherever their devices are."""
        used = {key for member in gang.members for key in member.claims}
        specs = [claim.spec for claim in gang.claims if claim.allocation is None and claim.key in used]
        requests = [request for spec in specs for request in spec.devices.requests]
        return sum((min(self._least(flavor, ask) for ask in asks(request)) for request in requests), Fraction(0))

    def _least(self, flavor: str, ask: Ask) -> Fraction:
        """Of the nodes that have devices for it: of all of them where it wants all, else of the cheapest."""
        options: list[Fraction] = []
        for node in self.cluster.nodes.values():
            serving = [d for d in self.cluster.reached(node) if not self.cluster.filters(ask, d) - {"full"}]
            costs = [self.cost(flavor, device, consumption(ask, device) or {}) for device in serving]
            options += [sum(costs, Fraction(0)) if wants_all(ask) else min(costs) * ask.count] if costs else []
        return Fraction(0) if is_admin(ask) else min(options, default=Fraction(0))

    def cost(self, flavor: str, device: Device, consumed: dict[str, Fraction]) -> Fraction:
        spec = self.flavors[flavor]
        text = selector_of(spec.get("driver"), spec.get("deviceSelector"))
        if self.cluster.match(resource.DeviceSelector(cel=resource.CELDeviceSelector(expression=text)), device, "no"):
            return Fraction(0)
        driver = device.id[0]
        taken = {full(name, driver): value for name, value in consumed.items()}
        sizes = {full(name, driver): number(each.value) for name, each in device.spec.capacity.items()}
        if spec.get("measure") == "Capacity":
            return (taken if device.shared else sizes).get(full(spec["capacityName"], driver), Fraction(0))
        if spec.get("measure") != "Share":
            return Fraction(1)
        parts = [value / sizes[name] for name, value in taken.items() if sizes.get(name)] if device.shared else []
        return share(device, self.cluster.sizes) * max(parts, default=Fraction(1))
