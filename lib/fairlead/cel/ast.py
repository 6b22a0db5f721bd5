"""The syntax tree of an expression, after macros.

Exists so that parser, checker, cost and compiler speak of one thing. Nodes are immutable in use; `id` is unique within
a tree and keys what the passes find out (types, overloads, sizes), `pos` is the offset that an error points at.
A comprehension keeps both its fold (what the type checker and the cost estimate read) and the name of the macro that
it came from (what the compiler turns into a plain loop).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Node:
    id: int
    pos: int

    def children(self) -> Iterator[Node]:
        return iter(())


@dataclass(slots=True, eq=False)
class Literal(Node):
    value: object  # None, bool, int, UInt, float, str or bytes


@dataclass(slots=True, eq=False)
class Ident(Node):
    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    operand: Node
    field: str
    test_only: bool = False

    def children(self) -> Iterator[Node]:
        yield self.operand


@dataclass(slots=True, eq=False)
class Call(Node):
    function: str
    target: Node | None
    args: tuple[Node, ...]

    def children(self) -> Iterator[Node]:
        if self.target is not None:
            yield self.target
        yield from self.args


@dataclass(slots=True, eq=False)
class ListNode(Node):
    elements: tuple[Node, ...]
    optional: frozenset[int] = frozenset()  # indices written `?x`

    def children(self) -> Iterator[Node]:
        yield from self.elements


@dataclass(slots=True, eq=False)
class Entry:
    key: Node
    value: Node
    optional: bool


@dataclass(slots=True, eq=False)
class MapNode(Node):
    entries: tuple[Entry, ...]

    def children(self) -> Iterator[Node]:
        for entry in self.entries:
            yield entry.key
            yield entry.value


@dataclass(slots=True, eq=False)
class Struct(Node):
    """`Name{field: value}`: a message; no environment of ours declares any, so the checker refuses it."""

    name: str
    fields: tuple[tuple[str, Node, bool], ...]

    def children(self) -> Iterator[Node]:
        for _, value, _ in self.fields:
            yield value


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    macro: str  # all, exists, exists_one, map, filter, transformList, transformMap, transformMapEntry or bind
    iter_range: Node
    iter_var: str
    iter_var2: str | None
    accu_var: str
    accu_init: Node
    condition: Node
    step: Node
    result: Node
    # The macro's own arguments; both also occur within step.
    filter: Node | None = None
    body: Node | None = None

    def children(self) -> Iterator[Node]:
        yield self.iter_range
        yield self.accu_init
        yield self.condition
        yield self.step
        yield self.result


def walk(root: Node) -> Iterator[Node]:
    """Every node, parents first, left to right; needs no Python recursion."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(node.children())))
