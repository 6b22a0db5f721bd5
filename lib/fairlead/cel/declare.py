"""Declarations of functions: overloads with types, grouped into libraries.

An overload is what the checker accepts, what the compiler calls, and what the cost estimate charges for. An implementation
takes values and returns one, or raises EvaluationError. Where a result can be much larger than the input, `charge` computes
its size from the arguments, and that is taken from the budget before the call.
Example: `LIB.member("size", "list(T)", "int", "list_size", len)` declares `[1, 2].size()`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from fairlead.cel import types as t
from fairlead.cel.types import Type, read_type
from fairlead.cel.values import Cidr, Duration, Format, Optional, Timestamp, TypeValue, UInt, Url
from fairlead.kube.quantity import Quantity
from fairlead.kube.semver import Version

Implementation = Callable[..., object]


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    id: str
    function: str
    params: tuple[Type, ...]  # the receiver first, for a member
    result: Type
    member: bool
    call: Implementation
    charge: Callable[..., int] | None = None
    type_params: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_params", _params_in((*self.params, self.result)))

    def accepts(self, classes: tuple[type, ...]) -> bool:
        """Whether values of these Python classes may be passed."""
        return len(classes) == len(self.params) and all(
            accepts_class(parameter, given) for parameter, given in zip(self.params, classes, strict=True)
        )


def _params_in(types: Iterable[Type]) -> frozenset[str]:
    found: set[str] = set()
    for type_ in types:
        if type_.kind == "param":
            found.add(type_.name)
        found |= _params_in(type_.params)
    return frozenset(found)


_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "uint": (UInt,),
    "double": (float,),
    "string": (str,),
    "bytes": (bytes,),
    "list": (list, tuple),
    "map": (dict,),
    "timestamp": (Timestamp,),
    "duration": (Duration,),
    "type": (TypeValue,),
    "optional_type": (Optional,),
    t.QUANTITY.name: (Quantity,),
    t.SEMVER.name: (Version,),
    t.IP.name: (ipaddress.IPv4Address, ipaddress.IPv6Address),
    t.CIDR.name: (Cidr,),
    t.URL.name: (Url,),
    t.FORMAT.name: (Format,),
}


def accepts_class(parameter: Type, given: type) -> bool:
    """Whether a value of that Python class may be of the type; type parameters and members are not looked at."""
    if parameter.kind in {"dyn", "any", "param"}:
        return True
    classes = _CLASSES.get(parameter.name if parameter.kind in {"opaque", "object"} else parameter.kind)
    if classes is None:
        return getattr(given, "cel_type_name", None) == parameter.name
    return given in classes or (parameter.kind == "map" and issubclass(given, dict))


@dataclass(slots=True)
class Library:
    """A named set of overloads; filled at import, then only read."""

    name: str
    overloads: list[Overload] = field(default_factory=list)

    def function(
        self,
        name: str,
        params: str,
        result: str,
        overload_id: str,
        call: Implementation,
        *,
        charge: Callable[..., int] | None = None,
    ) -> None:
        """`name(params) -> result`, called without a receiver."""
        self._add(name, params, result, overload_id, call, member=False, charge=charge)

    def member(
        self,
        name: str,
        params: str,
        result: str,
        overload_id: str,
        call: Implementation,
        *,
        charge: Callable[..., int] | None = None,
    ) -> None:
        """Declares like `function`; the first parameter is the receiver."""
        self._add(name, params, result, overload_id, call, member=True, charge=charge)

    def _add(
        self,
        name: str,
        params: str,
        result: str,
        overload_id: str,
        call: Implementation,
        *,
        member: bool,
        charge: Callable[..., int] | None,
    ) -> None:
        types = tuple(read_type(text) for text in _split(params))
        self.overloads.append(Overload(overload_id, name, types, read_type(result), member, call, charge))


def _split(params: str) -> list[str]:
    """`list(T), map(K, V)` at its outer commas."""
    parts: list[str] = []
    depth, start = 0, 0
    for index, character in enumerate(params):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(params[start:index])
            start = index + 1
    if params.strip():
        parts.append(params[start:])
    return parts
