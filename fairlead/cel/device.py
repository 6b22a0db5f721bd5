"""A device as selectors see it.

Exists so that an API Device is turned into CEL values once, not once per selector. A name without a domain belongs to the
driver's own; an unknown *domain* reads as an empty map, though `in` does not find it, and an unknown name in one is an error.
A value that cannot be read (a bad version) is kept as the view's `fault`, which every evaluation then raises.

Source: k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

from fairlead.cel import types as t
from fairlead.cel.errors import EvaluationError
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.resource import Device, DeviceAttribute
from fairlead.kube.semver import Version, VersionError

DEVICE_TYPE: Final = t.object_type("kubernetes.DRADevice")
DEVICE_FIELDS: Final[Mapping[str, t.Type]] = MappingProxyType(
    {
        "driver": t.STRING,
        "attributes": t.map_of(t.STRING, t.map_of(t.STRING, t.ANY)),
        "capacity": t.map_of(t.STRING, t.map_of(t.STRING, t.QUANTITY)),
        "allowMultipleAllocations": t.BOOL,
    }
)
_EMPTY: Final[dict[str, Any]] = {}


class Domains(dict[str, dict[str, Any]]):
    """Domain to names; an unknown domain reads as empty."""

    __slots__ = ()

    def __missing__(self, _: str) -> dict[str, Any]:
        return _EMPTY


@dataclass(frozen=True, slots=True, eq=False)
class DeviceView:
    """Build it with `DeviceView.of`; it holds no reference to the API object."""

    cel_type_name: ClassVar[str] = DEVICE_TYPE.name
    cel_fields: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "driver": "driver",
            "attributes": "attributes",
            "capacity": "capacity",
            "allowMultipleAllocations": "allow_multiple_allocations",
        }
    )

    driver: str
    attributes: Domains
    capacity: Domains
    allow_multiple_allocations: bool
    fault: str | None = None

    @staticmethod
    def of(driver: str, device: Device) -> DeviceView:
        """The view of a device of that driver. Never raises; see `fault`."""
        fault: str | None = None
        attributes, capacity = Domains(), Domains()
        for name, attribute in device.attributes.items():
            try:
                value = _value(attribute)
            except ValueError as error:
                fault = fault or f"attribute {name}: {error}"
                continue
            domain, slash, plain = name.partition("/")
            attributes.setdefault(domain if slash else driver, {})[plain if slash else name] = value
        for name, held in device.capacity.items():
            try:
                amount = Quantity.of(held.value)
            except QuantityError as error:
                fault = fault or f"capacity {name}: {error}"
                continue
            domain, slash, plain = name.partition("/")
            capacity.setdefault(domain if slash else driver, {})[plain if slash else name] = amount
        return DeviceView(driver, attributes, capacity, bool(device.allow_multiple_allocations), fault)

    def check(self) -> None:
        if self.fault is not None:
            raise EvaluationError(self.fault)


def _value(attribute: DeviceAttribute) -> Any:
    if attribute.string is not None:
        return attribute.string
    if attribute.int_ is not None:
        return attribute.int_
    if attribute.bool_ is not None:
        return attribute.bool_
    if attribute.version is not None:
        return _version(attribute.version)
    for values in (attribute.strings, attribute.ints, attribute.bools):
        if values is not None:
            return list(values)
    if attribute.versions is not None:
        return [_version(text) for text in attribute.versions]
    raise ValueError("unsupported attribute value")


def _version(text: str) -> Version:
    try:
        return Version.parse(text)
    except VersionError as error:
        raise ValueError(f"parse semantic version: {error}") from None
