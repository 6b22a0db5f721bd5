"""What a program may mention: variables with their types, functions, macros, objects with fields.

Immutable and shared; `extend` makes a new environment. Those of Kubernetes 1.36 are in kubernetes.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from fairlead.cel import types as t
from fairlead.cel.declare import Library, Overload
from fairlead.cel.syntax.macros import Macro
from fairlead.cel.types import Type

# Names of types that an expression may mention: `type(x) == int`.
_TYPE_NAMES: Final[Mapping[str, Type]] = MappingProxyType(
    {
        "bool": t.BOOL,
        "bytes": t.BYTES,
        "double": t.DOUBLE,
        "int": t.INT,
        "uint": t.UINT,
        "string": t.STRING,
        "null_type": t.NULL,
        "type": t.TYPE,
        "list": t.list_of(t.DYN),
        "map": t.map_of(t.DYN, t.DYN),
        "optional_type": t.optional_of(t.DYN),
        "google.protobuf.Timestamp": t.TIMESTAMP,
        "google.protobuf.Duration": t.DURATION,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class Environment:
    """Build it with `Environment.of(libraries, macros)` and `extend`."""

    functions: Mapping[str, tuple[Overload, ...]] = field(default_factory=dict)
    macros: Mapping[tuple[str, int, bool], Macro] = field(default_factory=dict)
    variables: Mapping[str, Type] = field(default_factory=dict)
    objects: Mapping[str, Mapping[str, Type]] = field(default_factory=dict)
    attributes: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (object, field) to Python's name for it
    types: Mapping[str, Type] = field(default_factory=lambda: dict(_TYPE_NAMES))
    container: str = ""
    homogeneous_literals: bool = True  # mixed list and map literals are refused
    checked: bool = True  # False: what does not type-check is left to fail when it runs
    validate_literals: bool = True  # bad patterns, durations, timestamps and formats in literals are refused
    fold_constants: bool = True  # calls on literals are computed at compile time, and refused if they fail
    optional_syntax: bool = True
    quoted_fields: bool = False  # a.`b-c`
    budget: int = 1_000_000

    @staticmethod
    def of(libraries: Iterable[Library], macros: Iterable[Mapping[tuple[str, int, bool], Macro]] = ()) -> Environment:
        return Environment().extend(libraries=libraries, macros=macros)

    def extend(
        self,
        *,
        libraries: Iterable[Library] = (),
        macros: Iterable[Mapping[tuple[str, int, bool], Macro]] = (),
        variables: Mapping[str, Type] | None = None,
        objects: Mapping[str, Mapping[str, Type]] | None = None,
        attributes: Mapping[tuple[str, str], str] | None = None,
        types: Mapping[str, Type] | None = None,
    ) -> Environment:
        """A new environment: this one with additions."""
        functions = dict(self.functions)
        for library in libraries:
            for overload in library.overloads:
                functions[overload.function] = (*functions.get(overload.function, ()), overload)
        all_macros = dict(self.macros)
        for some in macros:
            all_macros.update(some)
        return replace(
            self,
            functions=functions,
            macros=all_macros,
            variables={**self.variables, **(variables or {})},
            objects={**self.objects, **(objects or {})},
            attributes={**self.attributes, **(attributes or {})},
            types={**self.types, **(types or {})},
        )

    def candidates(self, name: str) -> list[str]:
        """The names that `name` may stand for, most specific container first."""
        if name.startswith("."):
            return [name[1:]]
        if not self.container:
            return [name]
        parts = self.container.split(".")
        return [".".join((*parts[:count], name)) for count in range(len(parts), -1, -1)]
