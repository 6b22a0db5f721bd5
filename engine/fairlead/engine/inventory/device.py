"""One device in few bytes: what many devices have in common is kept once.

Exists because ten thousand nodes of MIG-capable GPUs publish two million devices: as API structs they take 3 KB each.
A DeviceKind is everything but attributes and place, shared by the devices of alike nodes; a AttributeSchema is a set of attribute names;
values are shared where they are equal. Chooses nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fairlead.engine.inventory import node_selector as nodes_selector
from fairlead.engine.inventory.counters import CounterConsumption, NamedConsumption, named_draw
from fairlead.engine.types.amounts import amount, qualified
from fairlead.engine.types.references import DeviceRef
from fairlead.kube import resource
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.semver import Version, VersionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.engine.inventory.pool import Pool
    from fairlead.engine.types.amounts import Amount
    from fairlead.kube.core import NodeSelector

# A typed attribute value, so that 1, "1" and True differ.
Value = tuple[str, object]
_NONE: frozenset[Value] = frozenset()
SHARED_MAX = 1_000_000  # values remembered for sharing


class DeviceUse:
    """Who has a device: claims without admin access, and what they consume of a shared one."""

    __slots__ = ("claims", "consumed", "whole")

    def __init__(self) -> None:
        self.whole = 0  # holders without a share ID: they have all of it
        self.claims: dict[str, int] = {}  # claim UID: results
        self.consumed: dict[str, Amount] = {}  # capacity name, qualified


class DeviceKind:
    """A device but for its attributes and its place. Raises QuantityError for one that can't be measured."""

    __slots__ = ("capacity", "draws", "driver", "fallible", "name", "shared", "spec", "taints", "totals")

    def __init__(self, driver: str, spec: resource.Device) -> None:
        self.driver = driver
        self.name = spec.name
        self.spec = resource.Device(
            name=spec.name,
            capacity=spec.capacity,
            consumes_counters=spec.consumes_counters,
            taints=spec.taints,
            binds_to_node=spec.binds_to_node,
            binding_conditions=spec.binding_conditions,
            binding_failure_conditions=spec.binding_failure_conditions,
            allow_multiple_allocations=spec.allow_multiple_allocations,
        )
        self.capacity = tuple(sorted((name, entry.value) for name, entry in spec.capacity.items()))
        self.fallible = not all(_is_quantity(entry.value) for entry in spec.capacity.values())
        self.shared = bool(spec.allow_multiple_allocations)
        self.taints = tuple(taint for taint in spec.taints if taint.effect in {"NoSchedule", "NoExecute"})
        self.draws: NamedConsumption = named_draw(spec.consumes_counters)
        self.totals: dict[str, Amount] = {}  # of a shared device: each capacity, by qualified name
        if self.shared:
            self.totals = {qualified(name, driver): amount(entry.value) for name, entry in spec.capacity.items()}

    def same(self, spec: resource.Device) -> bool:
        own = self.spec
        return (
            own.capacity == spec.capacity
            and own.consumes_counters == spec.consumes_counters
            and own.taints == spec.taints
            and own.allow_multiple_allocations == spec.allow_multiple_allocations
            and own.binds_to_node == spec.binds_to_node
            and own.binding_conditions == spec.binding_conditions
            and own.binding_failure_conditions == spec.binding_failure_conditions
        )


def _is_quantity(value: str | int) -> bool:
    try:
        Quantity.of(value)
    except QuantityError:
        return False
    return True


class AttributeSchema:
    """A set of attribute names, as published, and where each one's value is."""

    __slots__ = ("fallible", "names", "place")

    def __init__(self, driver: str, names: tuple[str, ...], *, fallible: bool) -> None:
        self.names = names
        self.fallible = fallible  # some value can't be read by CEL: every expression fails on it
        self.place = {qualified(name, driver): number for number, name in enumerate(names)}


class Device:
    """One device of a pool. Compared by identity; a republished slice makes new ones."""

    __slots__ = (
        "draws",
        "everywhere",
        "form",
        "home",
        "kind",
        "node",
        "order",
        "pool",
        "selector",
        "shared",
        "use",
        "values_",
    )

    def __init__(
        self,
        pool: Pool,
        kind: DeviceKind,
        form: AttributeSchema,
        values: tuple[resource.DeviceAttribute, ...],
        where: resource.Device | resource.ResourceSliceSpec,
    ) -> None:
        self.pool = pool
        self.kind = kind
        self.form = form
        self.values_ = values
        self.node: str | None = where.node_name or None
        self.selector: NodeSelector | None = where.node_selector
        self.everywhere = bool(where.all_nodes)
        self.shared = kind.shared
        self.draws: CounterConsumption = ()  # by place in the pool's layout
        self.use: DeviceUse | None = None
        self.order = 0  # within its pool
        self.home: tuple[object, object] | None = None  # island and NUMA node: worked out when first asked

    def __repr__(self) -> str:
        return f"Device({self.ref})"

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def ref(self) -> DeviceRef:
        return DeviceRef(self.pool.driver, self.pool.name, self.kind.name)

    @property
    def local(self) -> bool:
        """Whether what it is given to is bound to the node."""
        return self.node is not None or bool(self.kind.spec.binds_to_node)

    @property
    def attributes(self) -> dict[str, resource.DeviceAttribute]:
        """As published."""
        return dict(zip(self.form.names, self.values_, strict=True))

    def attribute(self, name: str) -> resource.DeviceAttribute | None:
        """By fully qualified name."""
        place = self.form.place.get(name)
        return None if place is None else self.values_[place]

    def values(self, attribute: str) -> frozenset[Value]:
        """The typed values of a fully qualified attribute; several for a list, none when the device lacks it."""
        place = self.form.place.get(attribute)
        return _NONE if place is None else typed(self.values_[place])

    def reaches(self, node: str, labels: Mapping[str, str]) -> bool:
        if self.node is not None:
            return self.node == node
        return self.everywhere or (self.selector is not None and nodes_selector.matches(self.selector, node, labels))


@lru_cache(maxsize=65536)
def typed(attribute: resource.DeviceAttribute) -> frozenset[Value]:
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


def readable(attribute: resource.DeviceAttribute) -> bool:
    """Whether CEL can read the value; if not, every expression fails on the device."""
    versions = attribute.versions or ((attribute.version,) if attribute.version is not None else ())
    try:
        for version in versions:
            Version.parse(version)
    except VersionError:
        return False
    return attribute.value is not None


class DeviceInterner:
    """Makes devices, reusing kinds, forms and values that it has seen."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], list[DeviceKind]] = {}
        self._forms: dict[tuple[str, tuple[str, ...], bool], AttributeSchema] = {}
        self._values: dict[resource.DeviceAttribute, resource.DeviceAttribute] = {}
        self._unreadable: set[resource.DeviceAttribute] = set()
        self._latest: dict[tuple[str, str], tuple[resource.DeviceAttribute, ...]] = {}

    def device(
        self, pool: Pool, spec: resource.Device, slice_spec: resource.ResourceSliceSpec, before: Device | None
    ) -> Device:
        """`before` is the slice's previous device: partitions of one GPU often differ in name only. Raises QuantityError."""
        kind = self._kind(pool.driver, spec)
        names = tuple(spec.attributes)
        values = tuple(spec.attributes.values())
        if before is not None and before.values_ == values and before.form.names == names:
            form, values = before.form, before.values_
        else:
            values = self._share((pool.driver, spec.name), values)
            fallible = bool(self._unreadable) and not self._unreadable.isdisjoint(values)
            form = self._form(pool.driver, names, fallible=fallible)
        return Device(pool, kind, form, values, spec if slice_spec.per_device_node_selection else slice_spec)

    def _kind(self, driver: str, spec: resource.Device) -> DeviceKind:
        known = self._kinds.setdefault((driver, spec.name), [])
        for kind in known:
            if kind.same(spec):
                return kind
        made = DeviceKind(driver, spec)
        if len(known) >= 16:
            known.clear()  # a name with ever new contents: remember the recent ones only
        known.append(made)
        return made

    def _form(self, driver: str, names: tuple[str, ...], *, fallible: bool) -> AttributeSchema:
        key = (driver, names, fallible)
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = AttributeSchema(driver, names, fallible=fallible)
        return form

    def _one(self, value: resource.DeviceAttribute) -> resource.DeviceAttribute:
        """The value, or an equal one that is kept already."""
        known = self._values.get(value)
        if known is None:
            known = self._values[value] = value
            if not readable(value):
                self._unreadable.add(value)
        return known

    def _share(
        self, key: tuple[str, str], values: tuple[resource.DeviceAttribute, ...]
    ) -> tuple[resource.DeviceAttribute, ...]:
        latest = self._latest.get(key, ())
        if latest == values:
            return latest
        if len(self._values) > SHARED_MAX:
            self._values.clear()
        if len(latest) == len(values):
            values = tuple(old if old == new else self._one(new) for old, new in zip(latest, values, strict=True))
        else:
            values = tuple(self._one(value) for value in values)
        self._latest[key] = values
        return values
