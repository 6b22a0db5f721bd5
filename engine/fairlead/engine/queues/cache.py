"""The scheduler cache: what is kept from one decision to the next, such as compiled claims, the best nodes, and what can be used at all.

So a decision costs what changed since the last one, not the size of the cluster. It is memory only: a decision with a fresh
cache gives the same plan. One cache belongs to one inventory and one node table, whose change logs it reads.
Shares are divided from what is usable, so broken hardware makes all shares smaller: else a queue would hold its part of the broken devices
in working ones. Not counted are free devices with a taint or under a taint rule, and free devices of nodes that are cordoned, not ready,
gone or about to go. What is in use counts as long as it is, unless it must go (NoExecute). Taints of nodes do not matter: some pods
tolerate them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead.engine.allocator.candidates import taints
from fairlead.engine.allocator.requests import Compiler
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.inventory.neighbour_counts import NeighbourCounts
from fairlead.engine.inventory.neighbours import NeighbourTable
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.inventory.nodes import tolerated
from fairlead.engine.inventory.pool import Pool
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.placement.model import NodeSnapshot
from fairlead.engine.placement.search.placer import Placer
from fairlead.engine.placement.shapes import Shapes
from fairlead.engine.placement.topology.domain_search import TopologyDomains
from fairlead.engine.placement.value.fragmentation import FragmentationScore
from fairlead.engine.placement.value.node_leftovers import NodeLeftovers
from fairlead.engine.queues.charges import Charge, Charges, add
from fairlead.engine.queues.gangs import PendingGang
from fairlead.engine.queues.tree import Tree
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.pods import Workload
from fairlead.engine.types.settings import FlavorSpec, Problem, QueueSpec
from fairlead.engine.types.values import Amount
from fairlead.kube import resource
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
        return node is not None and node.open

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


SPECS_BYTES_MAX = 64 * 2**20  # of distinct claim specs remembered, likewise
SHAPES_MAX = 20_000  # shapes and claims remembered before a new cache is begun


class ClusterTotals(NamedTuple):
    """What the cluster has: per flavor in its measure, per flavor in devices, and devices of any kind."""

    charge: Charge
    taken: Charge
    devices: int
    problems: list[Problem]


class SchedulerCache:
    """Everything that outlives a decision. `begin` before each."""

    def __init__(self, inventory: Inventory, nodes: NodeTable, classes: Mapping[str, resource.DeviceClass]) -> None:
        self.inventory = inventory
        self.nodes = nodes
        self.classes = dict(classes)
        self.selectors = Selectors()
        self.compiler = Compiler(self.classes)
        self.neighbours = NeighbourTable(nodes)
        self.shapes = Shapes(self.compiler, self.neighbours)
        self.node_snapshot = NodeSnapshot(self.selectors)
        self.placer = Placer(self.node_snapshot, self._ledger(), self.shapes)
        self.domains = TopologyDomains(self.placer, inventory)
        self._leftovers = NodeLeftovers(self.node_snapshot, self.placer.ledger)
        self.charges = Charges((), self.selectors, nodes)
        self.equivalence_classes: dict[object, object] = {}  # of pending gangs, see gangs.PendingGang
        self.pending: dict[str, tuple[PendingGang, Tree, Charges, int]] = {}  # by gang UID, as of the last decision
        self.ever: dict[object, tuple[bool | None, int, int]] = {}  # of `plan.gang`, by gang signature: fits when empty
        self._others: dict[str, tuple[Placer, TopologyDomains]] = {}
        self._cursors = (-1, -1)
        self._structure = (-1, -1)
        self._charged: tuple[tuple[FlavorSpec, ...], object] = ((), None)  # flavors, and the devices that nodes reach
        self._totals: tuple[Charges, object, ClusterTotals] | None = None
        self._usable = Usable(inventory, nodes)
        self._workload: Workload | None = None
        self._membership = -1
        self._tree: tuple[tuple[QueueSpec, ...], frozenset[str], Tree] | None = None
        self._evicting_taints: bool | None = None

    def serves(self, snapshot: Snapshot) -> bool:
        """Whether it is of these tables, and not too large."""
        return (
            self.inventory is snapshot.inventory
            and self.nodes is snapshot.nodes
            and self.classes == snapshot.classes
            and self.shapes.known + self.compiler.known + len(self.equivalence_classes) <= SHAPES_MAX
            and self.compiler.size_bytes <= SPECS_BYTES_MAX
        )

    def begin(self, flavors: tuple[FlavorSpec, ...], workload: Workload | None) -> None:
        """Look at the nodes that changed, and forget the last decision."""
        self.selectors.begin()
        self.placer.begin()
        structure = (self.inventory.structure, self.nodes.structure)
        if structure != self._structure:
            self._structure = structure
            self._evicting_taints = None
            self.ever.clear()
            self._others.clear()
        for name in self._changed():
            node = self.nodes.get(name)
            if node is None:
                self.node_snapshot.remove(name)
            else:
                self.node_snapshot.put(node, self.inventory.on_node(name, node.labels))
        self._charge(flavors)
        self._look(workload)

    def _charge(self, flavors: tuple[FlavorSpec, ...]) -> None:
        """What gangs cost at least depends on the devices that nodes reach: on nodes that come and go, too."""
        nodes = self.node_snapshot
        changes = nodes.has_network_attached or any(flavor.node_selector for flavor in flavors)
        reach = (self.inventory.structure, nodes.roster, nodes.membership if changes else -1)
        charged = (flavors, reach if flavors else None)
        if charged != self._charged:
            self._charged = charged
            self.charges = self.charges.renewed(flavors)

    def _look(self, workload: Workload | None) -> None:
        """Take in a new mix, and what changed of the nodes that it is seen against."""
        fragmentation = self.placer.fragmentation
        if workload is not self._workload:
            self._workload = workload
            self.placer.set_fragmentation(FragmentationScore.of(workload, self.compiler, self._leftovers))
        elif (
            fragmentation is not None and self._membership != self.node_snapshot.membership and fragmentation.refresh()
        ):
            self.placer.set_fragmentation(fragmentation)
        self._membership = self.node_snapshot.membership
        if self.placer.fragmentation is not None:
            self.placer.fragmentation.look()

    def _changed(self) -> Iterable[str]:
        by_devices = self.inventory.changes.since(self._cursors[0])
        by_pods = self.nodes.changes.since(self._cursors[1])
        self._cursors = (self.inventory.changes.cursor, self.nodes.changes.cursor)
        if by_devices is None or by_pods is None:
            return sorted(set(self.node_snapshot.by_name) | {node.name for node in self.nodes.all()})
        return dict.fromkeys([*by_devices, *by_pods])

    def tree(self, specs: tuple[QueueSpec, ...]) -> Tree:
        """The tree of these queues, for the flavors of now; call its `begin`."""
        resources = frozenset(flavor.name for flavor in self.charges.pods.flavors)
        if self._tree is None or self._tree[:2] != (specs, resources):
            self._tree = (specs, resources, Tree(specs, resources))
        return self._tree[2]

    def totals(self) -> ClusterTotals:
        """The cluster in every flavor, and its devices; worked out again when slices or flavors change."""
        pods = self.charges.pods
        structure = (self.inventory.structure, self.nodes.structure if pods else -1)
        if self._totals is None or self._totals[0] is not self.charges or self._totals[1] != structure:
            charge, taken = self.charges.total(self.inventory.pools_unordered()) if self.charges.flavors else ({}, {})
            devices = sum(len(pool.devices) for pool in self.inventory.pools_unordered())
            idle = [flavor for flavor in self.charges.flavors if devices and not taken.get(flavor.name)]
            problems = [_selects_nothing(flavor, devices) for flavor in idle]
            if pods:
                charge |= (of_pods := pods.total())
                missing = [flavor for flavor in pods.flavors if len(self.nodes) and not of_pods[flavor.name]]
                problems += [_no_node_has(flavor, len(self.nodes)) for flavor in missing]
            self._totals = (self.charges, structure, ClusterTotals(charge, taken, devices, problems))
        return self._totals[2]

    @property
    def evicting_taints(self) -> bool:
        """Whether a driver has published a NoExecute taint; looked at again when slices change."""
        if self._evicting_taints is None:
            self._evicting_taints = any(
                taint.effect == "NoExecute"
                for pool in self.inventory.pools_unordered()
                for device in pool.tainted
                for taint in device.kind.taints
            )
        return self._evicting_taints

    def usable(self, held: Mapping[str, Amount]) -> Charge:
        """What of the totals can be given to a gang, or is in use: shares are parts of this. `held`: by gangs."""
        return self._usable.of(self.totals().charge, self.charges) | self.charges.pods.usable(held)

    @property
    def empty(self) -> tuple[Placer, TopologyDomains]:
        """A placer for the same cluster with nothing running."""
        return self._other("empty", Ledger(empty=True))

    @property
    def pipelined(self) -> tuple[Placer, TopologyDomains]:
        """A placer for the cluster once evicted pods are gone; its ledger is the caller's to prepare."""
        return self._other("pipelined", self._ledger())

    def _ledger(self) -> Ledger:
        """On which terms of pods about other pods count; on that of the empty cluster they do not."""
        ledger = Ledger()
        ledger.neighbours = NeighbourCounts(self.neighbours)
        return ledger

    def _other(self, name: str, ledger: Ledger) -> tuple[Placer, TopologyDomains]:
        if name not in self._others:
            placer = Placer(self.node_snapshot, ledger, self.shapes)
            self._others[name] = (placer, TopologyDomains(placer, self.inventory))
        return self._others[name]


def _no_node_has(flavor: FlavorSpec, nodes: int) -> Problem:
    labelled = " with the labels of spec.nodeSelector" if flavor.node_selector else ""
    return Problem(
        kind="Flavor",
        name=flavor.name,
        reason="SelectsNothing",
        message=f"spec.resourceName: none of the {nodes} nodes{labelled} has {flavor.resource_name} in status.allocatable; compare it "
        "with `kubectl describe nodes`",
    )


def _selects_nothing(flavor: FlavorSpec, devices: int) -> Problem:
    having = f" with a capacity {flavor.capacity_name!r}" if flavor.capacity_name else ""
    return Problem(
        kind="Flavor",
        name=flavor.name,
        reason="SelectsNothing",
        message=f"spec.deviceSelector: selects none of the {devices} devices of the cluster{having}; compare it with "
        "`fairlead devices`",
    )
