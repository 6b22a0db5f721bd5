"""The syntax tree of an expression, after macros, and the visitor that every pass over it is.

Nodes are immutable in use; `id` is unique within a tree and keys what the passes find out (types, overloads, sizes),
`pos` is the offset that an error points at. A comprehension keeps both its fold, which the type checker and the cost
estimate read, and the name of the macro that it came from, which the compiler turns into a plain loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar


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


T = TypeVar("T")


class Visitor(ABC, Generic[T]):
    """A pass over a tree: one method per kind of node, called once per node.

    `results` holds what the methods returned, by node id. A node that occurs twice in a tree (`x.optMap(v, e)` holds x
    twice) is visited once. The dispatch adds one Python frame per level, for the depth of a tree is bounded by Python's stack.
    """

    _methods: ClassVar[dict[type[Node], Callable[[Any, Any], Any]]]

    def __init_subclass__(cls) -> None:
        cls._methods = {
            Literal: cls.literal,
            Ident: cls.ident,
            Select: cls.select,
            Call: cls.call,
            ListNode: cls.list_literal,
            MapNode: cls.map_literal,
            Struct: cls.struct,
            Comprehension: cls.comprehension,
        }

    def __init__(self) -> None:
        self.results: dict[int, T] = {}

    def visit(self, node: Node) -> T:
        """The result for the node; computed when it is first asked for."""
        result = self.results.get(node.id)
        if result is None:
            result = self.results[node.id] = self._methods[type(node)](self, node)
        return result

    @abstractmethod
    def literal(self, node: Literal) -> T: ...

    @abstractmethod
    def ident(self, node: Ident) -> T: ...

    @abstractmethod
    def select(self, node: Select) -> T: ...

    @abstractmethod
    def call(self, node: Call) -> T: ...

    @abstractmethod
    def list_literal(self, node: ListNode) -> T: ...

    @abstractmethod
    def map_literal(self, node: MapNode) -> T: ...

    @abstractmethod
    def struct(self, node: Struct) -> T: ...

    @abstractmethod
    def comprehension(self, node: Comprehension) -> T: ...
