"""A device as the value of the variable `device` in selectors.

An API Device is converted once, not once per selector, and a million of them fit in memory: devices with the same names share
a layout and hold only a tuple of keys. The maps that an expression reads are built when a device is first evaluated, which is
once per kind of device (columns.py).
A name without a domain belongs to the driver's own domain. An unknown *domain* reads as an empty map, though `in` does not
find it; an unknown name in a domain is an error. A value that cannot be read (a bad version) is the view's `fault`, which
every evaluation raises.

Source: k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
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
    """Values by domain and name; an unknown domain reads as empty."""

    __slots__ = ()

    def __missing__(self, _: str) -> dict[str, Any]:
        return _EMPTY


class Layout:
    """The position of each name's key, shared by devices with the same names. 0: driver, 1: allowMultipleAllocations."""

    __slots__ = ("positions",)

    def __init__(self, driver: str, attributes: tuple[str, ...], capacity: tuple[str, ...]) -> None:
        self.positions: dict[tuple[str, str, str], int] = {
            ("driver", "", ""): 0,
            ("allowMultipleAllocations", "", ""): 1,
        }
        names = [("attributes", name) for name in attributes] + [("capacity", name) for name in capacity]
        for position, (field, name) in enumerate(names, 2):
            domain, slash, plain = name.partition("/")
            self.positions[field, domain if slash else driver, plain if slash else name] = position


_layout = lru_cache(maxsize=4096)(Layout)


class DeviceView:
    """Build it with `DeviceView.of`. Immutable; it holds no reference to the API object."""

    __slots__ = ("allow_multiple_allocations", "attributes", "capacity", "driver", "fault", "keys", "layout")

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
    layout: Layout
    keys: tuple[Key, ...]  # at the layout's positions; the last is ABSENT
    allow_multiple_allocations: bool
    fault: str | None
    attributes: Domains  # these two are built on first access
    capacity: Domains

    @staticmethod
    def of(driver: str, device: Device) -> DeviceView:
        """The view of a device of that driver. Never raises; see `fault`."""
        view = DeviceView()
        view.driver = driver
        view.layout = _layout(driver, tuple(device.attributes), tuple(device.capacity))
        view.allow_multiple_allocations = bool(device.allow_multiple_allocations)
        view.fault = None
        keys: list[Key] = [driver, _TRUE if view.allow_multiple_allocations else _FALSE]
        for name, attribute in device.attributes.items():
            try:
                keys.append(_attribute_key(attribute))
            except ValueError as error:
                view.fault = view.fault or f"attribute {name}: {error}"
                keys.append(ABSENT)
        for name, held in device.capacity.items():
            try:
                keys.append(_quantity_key(held.value))
            except QuantityError as error:
                view.fault = view.fault or f"capacity {name}: {error}"
                keys.append(ABSENT)
        keys.append(ABSENT)
        view.keys = tuple(keys)
        return view

    def __getattr__(self, name: str) -> Any:
        if name not in {"attributes", "capacity"}:
            raise AttributeError(name)
        domains = Domains()
        for (field, domain, plain), position in self.layout.positions.items():
            if field == name and self.keys[position] != ABSENT:  # absent: it could not be read
                domains.setdefault(domain, {})[plain] = _value(self.keys[position])
        setattr(self, name, domains)
        return domains

    def __repr__(self) -> str:
        return f"DeviceView({self.driver!r}, {dict(self.attributes)!r}, {dict(self.capacity)!r})"

    def check(self) -> None:
        """Raises EvaluationError if the device has a fault."""
        if self.fault is not None:
            raise EvaluationError(self.fault)


# Keys: values as strings, ints and tuples of them. Equal keys mean that no expression yields different results for the values. `==` of the
# values does not: 1 == True in Python, and 1.5Gi == 1536Mi in CEL, where only one of the two is an integer.

Key = Hashable
ABSENT: Final = "\0"
_TRUE: Final = "\0b1"
_FALSE: Final = "\0b0"


def _text_key(text: str) -> Key:
    return f"\0s{text}" if text.startswith("\0") else text


def _attribute_key(attribute: DeviceAttribute) -> Key:
    if attribute.string is not None:
        return _text_key(attribute.string)
    if attribute.int_ is not None:
        return attribute.int_
    if attribute.bool_ is not None:
        return _TRUE if attribute.bool_ else _FALSE
    if attribute.version is not None:
        return _version_key(attribute.version)
    if attribute.strings is not None:
        return tuple(map(_text_key, attribute.strings))
    if attribute.ints is not None:
        return attribute.ints
    if attribute.bools is not None:
        return tuple(_TRUE if value else _FALSE for value in attribute.bools)
    if attribute.versions is not None:
        return tuple(map(_version_key, attribute.versions))
    raise ValueError("unsupported attribute value")


@lru_cache(maxsize=4096)
def _version_key(text: str) -> str:
    try:
        Version.parse(text)
    except VersionError as error:
        raise ValueError(f"parse semantic version: {error}") from None
    return f"\0v{text}"


@lru_cache(maxsize=4096)
def _quantity_key(written: str | int) -> str:
    Quantity.of(written)
    return f"\0q{written}"


def _value(key: Key) -> Any:
    """The CEL value of a key."""
    if isinstance(key, tuple):
        return [_value(part) for part in key]
    if not isinstance(key, str) or not key.startswith("\0"):
        return key
    kind, text = key[1:2], key[2:]
    if kind == "s":
        return text
    if kind == "b":
        return text == "1"
    if kind == "v":
        return Version.parse(text)
    return Quantity.of(text) if kind == "q" else None


FREE: Final = DeviceView.of("", Device())
