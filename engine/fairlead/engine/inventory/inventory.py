"""Every device of the cluster and the claims that hold it: updated slice by slice and claim by claim, read by each decision.

A decision starts from these tables, not from lists of objects. Chooses nothing; only the controller updates it.
Keeps: devices come from valid pools only (slices of the node whose pool it is, highest generation, all slices there, no name twice, counters known); a changed
slice costs its pool, a changed claim its devices; every order is total: pools by (binding conditions last, driver, pool),
slices by name, devices as listed.
Source: structured allocator GatherPools; completeness is judged over all slices of a pool, also those of other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import WeakValueDictionary

from fairlead.api import names
from fairlead.engine.inventory.changes import ChangeLog
from fairlead.engine.inventory.counters import CounterLayout, NamedConsumption
from fairlead.engine.inventory.device import Device, DeviceInterner, DeviceUse
from fairlead.engine.inventory.layouts import NodeLayouts
from fairlead.engine.inventory.pool import NodeDevices, Pool, SliceEntry
from fairlead.engine.types.allocation import AllocatedClaim, AllocatedDevice
from fairlead.engine.types.values import DeviceRef
from fairlead.kube import resource


class Inventory:
    """Changed by the `set_` and `drop_` methods only; everything else reads."""

    def __init__(self) -> None:
        self._interner = DeviceInterner()
        # Those that pools have: what a driver publishes and takes back leaves nothing.
        self._layouts: WeakValueDictionary[tuple[NamedConsumption, frozenset[NamedConsumption]], CounterLayout] = (
            WeakValueDictionary()
        )
        self._node_layouts = NodeLayouts()
        self._pools: dict[tuple[str, str], Pool] = {}
        self._slice_pool: dict[str, tuple[str, str]] = {}  # slice name: its pool's key
        self._ignored: dict[
            tuple[str, str], tuple[str, ...]
        ] = {}  # pool key: which of its slices do not count, or that it does not, and why
        self._uses: dict[tuple[str, str], dict[str, DeviceUse]] = {}  # pool key: device name: use
        self._claims: dict[str, AllocatedClaim] = {}
        self._rules: dict[str, resource.DeviceTaintRuleSpec] = {}  # by name
        self._releasing: dict[tuple[str, str], list[Device]] = {}  # pool key: devices that their node is releasing
        self._pools_on: dict[str, dict[tuple[str, str], Pool]] = {}  # node name: pools with local devices there
        self._network_attached: dict[tuple[str, str], Pool] = {}
        self._on_node: dict[str, NodeDevices] = {}
        self.version = 0  # grows with every change
        self.structure = 0  # grows when slices change; not with claims
        self.changes: ChangeLog[str] = ChangeLog()  # names of nodes whose devices, or their claims, changed
        self.claim_changes: ChangeLog[str] = ChangeLog()  # UIDs of claims that changed, came or went
        self.slice_changes: ChangeLog[str] = ChangeLog()  # names of slices that changed, came or went

    # ------------------------------------------------------------------------------------------------- updates

    def set_slice(self, slice_: resource.ResourceSlice) -> None:
        """A slice was published or changed. A slice is identified by its name."""
        self.set_slices((slice_,))

    def set_slices(self, slices: Iterable[resource.ResourceSlice]) -> None:
        """Many at once: each pool is rebuilt once."""
        touched: set[tuple[str, str]] = set()
        for slice_ in slices:
            name = slice_.metadata.name
            self.slice_changes.note(name)
            key = (slice_.spec.driver, slice_.spec.pool.name)
            before = self._slice_pool.get(name)
            if before is not None and before != key:
                self._pools[before].slices.pop(name, None)
                touched.add(before)
            pool = self._pools.get(key)
            if pool is None:
                pool = self._pools[key] = Pool(*key)
            pool.slices[name] = SliceEntry(pool, slice_, self._interner)
            self._slice_pool[name] = key
            touched.add(key)
        self._rebuild(touched)

    def drop_slice(self, name: str) -> None:
        key = self._slice_pool.pop(name, None)
        if key is not None:
            self.slice_changes.note(name)
            self._pools[key].slices.pop(name, None)
            self._rebuild({key})

    def set_claim(self, claim: resource.ResourceClaim) -> None:
        """A claim was written or changed; its devices are read from status.allocation."""
        allocated = AllocatedClaim.of(claim)
        if allocated is None:
            self.drop_claim(claim.metadata.uid)
        else:
            self.set_allocated(allocated)

    def set_allocated(self, allocated: AllocatedClaim) -> None:
        """A claim with an allocation, as the inventory counts it."""
        if self._claims.get(allocated.uid) == allocated:
            return
        self.drop_claim(allocated.uid)
        self._claims[allocated.uid] = allocated
        self._count(allocated, 1)

    def drop_claim(self, uid: str) -> None:
        allocated = self._claims.pop(uid, None)
        if allocated is not None:
            self._count(allocated, -1)

    def set_taint_rule(self, rule: resource.DeviceTaintRule) -> None:
        """A DeviceTaintRule (1.37) was made or changed: its taint comes on top of those that drivers publish."""
        self._rules[rule.metadata.name] = rule.spec
        self._invalidate()

    def drop_taint_rule(self, name: str) -> None:
        if self._rules.pop(name, None) is not None:
            self._invalidate()

    def set_releasing(self, device: Device, releasing: bool) -> None:
        """What its driver published of it is over, or (True) holds again: for simulations of what comes."""
        claimed = device.use is not None and bool(device.use.claims)
        if releasing or claimed:
            device.use = device.use or DeviceUse()
            device.use.releasing = releasing
        else:
            device.use = None
        self.version += 1
        if device.node is not None:
            self.changes.note(device.node)

    def _invalidate(self) -> None:
        self.version += 1
        self.structure += 1
        self._on_node.clear()
        self.changes.note_all()

    # ------------------------------------------------------------------------------------------------- reads

    def pools(self) -> list[Pool]:
        return sorted(self._pools.values(), key=lambda pool: pool.sort_key)

    @property
    def rules(self) -> tuple[resource.DeviceTaintRuleSpec, ...]:
        """The DeviceTaintRules, in name order."""
        return tuple(self._rules[name] for name in sorted(self._rules))

    @property
    def rules_by_name(self) -> Mapping[str, resource.DeviceTaintRuleSpec]:
        return self._rules

    def slice_names(self) -> Iterable[str]:
        """The names of all slices, of every generation, in no order."""
        return self._slice_pool.keys()

    def slice_entry(self, name: str) -> SliceEntry | None:
        """What is kept of a slice; it never changes, a republished slice has another."""
        key = self._slice_pool.get(name)
        return None if key is None else self._pools[key].slices[name]

    def ignored_slices(self) -> list[str]:
        """Why slices do not count that name another node's pool, and pools with more devices than a node has; in order."""
        return [text for key in sorted(self._ignored) for text in self._ignored[key]]

    def pools_unordered(self) -> Iterable[Pool]:
        """Every pool, in no order: for sums."""
        return self._pools.values()

    def pool(self, driver: str, name: str) -> Pool | None:
        return self._pools.get((driver, name))

    def device(self, ref: DeviceRef) -> Device | None:
        pool = self._pools.get((ref.driver, ref.pool))
        return pool.devices.get(ref.device) if pool is not None else None

    def releasing(self) -> list[Device]:
        """Devices that their node still has prepared for claims that are gone: no claim is given them meanwhile. In order."""
        return [device for key in sorted(self._releasing) for device in self._releasing[key] if device.releasing]

    def tainted_with(self, ref: DeviceRef) -> Device | None:
        """The device whose taints are this one's: itself; of a MIG device that is not published, its GPU."""
        found = self.device(ref)
        if found is None and ref.driver == names.DRIVER:
            gpu = DeviceRef(ref.driver, ref.pool, ref.device.partition("-mig-")[0])
            found = None if gpu == ref else self.device(gpu)
        return found

    def claim(self, uid: str) -> AllocatedClaim | None:
        return self._claims.get(uid)

    def claims(self) -> Iterable[AllocatedClaim]:
        return self._claims.values()

    def on_node(self, node: str, labels: Mapping[str, str]) -> NodeDevices:
        """What the node reaches; derived at the first call, and again when a pool or the labels changed."""
        known = self._on_node.get(node)
        if known is not None and (known.labels is labels or not self._network_attached or known.labels == labels):
            return known
        pools = {**self._pools_on.get(node, {}), **self._network_attached}
        ordered = sorted(pools.values(), key=lambda pool: pool.sort_key)
        found = self._on_node[node] = NodeDevices(ordered, node, labels, self.rules, self._node_layouts)
        return found

    # ------------------------------------------------------------------------------------------------- internal

    def _rebuild(self, keys: Iterable[tuple[str, str]]) -> None:
        self.version += 1
        self.structure += 1
        for key in keys:
            pool = self._pools[key]
            self._unlink(key, pool)
            self._ignored.pop(key, None)
            self._releasing.pop(key, None)
            if not pool.slices:
                del self._pools[key]
                continue
            pool.rebuild(self._uses.get(key, {}), self._layout, self.structure)
            if pool.strangers or pool.crowded is not None:
                self._ignored[key] = pool.ignored()
            if releasing := [device for device in pool.devices.values() if device.releasing]:
                self._releasing[key] = releasing
            for node in pool.local:
                self._pools_on.setdefault(node, {})[key] = pool
                self._on_node.pop(node, None)
                self.changes.note(node)
            if pool.network_attached:
                self._network_attached[key] = pool
                self._on_node.clear()
                self.changes.note_all()

    def _layout(self, content: NamedConsumption, consumed: frozenset[NamedConsumption]) -> CounterLayout:
        key = (content, consumed)
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = CounterLayout(content, consumed)
        return found

    def _unlink(self, key: tuple[str, str], pool: Pool) -> None:
        for node in pool.local:
            self._on_node.pop(node, None)
            self.changes.note(node)
            pools = self._pools_on.get(node)
            if pools is not None:
                pools.pop(key, None)
                if not pools:
                    del self._pools_on[node]
        if self._network_attached.pop(key, None) is not None:
            self._on_node.clear()
            self.changes.note_all()

    def _count(self, claim: AllocatedClaim, sign: int) -> None:
        """Count the claim (sign 1), or no longer count it (-1)."""
        self.version += 1
        self.claim_changes.note(claim.uid)
        for item in claim.devices:
            if item.admin:
                continue
            key = (item.ref.driver, item.ref.pool)
            uses = self._uses.setdefault(key, {})
            pool = self._pools.get(key)
            device = pool.devices.get(item.ref.device) if pool is not None else None
            use = uses.get(item.ref.device)
            if use is None:
                use = uses[item.ref.device] = DeviceUse(releasing=device is not None and device.releasing)
            was_used = bool(use.claims)
            _count_use(use, claim.uid, item, sign)
            if device is not None:
                if device.node is None:
                    self.changes.note_all()
                else:
                    self.changes.note(device.node)
                device.use = use
                if was_used != bool(use.claims):
                    device.pool.consume(device.counter_consumption, sign)
            if not use.claims:
                del uses[item.ref.device]
                if device is not None and not use.releasing:
                    device.use = None
                if not uses:
                    del self._uses[key]


def _count_use(use: DeviceUse, uid: str, item: AllocatedDevice, sign: int) -> None:
    use.whole += sign * item.whole
    results = use.claims.get(uid, 0) + sign
    if results:
        use.claims[uid] = results
    else:
        use.claims.pop(uid, None)
    for name, value in item.consumed:
        use.consumed[name] = use.consumed.get(name, 0) + sign * value
