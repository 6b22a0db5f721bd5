"""Values at run time: plain Python where Python means the same, small classes where it does not.

bool, int (64 bits), float, str, bytes, None, list and dict are themselves; UInt is an int that knows it is unsigned,
so mixed arithmetic can be refused; map keys true and false are wrapped, for Python holds `True == 1`. Equality is CEL's:
across numeric types, never between a bool and a number, and a quantity compared with a string is an error, not false.
Lists and maps are never changed in place once they are bound to a name.

Source: cel-spec langdef "Equality"; cel-go common/types; k8s.io/apiserver/pkg/cel (quantity.go, semver.go).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

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
    """What `type(x)` gives and `int` names."""

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
    """As map_key, but a double may look up a whole number, and what can never be found is simply never found."""
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


_NAMES: Final[dict[type, str]] = {
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
    name = _NAMES.get(kind)
    if name is not None:
        return name
    if isinstance(value, dict):
        return "map"
    return str(getattr(kind, "cel_type_name", kind.__name__))


def no_overload(function: str, *args: object) -> NoReturn:
    """The error for arguments that no overload of the function takes."""
    raise EvaluationError(f"no such overload: {function}({', '.join(map(type_name, args))})")


# Equality

_SAME_IN_PYTHON: Final = frozenset({str, bool, int, UInt, float, bytes, TypeValue, Timestamp, Duration})
_NUMBERS: Final = frozenset({int, UInt, float})
_STRICT: Final = frozenset(
    {Quantity, Version, ipaddress.IPv4Address, ipaddress.IPv6Address, Cidr, Url, Format},
)


def equal(left: object, right: object) -> bool:
    """CEL's `==`. Raises EvaluationError where Kubernetes' own types refuse to be compared."""
    kind, other = type(left), type(right)
    if kind is other and kind in _SAME_IN_PYTHON:
        return left == right
    if left is None or right is None:
        return left is right
    if kind in _NUMBERS:
        return other in _NUMBERS and compare_numbers(left, right) == 0
    if isinstance(left, (list, tuple, dict)):
        return _equal_containers(left, right, {})
    if kind is Optional:
        return _equal_optionals(left, right)
    if kind in _STRICT:
        if _NAMES.get(kind) != _NAMES.get(other):
            raise EvaluationError(f"no such overload: {type_name(left)} == {type_name(right)}")
        return left == right
    return kind is other and left == right


def equal_or_unlike(left: object, right: object) -> bool:
    """As `equal`, where two things that cannot be compared are merely not equal: for `in` and its like."""
    try:
        return equal(left, right)
    except EvaluationError:
        return False


# Pairs that were compared, by id: `[a, a]` of `[b, b]` of … is small, but has 2**n leaves.
_Seen = dict[tuple[int, int], bool]


def _equal_containers(left: object, right: object, seen: _Seen) -> bool:
    pair = (id(left), id(right))
    known = seen.get(pair)
    if known is None:
        known = seen[pair] = (
            _equal_lists(left, right, seen) if isinstance(left, (list, tuple)) else _equal_maps(left, right, seen)
        )
    return known


def _equal_lists(left: Any, right: Any, seen: _Seen) -> bool:
    if not isinstance(right, (list, tuple)) or len(left) != len(right):
        return False
    return all(_members_equal(a, b, seen) for a, b in zip(left, right, strict=True))


def _equal_maps(left: Any, right: Any, seen: _Seen) -> bool:
    if not isinstance(right, dict) or len(left) != len(right):
        return False
    return all(key in right and _members_equal(value, right[key], seen) for key, value in left.items())


def _members_equal(left: object, right: object, seen: _Seen) -> bool:
    """Two members of lists or maps: cel-go takes those that cannot be compared for equal, and so must we."""
    if isinstance(left, (list, tuple, dict)):
        return right is not None and _equal_containers(left, right, seen)
    try:
        return equal(left, right)
    except EvaluationError:
        return True


def _equal_optionals(left: object, right: object) -> bool:
    if type(left) is not Optional or type(right) is not Optional:
        return False
    if left.present != right.present:
        return False
    return not left.present or equal(left.content, right.content)


def contains(values: Iterable[object], wanted: object) -> bool:
    """`wanted in list`."""
    return any(equal_or_unlike(wanted, value) for value in values)


# Order


def compare_numbers(left: object, right: object) -> int | None:
    """-1, 0, 1; None when one is NaN. An integer beside a double is compared as a double, as cel-go does."""
    if type(left) is float or type(right) is float:
        a, b = float(left), float(right)  # type: ignore[arg-type]
        if a != a or b != b:  # noqa: PLR0124 - NaN
            return None
        return (a > b) - (a < b)
    return _sign(left, right)


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


_ORDERED: Final = frozenset({str, bytes, bool, Timestamp, Duration})


def compare(left: object, right: object) -> int | None:
    """-1, 0, 1; None when unordered. Raises EvaluationError for types without an order between them."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return compare_numbers(left, right)
    if kind is other and kind in _ORDERED:
        return _sign(left, right)
    no_overload("_<_", left, right)


# Between Python and CEL


def to_python(value: object) -> object:
    """A result as JSON-like Python: tuples become lists, wrapped keys plain, uint int; the rest stays what it is."""
    return _to_python(value, {})


def _to_python(value: object, done: dict[int, object]) -> object:
    """What occurs twice is converted once, and shared as it was."""
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
    """How much there is in the value, characters and members alike; `limit` if it is that or more."""
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
