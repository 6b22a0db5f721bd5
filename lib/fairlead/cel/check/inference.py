"""The state of a type inference: what type parameters are bound to, and the mistakes found so far.

`checker.py` has the typing rules of the nodes; this has what they are made of. A type parameter that is not bound yet is
`_varN`; comparing types may bind it (unify.py), for all nodes that it occurs in.
Invariant: a type has at most TYPE_WEIGHT_MAX parts; each level of `{x: x}` would double them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fairlead.cel import types as t
from fairlead.cel.check.unify import Bindings, assignable, most_general, substitute
from fairlead.cel.declare import Overload
from fairlead.cel.environment import Environment
from fairlead.cel.errors import Issue
from fairlead.cel.syntax import ast
from fairlead.cel.types import Type

TYPE_WEIGHT_MAX: Final = 256
ISSUES_MAX: Final = 25
"""Mistakes that are reported of one expression. A suggestion costs more than the mistake, and ten are shown."""


class Inference(ast.Visitor[Type]):
    """A visitor that gives each node a type, and what its rules share."""

    def __init__(self, environment: Environment, nodes: int, fuel: int | None = None) -> None:
        super().__init__()
        self.environment = environment
        self.issues: list[Issue] = []
        self.bindings = Bindings(nodes=nodes, fuel=fuel)
        self.free = 0

    def visit(self, node: ast.Node) -> Type:
        """Visits like Visitor.visit, with the bound on types."""
        type_ = self.results.get(node.id)
        if type_ is None:
            type_ = self._methods[type(node)](self, node)
            if type_.weight > TYPE_WEIGHT_MAX:
                message = f"type is too complex: {type_.weight} parts, at most {TYPE_WEIGHT_MAX} are allowed"
                type_ = self.report(node.pos, message)
            self.results[node.id] = type_
        return type_

    def fresh(self) -> Type:
        """A type parameter that occurs nowhere yet."""
        self.free += 1
        return t.param(f"_var{self.free}")

    def report(self, pos: int, message: str, hint: str | None = None) -> Type:
        """Records a mistake. Returns the type of the node that it is in."""
        if not self.environment.checked:
            return t.DYN
        if not self.full:
            self.issues.append(Issue(message, pos, hint))
        return t.ERROR

    @property
    def full(self) -> bool:
        """Whether enough mistakes are known; what would be said of another one need not be found out."""
        return len(self.issues) >= ISSUES_MAX

    def current(self, type_: Type) -> Type:
        """The type with its bound parameters replaced."""
        return substitute(self.bindings, type_, free_to_dyn=False)

    def fits(self, left: Iterable[Type], right: Iterable[Type]) -> bool:
        """Whether each left type is assignable to its right one; if so, binds the parameters that it depends on."""
        bindings = assignable(self.bindings, tuple(left), tuple(right))
        if bindings is None:
            return False
        self.bindings = bindings
        return True

    def printed(self, type_: Type) -> str:
        return str(substitute(self.bindings, type_, free_to_dyn=True))

    def instantiate(self, overload: Overload, chained: int | None) -> tuple[tuple[Type, ...], Type]:
        """The overload's parameters and result with fresh type parameters; `chained` is the length of a `&&` or `||` chain."""
        if chained is not None:
            return (t.BOOL,) * chained, t.BOOL
        names = overload.type_params
        if not names:
            return overload.params, overload.result
        fresh = Bindings(self.bindings)
        fresh.clear()
        fresh.update({name: self.fresh() for name in sorted(names)})
        params = tuple(substitute(fresh, parameter, free_to_dyn=False) for parameter in overload.params)
        return params, substitute(fresh, overload.result, free_to_dyn=False)

    def join(self, previous: Type | None, current: Type) -> Type:
        """The type of a literal's members so far and one more."""
        if previous is None:
            return current
        if self.fits((previous,), (current,)):
            return most_general(previous, current)
        return t.DYN
