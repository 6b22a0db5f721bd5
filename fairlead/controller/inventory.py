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

from fairlead.controller import nodes_selector
from fairlead.controller.capacity import amount, qualified
from fairlead.controller.counters import Counters, Draw, draw, published
from fairlead.controller.model import DeviceRef
from fairlead.kube.quantity import QuantityError

if TYPE_CHECKING:
    from fairlead.cel import DeviceView
    from fairlead.controller.constraints import Value
    from fairlead.controller.model import Amount
    from fairlead.kube import resource
    from fairlead.kube.core import NodeSelector

_NONE: frozenset[Value] = frozenset()


class Use:
    """Who has a device: claims without admin access, and what they consume of a shared one."""

    __slots__ = ("claims", "consumed", "whole")

    def __init__(self) -> None:
        self.whole = 0  # holders without a share ID: they have all of it
        self.claims: dict[str, int] = {}  # claim UID: results
        self.consumed: dict[str, Amount] = {}  # capacity name, qualified


class Device:
    """One device of a valid or invalid pool. Compared by identity; a republished slice makes new ones."""

    __slots__ = (
        "_values",
        "draws",
        "everywhere",
        "home",
        "local",
        "name",
        "node",
        "order",
        "pool",
        "ref",
        "selector",
        "shared",
        "spec",
        "taints",
        "totals",
        "use",
        "view",
    )

    def __init__(self, pool: Pool, spec: resource.Device, slice_spec: resource.ResourceSliceSpec) -> None:
        where = spec if slice_spec.per_device_node_selection else slice_spec
        self.pool = pool
        self.spec = spec
        self.name = spec.name
        self.ref = DeviceRef(pool.driver, pool.name, spec.name)
        self.node = where.node_name or None
        self.selector: NodeSelector | None = where.node_selector
        self.everywhere = bool(where.all_nodes)
        self.local = bool(self.node) or bool(spec.binds_to_node)
        self.shared = bool(spec.allow_multiple_allocations)
        self.taints = tuple(taint for taint in spec.taints if taint.effect in {"NoSchedule", "NoExecute"})
        self.totals: dict[str, Amount] = {}  # of a shared device: each capacity, by qualified name
        if self.shared:
            self.totals = {qualified(name, pool.driver): amount(entry.value) for name, entry in spec.capacity.items()}
        self.draws: Draw = ()
        self.use: Use | None = None
        self.order = 0
        self.view: DeviceView | None = None  # built by the selectors when first asked
        self.home: tuple[object, object] | None = (
            None  # island and NUMA node: where within its node, as placement sees it; worked out when first asked
        )
        self._values: dict[str, frozenset[Value]] | None = None

    def __repr__(self) -> str:
        return f"Device({self.ref})"

    def values(self, attribute: str) -> frozenset[Value]:
        """The typed values of a fully qualified attribute; several for a list, none when the device lacks it."""
        if self._values is None:
            self._values = {
                qualified(name, self.pool.driver): _typed(value) for name, value in self.spec.attributes.items()
            }
        return self._values.get(attribute, _NONE)

    def reaches(self, node: str, labels: Mapping[str, str]) -> bool:
        if self.node is not None:
            return self.node == node
        return self.everywhere or (self.selector is not None and nodes_selector.matches(self.selector, node, labels))


def _typed(attribute: resource.DeviceAttribute) -> frozenset[Value]:
    for kind, one, many in (
        ("string", attribute.string, attribute.strings),
        ("int", attribute.int_, attribute.ints),
        ("bool", attribute.bool_, attribute.bools),
        ("version", attribute.version, attribute.versions),
    ):
        if one is not None:
            return frozenset(((kind, one),))
        if many is not None:
            return frozenset((kind, value) for value in many)
    return _NONE


class Pool:
    """A driver's pool. `problem` says why its devices can't be used; None when they can."""

    __slots__ = ("binding", "counters", "devices", "driver", "local", "name", "problem", "roaming", "slices", "waits")

    def __init__(self, driver: str, name: str) -> None:
        self.driver = driver
        self.name = name
        self.slices: dict[str, resource.ResourceSlice] = {}  # all generations, by slice name
        self.devices: dict[str, Device] = {}
        self.counters: Counters = {}
        self.local: dict[str, list[Device]] = {}  # by node name
        self.roaming: list[Device] = []  # reachable by selector or from everywhere
        self.binding = False
        self.problem: str | None = None
        self.waits = False  # the problem is that slices are still missing

    @property
    def id(self) -> str:
        return f"{self.driver}/{self.name}"

    @property
    def sort_key(self) -> tuple[bool, str, str]:
        return (self.binding, self.driver, self.name)

    def rebuild(self, uses: Mapping[str, Use]) -> None:
        """Devices, counters and verdict from the slices of the highest generation."""
        newest = max((slice_.spec.pool.generation for slice_ in self.slices.values()), default=0)
        current = [
            self.slices[name] for name in sorted(self.slices) if self.slices[name].spec.pool.generation == newest
        ]
        built: list[Device] = []
        self.problem, self.waits = None, False
        for slice_ in current:
            for spec in slice_.spec.devices:
                try:
                    built.append(Device(self, spec, slice_.spec))
                except QuantityError as error:
                    self.problem = f"pool {self.id} is invalid: device {spec.name}: {error}"
        self.binding = any(device.spec.binding_conditions for device in built)
        self.devices = {device.name: device for device in built}
        expected = {slice_.spec.pool.resource_slice_count for slice_ in current}
        if expected and expected != {len(current)}:
            self.waits = True
            self.problem = f"pool {self.id} is incomplete: {len(current)} of {max(expected)} slices"
        elif self.problem is None and len(self.devices) != len(built):
            self.problem = f"pool {self.id} is invalid: two devices have the same name"
        try:
            self.counters = published(current)
            if self.problem is None:
                for device in built:
                    device.draws = draw(device.spec, self.counters)
        except (ValueError, QuantityError) as error:
            self.problem = self.problem or f"pool {self.id} is invalid: {error}"
        self.local, self.roaming = {}, []
        for order, device in enumerate(built):
            device.order = order
            if device.node is not None:
                self.local.setdefault(device.node, []).append(device)
            else:
                self.roaming.append(device)
            device.use = uses.get(device.name)
            if device.use is not None and device.use.claims:
                for counter, value in device.draws:
                    counter.used += value


class NodeDevices:
    """The devices that a node can reach, in order, and the pools that would give more if they were whole and valid."""

    __slots__ = ("cache", "devices", "labels", "local_only", "problems")

    def __init__(self, pools: list[Pool], node: str, labels: Mapping[str, str]) -> None:
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
class HeldDevice:
    """One result of an allocated claim, as far as bookkeeping needs it."""

    ref: DeviceRef
    admin: bool
    whole: bool
    consumed: tuple[tuple[str, Amount], ...]  # qualified names


@dataclass(frozen=True, slots=True)
class HeldClaim:
    uid: str
    namespace: str
    name: str
    devices: tuple[HeldDevice, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Inventory:
    """The table. Mutated by the four `set_`/`drop_` methods; everything else only reads."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], Pool] = {}
        self._slice_pool: dict[str, tuple[str, str]] = {}  # slice name: its pool's key
        self._uses: dict[tuple[str, str], dict[str, Use]] = {}  # pool key: device name: use
        self._claims: dict[str, HeldClaim] = {}
        self._pools_on: dict[str, dict[tuple[str, str], Pool]] = {}  # node name: pools with local devices there
        self._roaming: dict[tuple[str, str], Pool] = {}
        self._on_node: dict[str, NodeDevices] = {}
        self.version = 0  # grows with every change
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
            pool.slices[name] = slice_
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
        held = HeldClaim(meta.uid, meta.namespace, meta.name, tuple(map(_held, allocation.devices.results)))
        if self._claims.get(meta.uid) == held:
            return
        self.drop_claim(meta.uid)
        self._claims[meta.uid] = held
        self._book(held, 1)

    def drop_claim(self, uid: str) -> None:
        held = self._claims.pop(uid, None)
        if held is not None:
            self._book(held, -1)

    # ------------------------------------------------------------------------------------------------- reading

    def pools(self) -> list[Pool]:
        """Every pool, in order."""
        return sorted(self._pools.values(), key=lambda pool: pool.sort_key)

    def device(self, ref: DeviceRef) -> Device | None:
        pool = self._pools.get((ref.driver, ref.pool))
        return pool.devices.get(ref.device) if pool is not None else None

    def claim(self, uid: str) -> HeldClaim | None:
        return self._claims.get(uid)

    def claims(self) -> Iterable[HeldClaim]:
        return self._claims.values()

    def on_node(self, node: str, labels: Mapping[str, str]) -> NodeDevices:
        """What the node reaches; worked out when first asked, and again when a pool or the labels changed."""
        known = self._on_node.get(node)
        if known is not None and (known.labels is labels or not self._roaming or known.labels == labels):
            return known
        pools = {**self._pools_on.get(node, {}), **self._roaming}
        ordered = sorted(pools.values(), key=lambda pool: pool.sort_key)
        found = self._on_node[node] = NodeDevices(ordered, node, labels)
        return found

    # ------------------------------------------------------------------------------------------------- keeping

    def _rebuild(self, keys: Iterable[tuple[str, str]]) -> None:
        self.version += 1
        for key in keys:
            pool = self._pools[key]
            self._forget(key, pool)
            if not pool.slices:
                del self._pools[key]
                continue
            pool.rebuild(self._uses.get(key, {}))
            for node in pool.local:
                self._pools_on.setdefault(node, {})[key] = pool
                self._on_node.pop(node, None)
            if pool.roaming:
                self._roaming[key] = pool
                self._on_node.clear()

    def _forget(self, key: tuple[str, str], pool: Pool) -> None:
        for node in pool.local:
            self._on_node.pop(node, None)
            pools = self._pools_on.get(node)
            if pools is not None:
                pools.pop(key, None)
                if not pools:
                    del self._pools_on[node]
        if self._roaming.pop(key, None) is not None:
            self._on_node.clear()

    def _book(self, held: HeldClaim, sign: int) -> None:
        self.version += 1
        for item in held.devices:
            if item.admin:
                continue
            key = (item.ref.driver, item.ref.pool)
            uses = self._uses.setdefault(key, {})
            use = uses.get(item.ref.device)
            if use is None:
                use = uses[item.ref.device] = Use()
            was_used = bool(use.claims)
            _count(use, held.uid, item, sign)
            pool = self._pools.get(key)
            device = pool.devices.get(item.ref.device) if pool is not None else None
            if device is not None:
                device.use = use
                if was_used != bool(use.claims):
                    for counter, value in device.draws:
                        counter.used += sign * value
            if not use.claims:
                del uses[item.ref.device]
                if device is not None:
                    device.use = None
                if not uses:
                    del self._uses[key]


def _count(use: Use, uid: str, item: HeldDevice, sign: int) -> None:
    use.whole += sign * item.whole
    results = use.claims.get(uid, 0) + sign
    if results:
        use.claims[uid] = results
    else:
        use.claims.pop(uid, None)
    for name, value in item.consumed:
        use.consumed[name] = use.consumed.get(name, 0) + sign * value


def _held(result: resource.DeviceRequestAllocationResult) -> HeldDevice:
    return HeldDevice(
        ref=DeviceRef(result.driver, result.pool, result.device),
        admin=bool(result.admin_access),
        whole=result.share_id is None,
        consumed=tuple(
            (qualified(name, result.driver), amount(value)) for name, value in sorted(result.consumed_capacity.items())
        ),
    )
