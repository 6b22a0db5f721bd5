"""Every device of the cluster and who has it: kept slice by slice and claim by claim, read by each decision.

Exists so that a decision starts from tables, not from lists of objects. Chooses nothing. Fed by the rim only.
Keeps: devices come from valid pools only (highest generation, all slices there, no name twice, counters known); a changed
slice costs its pool, a changed claim its devices; every order is total: pools by (binding conditions last, driver, pool),
slices by name, devices as listed.
Source: structured allocator GatherPools; research: completeness is judged over all slices of a pool, also those of other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairlead.engine.inventory.changes import ChangeLog
from fairlead.engine.inventory.counters import CounterLayout, NamedConsumption
from fairlead.engine.inventory.device import Device, DeviceInterner, DeviceUse
from fairlead.engine.inventory.pool import Pool, SliceEntry
from fairlead.engine.types.amounts import amount, qualified
from fairlead.engine.types.references import DeviceRef
from fairlead.kube.quantity import QuantityError

if TYPE_CHECKING:
    from fairlead.engine.types.amounts import Amount
    from fairlead.kube import resource

__all__ = ["AllocatedClaim", "AllocatedDevice", "Device", "DeviceUse", "Inventory", "NodeDevices", "Pool"]


LAYOUTS_MAX = 10_000  # remembered for sharing


class NodeDevices:
    """The devices that a node can reach, in order, and the pools that would give more if they were whole and valid."""

    __slots__ = ("cache", "devices", "labels", "local_only", "problems", "rules")

    def __init__(
        self, pools: list[Pool], node: str, labels: Mapping[str, str], rules: tuple[resource.DeviceTaintRuleSpec, ...]
    ) -> None:
        self.rules = rules
        self.labels = labels
        self.problems: list[Pool] = []
        self.local_only = True
        devices: list[Device] = []
        for pool in pools:
            here = list(pool.local.get(node, ()))
            if pool.roaming:
                roaming = [device for device in pool.roaming if device.reaches(node, labels)]
                if roaming:
                    self.local_only = False
                    here = sorted(here + roaming, key=_order)
            if pool.problem is not None:
                if here:
                    self.problems.append(pool)
                continue
            devices.extend(here)
        self.devices = tuple(devices)
        self.cache: dict[
            object, object
        ] = {}  # what the allocator derived for this node; gone when the node's devices change


def _order(device: Device) -> int:
    return device.order


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One result of an allocated claim, as far as bookkeeping needs it."""

    ref: DeviceRef
    admin: bool
    whole: bool
    consumed: tuple[tuple[str, Amount], ...]  # qualified names
    tolerations: tuple[resource.DeviceToleration, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    uid: str
    namespace: str
    name: str
    devices: tuple[AllocatedDevice, ...]
    counted: int  # of them, without those held by admin access

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Inventory:
    """The table. Mutated by the four `set_`/`drop_` methods; everything else only reads."""

    def __init__(self) -> None:
        self._sharer = DeviceInterner()
        self._layouts: dict[NamedConsumption, CounterLayout] = {}
        self._pools: dict[tuple[str, str], Pool] = {}
        self._slice_pool: dict[str, tuple[str, str]] = {}  # slice name: its pool's key
        self._uses: dict[tuple[str, str], dict[str, DeviceUse]] = {}  # pool key: device name: use
        self._claims: dict[str, AllocatedClaim] = {}
        self._rules: dict[str, resource.DeviceTaintRuleSpec] = {}  # by name
        self._pools_on: dict[str, dict[tuple[str, str], Pool]] = {}  # node name: pools with local devices there
        self._roaming: dict[tuple[str, str], Pool] = {}
        self._on_node: dict[str, NodeDevices] = {}
        self.version = 0  # grows with every change
        self.structure = 0  # grows when slices change; not with claims
        self.changes: ChangeLog[str] = ChangeLog()  # names of nodes whose devices, or who has them, changed
        self.memo: dict[Any, Any] = {}  # for decisions: what stays true whatever changes here

    # ------------------------------------------------------------------------------------------------- feeding

    def set_slice(self, slice_: resource.ResourceSlice) -> None:
        """A slice was published or changed. Slices are told apart by name."""
        self.set_slices((slice_,))

    def set_slices(self, slices: Iterable[resource.ResourceSlice]) -> None:
        """Many at once: each pool is worked out once."""
        touched: set[tuple[str, str]] = set()
        for slice_ in slices:
            name = slice_.metadata.name
            key = (slice_.spec.driver, slice_.spec.pool.name)
            before = self._slice_pool.get(name)
            if before is not None and before != key:
                self._pools[before].slices.pop(name, None)
                touched.add(before)
            pool = self._pools.get(key)
            if pool is None:
                pool = self._pools[key] = Pool(*key)
            pool.slices[name] = SliceEntry(pool, slice_.spec, self._sharer)
            self._slice_pool[name] = key
            touched.add(key)
        self._rebuild(touched)

    def drop_slice(self, name: str) -> None:
        key = self._slice_pool.pop(name, None)
        if key is not None:
            self._pools[key].slices.pop(name, None)
            self._rebuild({key})

    def set_claim(self, claim: resource.ResourceClaim) -> None:
        """A claim was written or changed; what it holds is read from status.allocation."""
        meta = claim.metadata
        allocation = claim.status.allocation
        if allocation is None:
            self.drop_claim(meta.uid)
            return
        devices = tuple(map(_held, allocation.devices.results))
        counted = sum(not device.admin for device in devices)
        held = AllocatedClaim(meta.uid, meta.namespace, meta.name, devices, counted)
        if self._claims.get(meta.uid) == held:
            return
        self.drop_claim(meta.uid)
        self._claims[meta.uid] = held
        self._book(held, 1)

    def drop_claim(self, uid: str) -> None:
        held = self._claims.pop(uid, None)
        if held is not None:
            self._book(held, -1)

    def set_taint_rule(self, rule: resource.DeviceTaintRule) -> None:
        """A DeviceTaintRule (1.37) was made or changed: its taint comes on top of those that drivers publish."""
        self._rules[rule.metadata.name] = rule.spec
        self._reconsider()

    def drop_taint_rule(self, name: str) -> None:
        if self._rules.pop(name, None) is not None:
            self._reconsider()

    def _reconsider(self) -> None:
        """What was worked out for nodes no longer holds."""
        self.version += 1
        self.structure += 1
        self._on_node.clear()
        self.changes.note_all()

    # ------------------------------------------------------------------------------------------------- reading

    def pools(self) -> list[Pool]:
        """Every pool, in order."""
        return sorted(self._pools.values(), key=lambda pool: pool.sort_key)

    @property
    def rules(self) -> tuple[resource.DeviceTaintRuleSpec, ...]:
        """The DeviceTaintRules, in name order."""
        return tuple(self._rules[name] for name in sorted(self._rules))

    def any_order(self) -> Iterable[Pool]:
        """Every pool, for sums."""
        return self._pools.values()

    def device(self, ref: DeviceRef) -> Device | None:
        pool = self._pools.get((ref.driver, ref.pool))
        return pool.devices.get(ref.device) if pool is not None else None

    def claim(self, uid: str) -> AllocatedClaim | None:
        return self._claims.get(uid)

    def claims(self) -> Iterable[AllocatedClaim]:
        return self._claims.values()

    def on_node(self, node: str, labels: Mapping[str, str]) -> NodeDevices:
        """What the node reaches; worked out when first asked, and again when a pool or the labels changed."""
        known = self._on_node.get(node)
        if known is not None and (known.labels is labels or not self._roaming or known.labels == labels):
            return known
        pools = {**self._pools_on.get(node, {}), **self._roaming}
        ordered = sorted(pools.values(), key=lambda pool: pool.sort_key)
        found = self._on_node[node] = NodeDevices(ordered, node, labels, self.rules)
        return found

    # ------------------------------------------------------------------------------------------------- keeping

    def _rebuild(self, keys: Iterable[tuple[str, str]]) -> None:
        self.version += 1
        self.structure += 1
        for key in keys:
            pool = self._pools[key]
            self._forget(key, pool)
            if not pool.slices:
                del self._pools[key]
                continue
            pool.rebuild(self._uses.get(key, {}), self._layout)
            for node in pool.local:
                self._pools_on.setdefault(node, {})[key] = pool
                self._on_node.pop(node, None)
                self.changes.note(node)
            if pool.roaming:
                self._roaming[key] = pool
                self._on_node.clear()
                self.changes.note_all()

    def _layout(self, content: NamedConsumption) -> CounterLayout:
        found = self._layouts.get(content)
        if found is None:
            if len(self._layouts) >= LAYOUTS_MAX:
                self._layouts.clear()
            found = self._layouts[content] = CounterLayout(content)
        return found

    def _forget(self, key: tuple[str, str], pool: Pool) -> None:
        for node in pool.local:
            self._on_node.pop(node, None)
            self.changes.note(node)
            pools = self._pools_on.get(node)
            if pools is not None:
                pools.pop(key, None)
                if not pools:
                    del self._pools_on[node]
        if self._roaming.pop(key, None) is not None:
            self._on_node.clear()
            self.changes.note_all()

    def _book(self, held: AllocatedClaim, sign: int) -> None:
        self.version += 1
        for item in held.devices:
            if item.admin:
                continue
            key = (item.ref.driver, item.ref.pool)
            uses = self._uses.setdefault(key, {})
            use = uses.get(item.ref.device)
            if use is None:
                use = uses[item.ref.device] = DeviceUse()
            was_used = bool(use.claims)
            _count(use, held.uid, item, sign)
            pool = self._pools.get(key)
            device = pool.devices.get(item.ref.device) if pool is not None else None
            if device is not None:
                if device.node is None:
                    self.changes.note_all()
                else:
                    self.changes.note(device.node)
                device.use = use
                if was_used != bool(use.claims):
                    device.pool.draw(device, sign)
            if not use.claims:
                del uses[item.ref.device]
                if device is not None:
                    device.use = None
                if not uses:
                    del self._uses[key]


def _count(use: DeviceUse, uid: str, item: AllocatedDevice, sign: int) -> None:
    use.whole += sign * item.whole
    results = use.claims.get(uid, 0) + sign
    if results:
        use.claims[uid] = results
    else:
        use.claims.pop(uid, None)
    for name, value in item.consumed:
        use.consumed[name] = use.consumed.get(name, 0) + sign * value


def _held(result: resource.DeviceRequestAllocationResult) -> AllocatedDevice:
    return AllocatedDevice(
        ref=DeviceRef(result.driver, result.pool, result.device),
        admin=bool(result.admin_access),
        whole=result.share_id is None,
        consumed=tuple(
            (qualified(name, result.driver), _measured(value))
            for name, value in sorted(result.consumed_capacity.items())
        ),
        tolerations=result.tolerations,
    )


def _measured(value: str | int) -> Amount:
    """0 for what is no quantity: whoever wrote it, the rest of the claim still counts."""
    try:
        return amount(value)
    except QuantityError:
        return 0
