"""One device in few bytes: what many devices have in common is kept once.

Ten thousand nodes of MIG-capable GPUs publish two million devices; as API structs they take 3 KB each. A DeviceKind is
everything but attributes and place, shared by the devices of alike nodes; an AttributeSchema is a set of attribute names;
equal values are shared too. What DeviceInterner remembers for that is bounded, also where a driver publishes ever new names, and two
devices made from equal specs behave alike whether or not their parts are shared. Chooses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import inf

from fairlead.api import names, withheld
from fairlead.engine.inventory import node_selector
from fairlead.engine.inventory.counters import CounterConsumption, NamedConsumption, PoolCounters, named_consumption
from fairlead.engine.types.values import Amount, Consumption, DeviceRef, amount, consumption, qualified
from fairlead.kube import resource, timestamps
from fairlead.kube.core import NodeSelector
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.semver import Version, VersionError

# A typed attribute value, so that 1, "1" and True differ.
Value = tuple[str, object]
Values = frozenset[Value]
"""What one device has of an attribute: one value, several of a list, none where it lacks it."""
_NONE: frozenset[Value] = frozenset()
CONSUMED_MAX = 1_000  # answers remembered per kind


class DeviceUse:
    """The allocated claims of a device, those with admin access aside, and what they consume of a shared one."""

    __slots__ = ("claims", "consumed", "releasing", "whole")

    def __init__(self, *, releasing: bool = False) -> None:
        self.releasing = releasing  # its node still has it prepared for a claim that is gone
        self.whole = 0  # results without a share ID: each takes all of the device
        self.claims: dict[str, int] = {}  # claim UID: results
        self.consumed: dict[str, Amount] = {}  # capacity name, qualified


class DeviceKind:
    """A device but for its attributes and its place. Raises QuantityError for one that can't be measured."""

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
        self.unreadable = not all(_is_quantity(entry.value) for entry in spec.capacity.values())
        self.shared = bool(spec.allow_multiple_allocations)
        taints = [taint for taint in spec.taints if taint.effect in {"NoSchedule", "NoExecute"}]
        releasing = [taint for taint in taints if driver == names.DRIVER and taint.key == withheld.RELEASING]
        self.taints = tuple(taint for taint in taints if taint not in releasing)
        # Unix seconds; None: it is not being released by its node; -inf: it is, and it is not known since when.
        self.releasing_since = max(map(_added_at, releasing), default=None)
        self.counter_consumption: NamedConsumption = named_consumption(spec.consumes_counters)
        self.full_names = {name: qualified(name, driver) for name in spec.capacity}
        self.totals: dict[str, Amount] = {}  # of a shared device: each capacity, by qualified name
        if self.shared:
            self.totals = {self.full_names[name]: amount(entry.value) for name, entry in spec.capacity.items()}
        self._consumed: dict[Consumption, Consumption | None] = {}

    def consumed(self, requested: Consumption) -> Consumption | None:
        """What a request for these capacities takes of one; None where it can never serve the request (`values.consumption`)."""
        try:
            return self._consumed[requested]
        except KeyError:
            if len(self._consumed) >= CONSUMED_MAX:
                self._consumed.clear()
            found = consumption(requested, self.spec.capacity, driver=self.driver, shared=self.shared)
            self._consumed[requested] = found
            return found

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


def _added_at(taint: resource.DeviceTaint) -> float:
    try:
        return -inf if taint.time_added is None else timestamps.parse(taint.time_added)
    except ValueError:
        return -inf


def _is_quantity(value: str | int) -> bool:
    try:
        Quantity.of(value)
    except QuantityError:
        return False
    return True


class AttributeSchema:
    """A set of attribute names, as published, and the index of each one's value."""

    __slots__ = ("index", "names", "unreadable")

    def __init__(self, driver: str, names: tuple[str, ...], *, unreadable: bool) -> None:
        self.names = names
        self.unreadable = unreadable  # some value can't be read by CEL: every expression fails on it
        self.index = {qualified(name, driver): number for number, name in enumerate(names)}


class Device:
    """One device of a pool. Compared by identity; a republished slice makes new ones."""

    __slots__ = (
        "all_nodes",
        "attribute_values",
        "counter_consumption",
        "kind",
        "locality",
        "node",
        "node_selector",
        "order",
        "ordinal",
        "pool",
        "schema",
        "shared",
        "use",
    )

    def __init__(
        self,
        pool: PoolCounters,
        kind: DeviceKind,
        schema: AttributeSchema,
        attribute_values: tuple[resource.DeviceAttribute, ...],
        where: resource.Device | resource.ResourceSliceSpec,
    ) -> None:
        self.pool = pool
        self.kind = kind
        self.schema = schema
        self.attribute_values = attribute_values
        self.node: str | None = where.node_name or None
        self.node_selector: NodeSelector | None = where.node_selector
        self.all_nodes = bool(where.all_nodes)
        self.shared = kind.shared
        self.counter_consumption: CounterConsumption = ()  # by index in the pool's layout
        self.use: DeviceUse | None = None
        self.order = 0  # within its pool
        self.ordinal: Values = _NONE  # as `number_ordinals` counted it last
        self.locality: tuple[object, object] | None = None  # NVLink island and NUMA node, once computed

    def __repr__(self) -> str:
        return f"Device({self.ref})"

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def ref(self) -> DeviceRef:
        return DeviceRef(self.pool.driver, self.pool.name, self.kind.name)

    @property
    def releasing(self) -> bool:
        """Whether its node still has it prepared for a claim that is gone."""
        return self.use is not None and self.use.releasing

    @property
    def local(self) -> bool:
        """Whether a claim with this device is bound to the node."""
        return self.node is not None or bool(self.kind.spec.binds_to_node)

    @property
    def attributes(self) -> dict[str, resource.DeviceAttribute]:
        return dict(zip(self.schema.names, self.attribute_values, strict=True))

    def attribute(self, name: str) -> resource.DeviceAttribute | None:
        index = self.schema.index.get(name)
        return None if index is None else self.attribute_values[index]

    def values(self, attribute: str) -> frozenset[Value]:
        """The typed values of a fully qualified attribute; several for a list, none when the device lacks it."""
        index = self.schema.index.get(attribute)
        if index is None and attribute == names.ORDINAL:
            return self.ordinal
        return _NONE if index is None else typed(self.attribute_values[index])

    def reachable_from(self, node: str, labels: Mapping[str, str]) -> bool:
        if self.node is not None:
            return self.node == node
        return self.all_nodes or (
            self.node_selector is not None and node_selector.matches(self.node_selector, node, labels)
        )


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


INTERNED_MAX = 1_000_000  # attribute values remembered for sharing
KINDS_MAX = 16  # kinds remembered per device name
ALL_KINDS_MAX = 20_000  # of all names: alike nodes name their devices alike
SCHEMAS_MAX = 4096


class DeviceInterner:
    """Makes devices, reusing kinds, schemas and values that it has seen."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], list[DeviceKind]] = {}
        self._kinds_kept = 0
        self._schemas: dict[tuple[str, tuple[str, ...], bool], AttributeSchema] = {}
        self._values: dict[resource.DeviceAttribute, resource.DeviceAttribute] = {}
        self._unreadable: set[resource.DeviceAttribute] = set()
        self._latest: dict[tuple[str, str], tuple[resource.DeviceAttribute, ...]] = {}

    def device(
        self,
        pool: PoolCounters,
        spec: resource.Device,
        slice_spec: resource.ResourceSliceSpec,
        before: Device | None,
    ) -> Device:
        """`before` is the slice's previous device: partitions of one GPU often differ in name only. Raises QuantityError."""
        kind = self._kind(pool.driver, spec)
        names = tuple(spec.attributes)
        values = tuple(spec.attributes.values())
        if before is not None and before.attribute_values == values and before.schema.names == names:
            schema, values = before.schema, before.attribute_values
        else:
            values = self._intern((pool.driver, spec.name), values)
            unreadable = bool(self._unreadable) and not self._unreadable.isdisjoint(values)
            schema = self._schema(pool.driver, names, unreadable=unreadable)
        return Device(pool, kind, schema, values, spec if slice_spec.per_device_node_selection else slice_spec)

    def _kind(self, driver: str, spec: resource.Device) -> DeviceKind:
        for kind in self._kinds.get((driver, spec.name), ()):
            if kind.same(spec):
                return kind
        made = DeviceKind(driver, spec)
        if self._kinds_kept >= ALL_KINDS_MAX:
            self._kinds.clear()
            self._latest.clear()
            self._kinds_kept = 0
        known = self._kinds.setdefault((driver, spec.name), [])
        if len(known) >= KINDS_MAX:
            self._kinds_kept -= len(known)
            known.clear()  # a name with ever new contents: remember the recent ones only
        known.append(made)
        self._kinds_kept += 1
        return made

    def _schema(self, driver: str, names: tuple[str, ...], *, unreadable: bool) -> AttributeSchema:
        key = (driver, names, unreadable)
        schema = self._schemas.get(key)
        if schema is None:
            if len(self._schemas) >= SCHEMAS_MAX:
                self._schemas.clear()
            schema = self._schemas[key] = AttributeSchema(driver, names, unreadable=unreadable)
        return schema

    def _intern_one(self, value: resource.DeviceAttribute) -> resource.DeviceAttribute:
        known = self._values.get(value)
        if known is None:
            known = self._values[value] = value
            if not readable(value):
                self._unreadable.add(value)
        return known

    def _intern(
        self, key: tuple[str, str], values: tuple[resource.DeviceAttribute, ...]
    ) -> tuple[resource.DeviceAttribute, ...]:
        latest = self._latest.get(key, ())
        if latest == values:
            return latest
        if len(self._values) > INTERNED_MAX:
            self._values.clear()
            self._unreadable.clear()
            self._latest.clear()
        if len(latest) == len(values):
            values = tuple(
                old if old == new else self._intern_one(new) for old, new in zip(latest, values, strict=True)
            )
        else:
            values = tuple(self._intern_one(value) for value in values)
        self._latest[key] = values
        return values


def readable(attribute: resource.DeviceAttribute) -> bool:
    """Whether CEL can read the value; if not, every expression fails on the device."""
    versions = attribute.versions or ((attribute.version,) if attribute.version is not None else ())
    try:
        for version in versions:
            Version.parse(version)
    except VersionError:
        return False
    return attribute.value is not None
