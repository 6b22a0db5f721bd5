"""Values at run time: plain Python where Python means the same, small classes where it does not.

bool, int (64 bits), float, str, bytes, None, list and dict stand for themselves. UInt is an int that is known to be
unsigned, so that mixed arithmetic can be refused. Map keys true and false are wrapped, since Python holds `True == 1`.
Lists and maps are never changed in place once they are bound to a name. Equality and order are in equality.py.

Source: cel-go common/types; k8s.io/apiserver/pkg/cel (quantity.go, semver.go).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from fairlead.cel.errors import EvaluationError
from fairlead.kube.quantity import Quantity
from fairlead.kube.semver import Version

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
UINT64_MAX: Final = 2**64 - 1


class UInt(int):
    """An unsigned 64-bit integer; a literal `1u`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Nanoseconds since the epoch, within years 1 to 9999."""

    ns: int


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """Nanoseconds, as Go's time.Duration."""

    ns: int


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: the result of `type(x)`, and the name `int`."""

    name: str


class _Absent:
    __slots__ = ()


_ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True, eq=False)
class Optional:
    """`optional.of(x)` or `optional.none()`."""

    content: object = _ABSENT

    @property
    def present(self) -> bool:
        return self.content is not _ABSENT

    def unwrap(self) -> object:
        if self.content is _ABSENT:
            raise EvaluationError("optional.none() dereference")
        return self.content


NONE: Final = Optional()


@dataclass(frozen=True, slots=True)
class _BoolKey:
    value: bool


_KEYS: Final = {True: _BoolKey(True), False: _BoolKey(False)}


def map_key(value: object) -> object:
    """The Python key under which a map holds a CEL key. Raises EvaluationError for a type that is no key."""
    kind = type(value)
    if kind is str or kind is int or kind is UInt:
        return value
    if kind is bool:
        return _KEYS[bool(value)]
    raise EvaluationError(f"unsupported key type: {type_name(value)}")


def lookup_key(value: object) -> object:
    """The key to look up: as map_key, but a double finds an equal integer key, and a value that is no key type is never found."""
    kind = type(value)
    if kind is str or kind is int or kind is UInt or kind is float:
        return value
    if kind is bool:
        return _KEYS[bool(value)]
    return _ABSENT


def keys_of(entries: dict[object, object]) -> Iterator[object]:
    """A map's keys as CEL values, in the order of insertion."""
    for key in entries:
        yield key.value if type(key) is _BoolKey else key


def items_of(entries: dict[object, object]) -> Iterator[tuple[object, object]]:
    for key, value in entries.items():
        yield (key.value if type(key) is _BoolKey else key), value


@dataclass(frozen=True, slots=True)
class Cidr:
    """A network with the address that it was written with (`10.1.2.3/8` keeps its host bits)."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    prefix: int

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network((self.address, self.prefix), strict=False)

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL: what `url()` gives access to."""

    text: str
    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Format:
    """A named format (`format.dns1123Label()`), which validates strings."""

    name: str


TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    tuple: "list",
    dict: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    TypeValue: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    Version: "kubernetes.Semver",
    ipaddress.IPv4Address: "net.IP",
    ipaddress.IPv6Address: "net.IP",
    Cidr: "net.CIDR",
    Url: "kubernetes.URL",
    Format: "kubernetes.NamedFormat",
}


def type_name(value: object) -> str:
    """The CEL name of the value's type."""
    kind = type(value)
    name = TYPE_NAMES.get(kind)
    if name is not None:
        return name
    if isinstance(value, dict):
        return "map"
    return str(getattr(kind, "cel_type_name", kind.__name__))


def no_overload(function: str, *args: object) -> NoReturn:
    """The error for arguments that no overload of the function takes."""
    raise EvaluationError(f"no such overload: {function}({', '.join(map(type_name, args))})")


# Between Python and CEL


def to_python(value: object) -> object:
    """A result as JSON-like Python: tuples become lists, wrapped keys plain ones, uint int; the rest is unchanged."""
    return _to_python(value, {})


def _to_python(value: object, done: dict[int, object]) -> object:
    """Converts a list or map that occurs twice once, and shares the result."""
    if isinstance(value, (list, tuple, dict)):
        known = done.get(id(value))
        if known is None:
            if isinstance(value, dict):
                known = {key: _to_python(item, done) for key, item in items_of(value)}
            else:
                known = [_to_python(item, done) for item in value]
            done[id(value)] = known
        return known
    if type(value) is UInt:
        return int(value)
    if type(value) is Optional:
        return _to_python(value.content, done) if value.present else None
    return value


def weight(value: object, limit: int) -> int:
    """The number of characters, members and values in the value, nested ones included; at most `limit`."""
    total, stack = 0, [value]
    while stack and total < limit:
        item = stack.pop()
        if isinstance(item, (str, bytes)):
            total += len(item)
        elif isinstance(item, (list, tuple)):
            total += len(item)
            stack += item
        elif isinstance(item, dict):
            total += len(item)
            stack += item.values()
        total += 1
    return min(total, limit)
