"""A tree with what the type checker found out: the input of every pass after it.

Validators, the cost estimate, the compiler and the search for reads take it; none of them changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlead.cel.declare import Overload
from fairlead.cel.syntax import ast
from fairlead.cel.types import Type


@dataclass(slots=True)
class Checked:
    """A tree, and by node id the types, overloads and variables in it."""

    root: ast.Node
    types: dict[int, Type] = field(default_factory=dict)
    # The overloads that a call may mean; more than one where an argument is dyn.
    overloads: dict[int, tuple[Overload, ...]] = field(default_factory=dict)
    # Variables of the environment, by the name they were found under; a Type for an identifier that names a type.
    references: dict[int, str | Type] = field(default_factory=dict)
    # Calls whose target is no value but the first part of a function's name, as in `lists.range(3)`.
    namespaced: set[int] = field(default_factory=set)

    def type_of(self, node: ast.Node) -> Type:
        return self.types[node.id]
