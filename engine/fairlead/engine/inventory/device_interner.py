"""Devices from published slices, with kinds, attribute schemas and values shared among equal devices.

What is remembered is bounded also where a driver publishes ever new names. Memory only: two devices made from equal specs behave alike whether or not their parts are shared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.inventory.device import AttributeSchema, Device, DeviceKind
from fairlead.kube.semver import Version, VersionError

if TYPE_CHECKING:
    from fairlead.engine.inventory.counters import PoolCounters
    from fairlead.kube import resource

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
        """The value, or an equal one that is kept already."""
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
