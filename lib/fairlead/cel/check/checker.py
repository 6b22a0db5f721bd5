"""The type checker: a type for each node, the possible overloads for each call, the variable for each identifier.

Kubernetes refuses ill-typed expressions when they are written; this decides the same. The checker goes on after a mistake,
so that one compilation reports all of them, each with a suggestion where there is a likely one (hints.py).
Invariant: a mistake gives its node the type `error`, which fits everything, so no mistake is reported twice.

Source: cel-go checker/checker.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fairlead.cel import types as t
from fairlead.cel.check import hints
from fairlead.cel.check.inference import Inference
from fairlead.cel.check.unify import TooComplexError, substitute
from fairlead.cel.declare import Overload
from fairlead.cel.environment import Environment
from fairlead.cel.errors import Issue
from fairlead.cel.syntax import ast
from fairlead.cel.types import Type
from fairlead.cel.values import UInt

_LITERALS: dict[type, Type] = {
    type(None): t.NULL,
    bool: t.BOOL,
    int: t.INT,
    UInt: t.UINT,
    float: t.DOUBLE,
    str: t.STRING,
    bytes: t.BYTES,
}


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


def check(
    root: ast.Node, environment: Environment, nodes: int = 0, *, fuel: int | None = None
) -> tuple[Checked, list[Issue]]:
    """The checked tree (of so many nodes) and the mistakes; the tree is usable only when there are none.

    `fuel` bounds the comparisons of types; where it is None, the number of nodes does.
    """
    checker = _Checker(root, environment, nodes, fuel)
    checked = checker.checked
    try:
        checker.visit(root)
        bindings = checker.bindings
        checked.types = {node: substitute(bindings, type_, free_to_dyn=True) for node, type_ in checker.results.items()}
    except TooComplexError:
        checker.issues.append(Issue("types are too complex", root.pos, "nest fewer lists and maps in one another"))
    return checked, checker.issues


# Types of these kinds may fit a type of another kind.
_FLEXIBLE: Final = frozenset({"param", "dyn", "any", "error", "null"})


def _may_fit(args: list[Type], params: tuple[Type, ...]) -> bool:
    """False only where no binding of parameters makes the arguments fit: most overloads of an operator end here, for little."""
    return len(args) == len(params) and all(
        arg.kind == wanted.kind or arg.kind in _FLEXIBLE or wanted.kind in _FLEXIBLE
        for arg, wanted in zip(args, params, strict=True)
    )


class _Checker(Inference):
    def __init__(self, root: ast.Node, environment: Environment, nodes: int, fuel: int | None) -> None:
        super().__init__(environment, nodes, fuel)
        self.checked = Checked(root)
        self.scopes: list[dict[str, Type]] = []

    # Nodes

    def literal(self, node: ast.Literal) -> Type:
        return _LITERALS[type(node.value)]

    def ident(self, node: ast.Ident) -> Type:
        local = self.local(node.name)
        if local is not None:
            return local
        found = self.global_(node.name)
        if found is None:
            return self.unknown(node.pos, node.name)
        reference, type_ = found
        self.checked.references[node.id] = reference
        return type_

    def struct(self, node: ast.Struct) -> Type:
        for _, value, _ in node.fields:
            self.visit(value)
        return self.unknown(node.pos, node.name)

    def local(self, name: str) -> Type | None:
        if not name.startswith("."):
            for scope in reversed(self.scopes):
                if name in scope:
                    return scope[name]
        return None

    def global_(self, name: str) -> tuple[str | Type, Type] | None:
        for candidate in self.environment.candidates(name):
            variable = self.environment.variables.get(candidate)
            if variable is not None:
                return candidate, variable
            named = self.environment.types.get(candidate)
            if named is not None:
                return named, t.type_of(named)
        return None

    def unknown(self, pos: int, name: str) -> Type:
        if self.full:
            return t.ERROR
        names = [
            *self.environment.variables,
            *self.environment.functions,
            *(key for scope in self.scopes for key in scope),
        ]
        message = f"undeclared reference to '{name}' (in container '{self.environment.container}')"
        return self.report(pos, message, hints.similar(name, names, known=self.environment.variables))

    def qualified(self, node: ast.Node) -> str | None:
        """`a.b.c` as one name, unless `a` is a local variable."""
        parts: list[str] = []
        while isinstance(node, ast.Select) and not node.test_only:
            parts.append(node.field)
            node = node.operand
        if not isinstance(node, ast.Ident) or self.local(node.name) is not None:
            return None
        parts.append(node.name)
        return ".".join(reversed(parts))

    def select(self, node: ast.Select) -> Type:
        if not node.test_only and (name := self.qualified(node)) is not None:
            found = self.global_(name)
            if found is not None:
                reference, type_ = found
                self.checked.references[node.id] = reference
                return type_
        operand = self.current(self.visit(node.operand))
        type_ = self.field(node.pos, operand, node.field)
        return t.BOOL if node.test_only else type_

    def field(self, pos: int, operand: Type, name: str) -> Type:
        """The type of a field of such an operand."""
        kind = operand.kind
        if kind in {"error", "dyn", "any"} or self.full:
            return t.DYN
        if kind == "map":
            return operand.params[1]
        if kind == "param":
            self.fits((operand,), (t.DYN,))
            return t.DYN
        if kind == "object":
            fields = self.environment.objects.get(operand.name, {})
            if name in fields:
                return fields[name]
            return self.report(pos, f"undefined field '{name}'", hints.similar(name, fields, known=fields))
        if operand.name == "optional_type":
            return t.optional_of(self.field(pos, operand.params[0], name))
        methods = sorted(
            {
                o.function
                for os in self.environment.functions.values()
                for o in os
                if o.member and o.params[0] == operand
            }
        )
        hint = f"call it: {name}()" if name in methods else None
        return self.report(pos, f"type '{self.printed(operand)}' does not support field selection", hint)

    # Calls

    def call(self, node: ast.Call) -> Type:
        if node.function == "_?._":
            return self.optional_select(node)
        args = [self.visit(arg) for arg in node.args]
        if node.target is None:
            functions = self.functions(node.function)
            if not functions:
                return self.unknown_function(node)
            return self.resolve(node, functions, args, member=False)
        name = self.qualified(node.target)
        if name is not None:
            functions = self.functions(f"{name}.{node.function}")
            if functions:
                self.checked.namespaced.add(node.id)
                return self.resolve(node, functions, args, member=False)
        target = self.visit(node.target)
        functions = self.functions(node.function)
        if not functions:
            return self.unknown_function(node)
        return self.resolve(node, functions, [target, *args], member=True)

    def functions(self, name: str) -> tuple[Overload, ...]:
        for candidate in self.environment.candidates(name):
            overloads = self.environment.functions.get(candidate)
            if overloads:
                return overloads
        return ()

    def unknown_function(self, node: ast.Call) -> Type:
        if self.full:
            return t.ERROR
        message = f"undeclared reference to '{node.function}' (in container '{self.environment.container}')"
        arities = sorted({arity for name, arity, _ in self.environment.macros if name == node.function})
        if arities:
            hint: str | None = f"the macro takes {' or '.join(map(str, arities))} arguments"
        else:
            hint = hints.similar(
                node.function, [*self.environment.functions, *(name for name, _, _ in self.environment.macros)]
            )
        return self.report(node.pos, message, hint)

    def resolve(self, node: ast.Call, functions: tuple[Overload, ...], args: list[Type], *, member: bool) -> Type:
        chosen: list[Overload] = []
        result: Type | None = None
        chained = node.function in {"_&&_", "_||_"}
        for overload in functions:
            if overload.member != member or not (chained or _may_fit(args, overload.params)):
                continue
            params, outcome = self.instantiate(overload, len(args) if chained else None)
            if self.fits(args, params):
                chosen.append(overload)
                outcome = self.current(outcome)
                result = outcome if result is None or result == outcome else t.DYN
        if result is None and not self.environment.checked:
            chosen = [
                overload for overload in functions if overload.member == member and len(overload.params) == len(args)
            ]
            result = t.DYN
        if result is None:
            return self.no_match(node, functions, args, member=member)
        self.checked.overloads[node.id] = tuple(chosen)
        return result

    def no_match(self, node: ast.Call, functions: tuple[Overload, ...], args: list[Type], *, member: bool) -> Type:
        if self.full:
            return t.ERROR
        shown = [self.printed(arg) for arg in args]
        name = node.function.replace("@in", "_in_")
        given = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
        message = f"found no matching overload for '{name}' applied to '{given}'"
        return self.report(node.pos, message, hints.no_overload(node.function, functions, shown, member=member))

    def optional_select(self, node: ast.Call) -> Type:
        operand = self.current(self.visit(node.args[0]))
        self.visit(node.args[1])
        field = node.args[1]
        assert isinstance(field, ast.Literal)
        self.checked.overloads[node.id] = self.functions("_?._")
        inner = operand.params[0] if operand.name == "optional_type" else operand
        return t.optional_of(self.field(node.pos, inner, str(field.value)))

    # Literals

    def list_literal(self, node: ast.ListNode) -> Type:
        element: Type | None = None
        for index, child in enumerate(node.elements):
            type_ = self.visit(child)
            if index in node.optional:
                type_ = self.unwrapped(child, type_)
            element = self.join(element, type_)
        return t.list_of(element or self.fresh())

    def map_literal(self, node: ast.MapNode) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self.join(key, self.visit(entry.key))
            type_ = self.visit(entry.value)
            if entry.optional:
                type_ = self.unwrapped(entry.value, type_)
            value = self.join(value, type_)
        return t.map_of(key or self.fresh(), value or self.fresh())

    def unwrapped(self, node: ast.Node, type_: Type) -> Type:
        type_ = self.current(type_)
        if type_.name == "optional_type":
            return type_.params[0]
        if type_.is_dyn or type_.kind == "error":
            return t.DYN
        return self.report(node.pos, f"expected type 'optional_type({type_})' but found '{self.printed(type_)}'")

    # Folds

    def comprehension(self, node: ast.Comprehension) -> Type:
        ranged = self.current(self.visit(node.iter_range))
        accu = self.visit(node.accu_init)
        first, second = self.range_types(node, ranged)
        self.scopes.append({node.accu_var: accu})
        variables = {node.iter_var: first if node.iter_var2 is None else second[0]}
        if node.iter_var2 is not None:
            variables[node.iter_var2] = second[1]
        self.scopes.append(variables)
        self.require(node.condition, t.BOOL)
        self.require(node.step, accu)
        self.scopes.pop()
        result = self.visit(node.result)
        self.scopes.pop()
        return self.current(result)

    def range_types(self, node: ast.Comprehension, ranged: Type) -> tuple[Type, tuple[Type, Type]]:
        """The type of the only variable, and those of two."""
        if ranged.kind == "list":
            return ranged.params[0], (t.INT, ranged.params[0])
        if ranged.kind == "map":
            return ranged.params[0], (ranged.params[0], ranged.params[1])
        if ranged.kind == "param":
            self.fits((ranged,), (t.DYN,))
        elif ranged.kind not in {"dyn", "any", "error"}:
            message = f"expression of type '{self.printed(ranged)}' cannot be range of a comprehension (must be list, map, or dynamic)"
            self.report(node.iter_range.pos, message)
            return t.ERROR, (t.ERROR, t.ERROR)
        return t.DYN, (t.DYN, t.DYN)

    def require(self, node: ast.Node, wanted: Type) -> None:
        type_ = self.visit(node)
        if not self.fits((wanted,), (type_,)):
            self.report(node.pos, f"expected type '{self.printed(wanted)}' but found '{self.printed(type_)}'")
