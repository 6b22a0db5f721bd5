"""Static types of expressions, their text, and the types that Kubernetes adds.

Types are values: equal when they mean the same. `any` behaves as `dyn` but prints as `any` (a device attribute has that type).
Assignability is decided in unify.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """`kind` decides how the checker treats it; `name` distinguishes opaque, object and parameter types."""

    kind: str
    name: str
    params: tuple[Type, ...] = ()
    weight: int = field(init=False, repr=False, compare=False, default=1)  # of all its parts

    def __post_init__(self) -> None:
        if self.params:
            object.__setattr__(self, "weight", 1 + sum(inner.weight for inner in self.params))

    def __str__(self) -> str:
        if self.params and self.kind != "type":
            return f"{self.name}({', '.join(map(str, self.params))})"
        if self.kind == "type" and self.params:
            return f"type({self.params[0]})"
        return _PRINTED.get(self.name, self.name)

    @property
    def is_dyn(self) -> bool:
        return self.kind in {"dyn", "any"}


_PRINTED: Final = {
    "null_type": "null",
    "google.protobuf.Any": "any",
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "duration",
}

DYN: Final = Type("dyn", "dyn")
ANY: Final = Type("any", "google.protobuf.Any")
ERROR: Final = Type("error", "!error!")
NULL: Final = Type("null", "null_type")
BOOL: Final = Type("bool", "bool")
INT: Final = Type("int", "int")
UINT: Final = Type("uint", "uint")
DOUBLE: Final = Type("double", "double")
STRING: Final = Type("string", "string")
BYTES: Final = Type("bytes", "bytes")
TIMESTAMP: Final = Type("timestamp", "google.protobuf.Timestamp")
DURATION: Final = Type("duration", "google.protobuf.Duration")
TYPE: Final = Type("type", "type")


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(target: Type) -> Type:
    return Type("type", "type", (target,))


def opaque(name: str, *params: Type) -> Type:
    return Type("opaque", name, params)


def object_type(name: str) -> Type:
    return Type("object", name)


def param(name: str) -> Type:
    return Type("param", name)


QUANTITY: Final = opaque("kubernetes.Quantity")
SEMVER: Final = opaque("kubernetes.Semver")
IP: Final = opaque("net.IP")
CIDR: Final = opaque("net.CIDR")
URL: Final = opaque("kubernetes.URL")
FORMAT: Final = opaque("kubernetes.NamedFormat")

_NAMED: Final = {
    "dyn": DYN,
    "any": ANY,
    "null": NULL,
    "bool": BOOL,
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "timestamp": TIMESTAMP,
    "duration": DURATION,
    "type": TYPE,
    "quantity": QUANTITY,
    "semver": SEMVER,
    "ip": IP,
    "cidr": CIDR,
    "url": URL,
    "format": FORMAT,
}
_TOKEN: Final = re.compile(r"[A-Za-z_]+|[(),]")


def read_type(text: str) -> Type:
    """The type of a text such as `list(map(string, T))` or `optional(V)`; one capital letter is a type parameter."""
    tokens = _TOKEN.findall(text)
    result, rest = _read(tokens)
    if rest:
        raise ValueError(f"type {text!r}: unexpected {rest[0]!r}")
    return result


def _read(tokens: list[str]) -> tuple[Type, list[str]]:
    name, rest = tokens[0], tokens[1:]
    params: list[Type] = []
    if rest and rest[0] == "(":
        rest = rest[1:]
        while True:
            inner, rest = _read(rest)
            params.append(inner)
            separator, rest = rest[0], rest[1:]
            if separator == ")":
                break
    if len(name) == 1 and name.isupper():
        return param(name), rest
    if name in {"list", "map"}:
        return Type(name, name, tuple(params)), rest
    if name == "optional":
        return optional_of(params[0]), rest
    if name == "type" and params:
        return type_of(params[0]), rest
    return _NAMED[name], rest
