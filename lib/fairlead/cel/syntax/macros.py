"""Macros: calls that the parser replaces by folds, node for node as cel-go does, for types and costs are defined on the folds.

A macro is a function from the parts of a call to a tree, or to None when the call is no use of the macro (`bind` on anything
but `cel`). Errors point at the argument.
Example: `xs.all(x, p)` is the fold with accumulator true, condition `@not_strictly_false(@result)`, step `@result && p`.

Source: cel-go parser/macro.go, cel/library.go (optionals), ext/bindings.go, ext/comprehensions.go, ext/lists.go (sortBy).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from fairlead.cel.errors import Issue
from fairlead.cel.syntax import ast
from fairlead.cel.syntax.lexer import SyntaxIssue

ACCUMULATOR: Final = "@result"
NodeTuple = tuple[ast.Node, ...]


class Maker:
    """Makes nodes with fresh ids."""

    def __init__(self) -> None:
        self.last_id = 0

    def _id(self) -> int:
        self.last_id += 1
        return self.last_id

    def literal(self, pos: int, value: object) -> ast.Literal:
        return ast.Literal(self._id(), pos, value)

    def ident(self, pos: int, name: str) -> ast.Ident:
        return ast.Ident(self._id(), pos, name)

    def select(self, pos: int, operand: ast.Node, field: str, *, test_only: bool = False) -> ast.Select:
        return ast.Select(self._id(), pos, operand, field, test_only)

    def call(self, pos: int, function: str, *args: ast.Node, target: ast.Node | None = None) -> ast.Call:
        return ast.Call(self._id(), pos, function, target, args)

    def list_(self, pos: int, elements: NodeTuple = (), optional: frozenset[int] = frozenset()) -> ast.ListNode:
        return ast.ListNode(self._id(), pos, elements, optional)

    def map_(self, pos: int, entries: tuple[ast.Entry, ...] = ()) -> ast.MapNode:
        return ast.MapNode(self._id(), pos, entries)

    def struct(self, pos: int, name: str, fields: tuple[tuple[str, ast.Node, bool], ...]) -> ast.Struct:
        return ast.Struct(self._id(), pos, name, fields)

    def next_id(self) -> int:
        return self._id()


Macro = Callable[[Maker, int, ast.Node | None, NodeTuple], ast.Node | None]
Macros = Mapping[tuple[str, int, bool], Macro]


def _variable(node: ast.Node, what: str = "a simple name") -> str:
    if not isinstance(node, ast.Ident) or node.name.startswith("."):
        raise SyntaxIssue(Issue(f"argument must be {what}", node.pos, "as in list.all(x, x > 0)"))
    if node.name in {ACCUMULATOR, "__result__"}:
        raise SyntaxIssue(Issue("iteration variable overwrites accumulator variable", node.pos))
    return node.name


def _variables(args: NodeTuple) -> tuple[str, str]:
    first, second = _variable(args[0]), _variable(args[1])
    if first == second:
        raise SyntaxIssue(Issue("duplicate variable name", args[1].pos))
    return first, second


def _target(target: ast.Node | None) -> ast.Node:
    assert target is not None
    return target


def _has(make: Maker, pos: int, target: ast.Node | None, args: NodeTuple) -> ast.Node | None:
    argument = args[0]
    if not isinstance(argument, ast.Select) or argument.test_only:
        raise SyntaxIssue(Issue("invalid argument to has() macro", argument.pos, "it takes a field, as in has(a.b)"))
    return make.select(pos, argument.operand, argument.field, test_only=True)


def _fold(
    make: Maker,
    pos: int,
    macro: str,
    target: ast.Node,
    names: tuple[str, str | None],
    *,
    init: ast.Node,
    step: Callable[[], ast.Node],
    condition: ast.Node | None = None,
    result: ast.Node | None = None,
    reads: tuple[ast.Node | None, ast.Node | None],
) -> ast.Comprehension:
    """`reads`: the macro's filter and body, each where it has one."""
    condition = condition or make.literal(pos, True)
    stepped = step()
    return ast.Comprehension(
        make.next_id(), pos, macro, target, names[0], names[1], ACCUMULATOR, init, condition, stepped,
        result or make.ident(pos, ACCUMULATOR), *reads,
    )  # fmt: skip


def _quantifier(
    make: Maker, pos: int, target: ast.Node, names: tuple[str, str | None], predicate: ast.Node, kind: str
) -> ast.Node:
    def accu() -> ast.Node:
        return make.ident(pos, ACCUMULATOR)

    if kind == "exists_one":
        one = make.literal(pos, 1)
        return _fold(
            make, pos, kind, target, names,
            init=make.literal(pos, 0),
            step=lambda: make.call(pos, "_?_:_", predicate, make.call(pos, "_+_", accu(), one), accu()),
            result=make.call(pos, "_==_", accu(), make.literal(pos, 1)),
            reads=(predicate, None),
        )  # fmt: skip
    going = accu() if kind == "all" else make.call(pos, "!_", accu())
    return _fold(
        make, pos, kind, target, names,
        init=make.literal(pos, kind == "all"),
        condition=make.call(pos, "@not_strictly_false", going),
        step=lambda: make.call(pos, "_&&_" if kind == "all" else "_||_", accu(), predicate),
        reads=(predicate, None),
    )  # fmt: skip


def _one_variable(kind: str) -> Macro:
    def expand(make: Maker, pos: int, target: ast.Node | None, args: NodeTuple) -> ast.Node:
        return _quantifier(make, pos, _target(target), (_variable(args[0]), None), args[1], kind)

    return expand


def _two_variables(kind: str) -> Macro:
    def expand(make: Maker, pos: int, target: ast.Node | None, args: NodeTuple) -> ast.Node:
        return _quantifier(make, pos, _target(target), _variables(args), args[2], kind)

    return expand


def _when(make: Maker, pos: int, condition: ast.Node | None, step: ast.Node) -> ast.Node:
    if condition is None:
        return step
    return make.call(pos, "_?_:_", condition, step, make.ident(pos, ACCUMULATOR))


def _append(
    make: Maker,
    pos: int,
    macro: str,
    target: ast.Node,
    names: tuple[str, str | None],
    filter_: ast.Node | None,
    body: ast.Node,
) -> ast.Comprehension:
    def step() -> ast.Node:
        added = make.call(pos, "_+_", make.ident(pos, ACCUMULATOR), make.list_(pos, (body,)))
        return _when(make, pos, filter_, added)

    return _fold(make, pos, macro, target, names, init=make.list_(pos), step=step, reads=(filter_, body))


def make_map(make: Maker, pos: int, target: ast.Node, args: NodeTuple) -> ast.Comprehension:
    name = _variable(args[0])
    return _append(make, pos, "map", target, (name, None), args[1] if len(args) == 3 else None, args[-1])


def _map(make: Maker, pos: int, target: ast.Node | None, args: NodeTuple) -> ast.Node:
    return make_map(make, pos, _target(target), args)


def _filter(make: Maker, pos: int, target: ast.Node | None, args: NodeTuple) -> ast.Node:
    name = _variable(args[0])
    return _append(make, pos, "filter", _target(target), (name, None), args[1], make.ident(args[0].pos, name))


def _transform_list(make: Maker, pos: int, target: ast.Node | None, args: NodeTuple) -> ast.Node:
    return _append(
        make, pos, "transformList", _target(target), _variables(args), args[2] if len(args) == 4 else None, args[-1]
    )


def _transform_map(kind: str) -> Macro:
    def expand(make: Maker, pos: int, target: ast.Node | None, args: NodeTuple) -> ast.Node:
        key, value = _variables(args)
        filter_ = args[2] if len(args) == 4 else None

        def step() -> ast.Node:
            accu = make.ident(pos, ACCUMULATOR)
            given = (accu, make.ident(pos, key), args[-1]) if kind == "transformMap" else (accu, args[-1])
            return _when(make, pos, filter_, make.call(pos, "cel.@mapInsert", *given))

        init = make.map_(pos)
        return _fold(make, pos, kind, _target(target), (key, value), init=init, step=step, reads=(filter_, args[-1]))

    return expand


def binding(make: Maker, pos: int, name: str, value: ast.Node, body: ast.Node) -> ast.Comprehension:
    return ast.Comprehension(
        make.next_id(), pos, "bind", make.list_(pos), "#unused", None, name, value,
        make.literal(pos, False), make.ident(pos, name), body,
    )  # fmt: skip


def _bind(make: Maker, pos: int, target: ast.Node | None, args: NodeTuple) -> ast.Node | None:
    if not isinstance(target, ast.Ident) or target.name != "cel":
        return None
    if not isinstance(args[0], ast.Ident):
        raise SyntaxIssue(Issue("cel.bind() variable names must be simple identifiers", args[0].pos))
    return binding(make, pos, args[0].name, args[1], args[2])


def _optional_map(function: str) -> Macro:
    """`x.optMap(v, e)`: e of x's content; `optFlatMap` when e is itself optional."""

    def expand(make: Maker, pos: int, target: ast.Node | None, args: NodeTuple) -> ast.Node:
        name = _variable(args[0])
        held = _target(target)
        mapped: ast.Node = binding(make, pos, name, make.call(pos, "value", target=held), args[1])
        if function == "optMap":
            mapped = make.call(pos, "optional.of", mapped)
        return make.call(pos, "_?_:_", make.call(pos, "hasValue", target=held), mapped, make.call(pos, "optional.none"))

    return expand


def _sort_by(make: Maker, pos: int, target: ast.Node | None, args: NodeTuple) -> ast.Node:
    name = "@__sortBy_input__"
    keys = make_map(make, pos, make.ident(pos, name), args)
    call = make.call(pos, "@sortByAssociatedKeys", keys, target=make.ident(pos, name))
    return binding(make, pos, name, _target(target), call)


STANDARD: Final[Macros] = {
    ("has", 1, False): _has,
    ("all", 2, True): _one_variable("all"),
    ("exists", 2, True): _one_variable("exists"),
    ("exists_one", 2, True): _one_variable("exists_one"),
    ("existsOne", 2, True): _one_variable("exists_one"),
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
}
OPTIONAL: Final[Macros] = {
    ("optMap", 2, True): _optional_map("optMap"),
    ("optFlatMap", 2, True): _optional_map("optFlatMap"),
}
BINDINGS: Final[Macros] = {("bind", 3, True): _bind}
TWO_VARIABLES: Final[Macros] = {
    ("all", 3, True): _two_variables("all"),
    ("exists", 3, True): _two_variables("exists"),
    ("existsOne", 3, True): _two_variables("exists_one"),
    ("exists_one", 3, True): _two_variables("exists_one"),
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map("transformMap"),
    ("transformMap", 4, True): _transform_map("transformMap"),
    ("transformMapEntry", 3, True): _transform_map("transformMapEntry"),
    ("transformMapEntry", 4, True): _transform_map("transformMapEntry"),
}
SORT_BY: Final[Macros] = {("sortBy", 2, True): _sort_by}
