"""What a queue is charged for devices, and for pods (`pod_charges`): per flavor, in the flavor's measure.

Order, limits, fair share and status all count by this. A queue is charged for what was really allocated; a pending gang counts
with the least that it could get, and where it takes back what its queue deserves with each kind that it could get. Admin access
is free; a claim that several pods share is charged once.
A partition's share is its largest part of its parent's counters (of a MIG device without counters: `mig_share`); a shared device's is its largest part of any capacity.
Example, measure Share: a 2g.20gb slice takes 2 of 8 memory slices and 28 of 98 multiprocessors, so it counts 28/98 = 2/7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest, DeviceFilter
from fairlead.engine.allocator.result import Pick
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.models import mig_share
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.inventory.pool import Pool
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.placement.model import NodeSnapshot, UnitPlacement
from fairlead.engine.placement.shapes import PlacementUnit
from fairlead.engine.queues.pod_charges import Flavors, PodCharges
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.settings import FlavorSpec, Problem
from fairlead.engine.types.values import Amount, Consumption, amount, qualified

# Flavor name to amount. Zero amounts are left out.
Charge = dict[str, "Amount"]

ALLOCATED_MAX = 200_000  # charges of allocated claims remembered
NO_DEVICES: Mapping[Device, bool] = MappingProxyType({})


def add(total: Charge, charge: Mapping[str, Amount], times: int = 1) -> None:
    for flavor, value in charge.items():
        total[flavor] = total.get(flavor, 0) + times * value


def chargeable(placed: Iterable[UnitPlacement]) -> Iterator[Pick]:
    """The devices of these units, one by one, without those by admin access."""
    return (pick for unit in placed for picks in unit.picks for pick in picks if not pick.request.admin)


class Charges:
    """The charges in the flavors of one decision; those of devices and allocated claims are remembered."""

    def __init__(self, flavors: Sequence[FlavorSpec], selectors: Selectors, nodes: NodeTable | None = None) -> None:
        """`nodes`: with the pods that run; None: those are not known, and not charged."""
        self.problems: list[Problem] = []
        self.flavors: list[FlavorSpec] = []  # of devices
        self.pods = PodCharges(
            sorted((each for each in flavors if each.measure == "Resource"), key=lambda each: each.name), nodes
        )
        self._selectors = selectors
        self._nodes = nodes
        self._devices: dict[Device, Charge] = {}
        # What one device may cost, each once: of any node, or of those whose pods these flavors count.
        self._kinds: dict[tuple[DeviceFilter, Flavors | None], list[Charge]] = {}
        self._places: dict[tuple[PodNeeds, tuple[CompiledClaim, ...]], list[Flavors]] = {}
        self._least: dict[DeviceFilter, Charge] = {}  # one device
        self._least_all: dict[DeviceFilter, Charge] = {}  # all of a node
        self._allocated: dict[str, tuple[AllocatedClaim, Charge]] = {}
        self._pools: dict[Pool, tuple[int, Charge, Charge]] = {}  # as of which version of the pool
        for flavor in sorted(flavors, key=lambda flavor: flavor.name):
            if flavor.measure == "Resource":
                continue
            problem = selectors.problem(flavor.device_selector)
            if problem is None:
                self.flavors.append(flavor)
            else:
                message = f"spec.deviceSelector: {problem}; it charges nothing"
                self.problems.append(
                    Problem(kind="Flavor", name=flavor.name, reason="InvalidSelector", message=message)
                )

    def renewed(self, flavors: Sequence[FlavorSpec]) -> Charges:
        """The charges of these flavors and the devices that exist now; those of unchanged pools are kept."""
        new = Charges(flavors, self._selectors, self._nodes)
        if new.flavors == self.flavors:
            new._pools = self._pools
        if new.pods.flavors == self.pods.flavors:
            new.pods = self.pods
        return new

    @property
    def unavoidable(self) -> frozenset[str]:
        """Those of which a gang costs the same wherever it is placed."""
        return frozenset(flavor.name for flavor in self.pods.flavors) - self.pods.labelled

    @property
    def all_flavors(self) -> list[FlavorSpec]:
        """In name order."""
        return sorted([*self.flavors, *self.pods.flavors], key=lambda flavor: flavor.name)

    def total(self, pools: Iterable[Pool]) -> tuple[Charge, Charge]:
        """What all pools are in every flavor, and how many devices each flavor's selector takes."""
        total: Charge = {}
        devices: Charge = {}
        known = self._pools
        self._pools = {}
        for pool in pools:
            entry = known.get(pool)
            if entry is None or entry[0] != pool.built:
                taken: Charge = {}
                for device in pool.devices.values() if pool.problem is None else ():
                    add(taken, dict.fromkeys(self.of_device(device, tuple(device.kind.totals.items())), 1))
                entry = (pool.built, self.of_pool(pool) if pool.problem is None else {}, taken)
            self._pools[pool] = entry
            add(total, entry[1])
            add(devices, entry[2])
        return total, devices

    def selector(self, flavor: str) -> str:
        return next(spec.device_selector for spec in self.flavors if spec.name == flavor)

    def of_device(self, device: Device, consumption: Consumption = ()) -> Charge:
        """One device, or this much of a shared one."""
        if not device.shared:
            charge = self._devices.get(device)
            if charge is None:
                charge = self._devices[device] = self._charge(device, ())
            return charge
        return self._charge(device, consumption)

    def of_pool(self, pool: Pool, in_doubt: Mapping[Device, bool] = NO_DEVICES) -> Charge:
        """All of a pool. Devices that draw from shared counters exclude one another: the most that each set can give counts.

        That is, per set of counters, the largest charge of one of its devices times how often such devices fit into it.
        `in_doubt`: devices that no gang can be given now; those that are True are in use and count by themselves, the others
        not at all.
        """
        total: Charge = {}
        by_set: dict[str, Charge] = {}
        in_use: dict[str, Charge] = {}  # by set: what counts by itself
        for device in pool.devices.values():
            counts = in_doubt.get(device)
            if counts is False:
                continue
            charge = self.of_device(device, tuple(device.kind.totals.items()))
            if not device.counter_consumption:
                add(total, charge)
                continue
            name = device.pool.layout.counter_set_of(device.counter_consumption)
            if counts:
                add(in_use.setdefault(name, {}), charge)
                continue
            part = device.pool.layout.share(device.counter_consumption) if charge else 0
            times = 1 // part if part else 0
            best = by_set.setdefault(name, {})
            for flavor, value in charge.items():
                best[flavor] = max(best.get(flavor, 0), value * times)
        for name in by_set.keys() | in_use.keys():
            best, used = by_set.get(name, {}), in_use.get(name, {})
            for flavor in best.keys() | used.keys():
                total[flavor] = total.get(flavor, 0) + max(best.get(flavor, 0), used.get(flavor, 0))
        return total

    def whole(self, pool: Pool) -> Charge:
        """The same, remembered from `total`."""
        known = self._pools.get(pool)
        return known[1] if known is not None and known[0] == pool.built else self.of_pool(pool)

    def of_allocated(self, claim: AllocatedClaim, inventory: Inventory) -> Charge:
        """A claim that is allocated. Devices that are published no more cost nothing."""
        if not self.flavors:
            return {}
        known = self._allocated.get(claim.uid)
        if known is not None and known[0] is claim:
            return known[1]
        if len(self._allocated) >= ALLOCATED_MAX:
            self._allocated.clear()
        total: Charge = {}
        for held in claim.devices:
            device = None if held.admin else inventory.device(held.ref)
            if device is not None:
                add(total, self.of_device(device, held.consumed))
        self._allocated[claim.uid] = (claim, total)
        return total

    def gpus_of_allocated(self, claim: AllocatedClaim, inventory: Inventory) -> Amount:
        """Whole GPUs that a claim holds, a partition as its share: what a budget counts. See `_gpus`."""
        held = ((inventory.device(each.ref), each.consumed) for each in claim.devices if not each.admin)
        return sum(self._gpus(device, consumed) for device, consumed in held if device is not None)

    def gpus_of_placed(self, placed: Iterable[UnitPlacement]) -> Amount:
        """The same, of devices that were just allocated to a gang."""
        return sum(self._gpus(pick.device, pick.consumption) for pick in chargeable(placed))

    def _gpus(self, device: Device, consumption: Consumption) -> Amount:
        """Its share; 0 of what no flavor takes, such as a network card, where there are flavors."""
        return share(device, consumption) if not self.flavors or self.of_device(device, consumption) else 0

    def of_placed(self, placed: Iterable[UnitPlacement]) -> Charge:
        total: Charge = {}
        placed = list(placed)
        for pick in chargeable(placed):
            add(total, self.of_device(pick.device, pick.consumption))
        if self.pods:
            pods = Counter((needs, self.pods.at(each.node.info)) for each in placed for needs in each.unit.shape.needs)
            add(total, self.pods.together(pods))
        return total

    def least(self, units: Iterable[PlacementUnit], node_snapshot: NodeSnapshot) -> Charge:
        """What the units cost at least, flavor by flavor: no allocation is cheaper in any flavor."""
        total: Charge = {}
        units = list(units)
        for unit in units if self.flavors else ():
            for claim in unit.shape.claims:
                for alternatives in claim.alternatives:
                    add(total, self.least_of(alternatives, node_snapshot))
        add(total, self.least_of_pods(units, node_snapshot))
        return total

    def least_of_pods(
        self, units: Iterable[PlacementUnit], node_snapshot: NodeSnapshot, at: Flavors | None = None
    ) -> Charge:
        """What their pods cost at least; `at`: those that may be on nodes of these flavors cost what they do there."""
        total: Charge = {}
        if not self.pods:
            return total
        for (needs, claims), count in Counter(pod for unit in units for pod in _pods(unit)).items():
            places = self._places_of(needs, claims, node_snapshot)
            among = [at] if at in places else places
            add(total, self._cheapest([dict(self.pods.of(needs, each)) for each in among]), count)
        return total

    def _places_of(
        self, needs: PodNeeds, claims: tuple[CompiledClaim, ...], node_snapshot: NodeSnapshot
    ) -> list[Flavors]:
        """Which flavors count pods on the nodes that may take such a pod, whatever runs there; each set of them once."""
        if not self.pods.labelled:
            return [self.pods.flavors]
        known = self._places.get((needs, claims))
        if known is None:
            requests = [alternatives for claim in claims for alternatives in claim.alternatives]
            found = {
                self.pods.at(node.info): None
                for node in node_snapshot.all
                if node.info.kind_refuses(needs.constraints, fresh=False) is None
                and all(any(node_snapshot.candidates(node, each).devices for each in found) for found in requests)
            }
            known = self._places[needs, claims] = sorted(found, key=_names)
        return known

    def _least_of(self, request: CompiledRequest, node_snapshot: NodeSnapshot) -> Charge:
        if request.admin:
            return {}
        if not request.count:
            return self._least_of_all(request, node_snapshot)
        one = self._least.get(request.filter)
        if one is None:
            one = self._least[request.filter] = self._cheapest(self._kinds_of(request, node_snapshot))
        return {flavor: value * request.count for flavor, value in one.items()}

    def flavors_of(self, units: Iterable[PlacementUnit], node_snapshot: NodeSnapshot) -> frozenset[str]:
        """Flavors of which the units may cost something, wherever they are placed."""
        if not self.flavors:
            return frozenset()
        requests = {
            request
            for shape in {unit.shape for unit in units}
            for claim in shape.claims
            for alternatives in claim.alternatives
            for request in alternatives
            if not request.admin
        }
        return frozenset(
            flavor for request in requests for kind in self._kinds_of(request, node_snapshot) for flavor in kind
        )

    def flavors_of_request(self, request: CompiledRequest, node_snapshot: NodeSnapshot) -> frozenset[str]:
        """Flavors of devices that serve it on some node, whatever is in use."""
        return frozenset(flavor for kind in self._kinds_of(request, node_snapshot) for flavor in kind)

    def is_served(self, request: CompiledRequest, node_snapshot: NodeSnapshot) -> bool:
        """Whether some node has a device that serves it, of a flavor or not, whatever is in use."""
        return bool(self._kinds_of(request, node_snapshot))

    def least_of(self, alternatives: Sequence[CompiledRequest], node_snapshot: NodeSnapshot) -> Charge:
        """What one request costs at least."""
        return self._cheapest([self._least_of(request, node_snapshot) for request in alternatives])

    def choices(self, units: Sequence[PlacementUnit], node_snapshot: NodeSnapshot) -> tuple[Charge, ...]:
        """What the units cost at least on devices of the same flavors, once for each such set of flavors.

        () where all devices that may serve them are of the same: then `least` says it. Example: 8 GPUs of any model, where
        one flavor counts H100s and none counts L40Ss: the least is nothing, and on H100s it is 8. Likewise of nodes whose pods
        are of the same flavors.
        """
        pods = {pod: None for unit in units for pod in _pods(unit)} if self.pods.labelled else {}
        places = sorted({at: None for pod in pods for at in self._places_of(*pod, node_snapshot)}, key=_names)
        if len(places) < 2:
            return self._choices(units, node_snapshot, None)
        return tuple(found for at in places for found in self._choices(units, node_snapshot, at))

    def _choices(
        self, units: Sequence[PlacementUnit], node_snapshot: NodeSnapshot, at: Flavors | None
    ) -> tuple[Charge, ...]:
        """On any nodes; or on those whose pods these flavors count, then also where all devices there are of the same."""
        if not self.flavors and at is None:
            return ()
        requests = [
            request
            for unit in units
            for claim in unit.shape.claims
            for alternatives in claim.alternatives
            for request in alternatives[:1]
            if request.count and not request.admin
        ]
        among = {frozenset(kind) for request in set(requests) for kind in self._kinds_of(request, node_snapshot, at)}
        if len(among) < 2 and at is None:
            return ()
        found: list[Charge] = []
        for flavors in sorted(among - {frozenset()}, key=sorted) or [frozenset[str]()]:
            total: Charge = {}
            for request in requests if self.flavors else ():
                kinds = self._kinds_of(request, node_snapshot, at)
                one = self._cheapest([kind for kind in kinds if kind.keys() == flavors] or kinds)
                add(total, one, request.count)
            add(total, self.least_of_pods(units, node_snapshot, at))
            found.append(total)
        return tuple(found)

    def _kinds_of(
        self, request: CompiledRequest, node_snapshot: NodeSnapshot, at: Flavors | None = None
    ) -> list[Charge]:
        known = self._kinds.get((request.filter, at))
        if known is None:
            devices: dict[Device, Consumption] = {}
            for node in node_snapshot.all:
                if at is not None and self.pods.at(node.info) != at:
                    continue
                found = node_snapshot.candidates(node, request)
                for device in found.devices:
                    devices[device] = found.consumption.get(device, ())
            different = {tuple(sorted(self.of_device(*item).items())) for item in devices.items()}
            known = self._kinds[request.filter, at] = [dict(items) for items in different]
        return known

    def _least_of_all(self, request: CompiledRequest, node_snapshot: NodeSnapshot) -> Charge:
        """All devices of the node where that is least: what the claim would get there."""
        known = self._least_all.get(request.filter)
        if known is None:
            whole: list[Charge] = []
            for node in node_snapshot.all:
                found = node_snapshot.candidates(node, request)
                if found.devices:
                    whole.append({})
                for device in found.devices:
                    add(whole[-1], self.of_device(device, found.consumption.get(device, ())))
            known = self._least_all[request.filter] = self._cheapest(whole)
        return known

    @staticmethod
    def _cheapest(charges: list[Charge]) -> Charge:
        if not charges:
            return {}
        common = set(charges[0]).intersection(*charges)
        return {flavor: min(charge[flavor] for charge in charges) for flavor in sorted(common)}

    def _charge(self, device: Device, consumption: Consumption) -> Charge:
        charge: Charge = {}
        for flavor in self.flavors:
            if self._selectors.evaluate((flavor.device_selector,), device) is True:
                value = _measured(flavor, device, consumption)
                if value:
                    charge[flavor.name] = value
        return charge


def _pods(unit: PlacementUnit) -> Iterator[tuple[PodNeeds, tuple[CompiledClaim, ...]]]:
    """Its pods; a claim that several share may be elsewhere than some of them."""
    claims = unit.shape.claims if len(unit.shape.needs) == 1 else ()
    return ((needs, claims) for needs in unit.shape.needs)


def _names(flavors: Flavors) -> list[str]:
    return [flavor.name for flavor in flavors]


def _measured(flavor: FlavorSpec, device: Device, consumption: Consumption) -> Amount:
    if flavor.measure == "Devices":
        return 1
    if flavor.measure == "Share":
        return share(device, consumption)
    wanted = qualified(flavor.capacity_name or "", device.pool.driver)
    if device.shared:
        taken = {qualified(name, device.pool.driver): value for name, value in consumption}
        return taken.get(wanted, 0)
    for name, entry in device.kind.spec.capacity.items():
        if qualified(name, device.pool.driver) == wanted:
            return amount(entry.value)
    return 0


def share(device: Device, consumption: Consumption) -> Amount:
    """The part of a whole GPU that this is; 1 for a whole one."""
    part: Amount = 1
    if device.counter_consumption:
        part = device.pool.layout.share(device.counter_consumption)
    elif (mig := mig_share(device)) is not None:
        part = mig
    if device.shared and consumption:
        driver = device.pool.driver
        part *= max(
            (
                Fraction(value) / device.kind.totals[qualified(name, driver)]
                for name, value in consumption
                if device.kind.totals.get(qualified(name, driver))
            ),
            default=1,
        )
    return int(part) if part == int(part) else part
